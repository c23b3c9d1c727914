"""nodetracker-manage config: names and values of options, and optional libraries."""

from types import SimpleNamespace

import pytest
from oslo_config import cfg

from nodetracker.cmd import manage
from nodetracker.cmd.commands import config
from nodetracker.cmd.commands.config import CheckConfig, find_unknown_options
from nodetracker.conf.opts import register_options_for_check
from nodetracker.errors import ConfigError


def find(tmp_path, text: str) -> list[str]:
    path = tmp_path / "nodetracker.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([f"--config-file={path}"])
    return [line.removeprefix(f"{path}: ") for line in find_unknown_options(conf)]


def test_options_of_the_api_s_libraries_are_known(tmp_path):
    assert find(tmp_path, "[oslo_policy]\npolicy_file = a\n") == []
    assert find(tmp_path, "[oslo_middleware]\nenable_proxy_headers_parsing = true\n") == []
    assert find(tmp_path, "[oslo_policy]\npolicy_fil = a\n") == [
        "unknown option [oslo_policy] policy_fil"
    ]


def test_options_of_keystone_s_middleware_and_its_credentials_are_known(tmp_path):
    pytest.importorskip("keystonemiddleware")
    known = "www_authenticate_uri = a\nauth_type = password\nauth_url = a\nusername = a\n"
    assert find(tmp_path, f"[keystone_authtoken]\n{known}") == []
    assert find(tmp_path, f"[keystone_authtoken]\n{known}usernam = a\n") == [
        "unknown option [keystone_authtoken] usernam"
    ]


def test_credentials_for_placement_are_checked_where_it_is_enabled(tmp_path):
    pytest.importorskip("keystoneauth1")
    inventory, path = tmp_path / "inventory.yaml", tmp_path / "nodetracker.conf"
    inventory.write_text("nodes: []\n")
    path.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path}\n[compute]\ncompute_driver = fake\n"
        f"[fake]\ninventory_file = {inventory}\n[placement]\nenabled = true\n"
        f"[database]\nconnection = sqlite:///{tmp_path}/nodetracker.sqlite\n"
    )
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([f"--config-file={path}"])
    command = CheckConfig(SimpleNamespace(conf=conf, build_option_parser=None), None)
    with pytest.raises(ConfigError, match=r"\[placement\] auth_type: is not set"):
        command.take_action(None)


def test_libraries_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "SAMPLE_NAMESPACES", ("nodetracker", "absent.library"))
    monkeypatch.setattr(manage.ManageApp, "conf", SimpleNamespace())
    assert manage.main(["config", "sample"]) == 0
    captured = capsys.readouterr()
    assert "[compute]" in captured.out
    assert captured.err == "absent.library is not installed; its options are left out\n"
