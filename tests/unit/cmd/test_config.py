"""nodetracker-manage config: names and values of options, and optional libraries."""

import io
import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from oslo_config import cfg

from nodetracker.bootstrap.config_files import find_exposures, find_ignored, find_problems
from nodetracker.bootstrap.options.opts import register_options_for_check
from nodetracker.bootstrap.settings import build_settings
from nodetracker.bootstrap.values import check_values
from nodetracker.cmd import manage
from nodetracker.cmd.commands import config
from nodetracker.cmd.commands.config import CheckConfig, find_enabled
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import reload_configuration
from nodetracker.model.errors import ConfigError

needs_messaging = pytest.mark.skipif(
    find_spec("oslo_messaging") is None, reason="needs the extra messaging"
)
SAMPLE = Path(__file__).parents[3] / "etc" / "nodetracker" / "nodetracker.conf.sample"


def find(
    tmp_path: Path,
    text: str,
    search: Callable[[cfg.ConfigOpts], Iterable[str]] = find_problems,
) -> list[str]:
    path = tmp_path / "nodetracker.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([f"--config-file={path}"])
    return [line.removeprefix(f"{path}: ") for line in search(conf)]


@needs_messaging
@pytest.mark.parametrize("search", [find_problems, find_ignored])
def test_every_option_of_the_sample_is_known(tmp_path, search):
    pytest.importorskip("keystonemiddleware")
    options = re.sub("^#([a-z_]+ = )", r"\1", SAMPLE.read_text(), flags=re.MULTILINE)
    found = find(tmp_path, options.replace("<None>", ""), search)
    assert [line for line in found if "unknown" in line] == []


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


@needs_messaging
@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("ssl = maybe", ["[oslo_messaging_rabbit] ssl: 'maybe' is neither true nor false"]),
        ("ssl = true\nheartbeat_rate = 3", []),
        ("ssl_ca_file = $nothing", []),
        ("kombu_reconnect_timeout = 5", []),
        ("kombu-reconnect-timeout = x",
         ["[oslo_messaging_rabbit] kombu_reconnect_timeout: 'x' is not a whole number"]),
    ],
)  # fmt: skip
def test_values_of_libraries_are_checked_also_under_their_older_names(tmp_path, text, problems):
    assert find(tmp_path, f"[oslo_messaging_rabbit]\n{text}\n") == problems


@needs_messaging
@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("[compute]\nreserved-host-memory = 1\nprobe-timeout = 5\n",
         ["unknown option [compute] reserved_host_memory is ignored"]),
        ("[DEFAULT]\nreserved_host_memory_mb = 1\nhost = a\ndebug = true\n",
         ["unknown option [DEFAULT] reserved_host_memory_mb is ignored"]),
        ("[DEFAULT]\nrpc_response_timeout = 9\ncontrol_exchange = a\n", []),
        ("[placement]\nusername = a\nauth_url = b\n", []),
        ("[placement]\nusernam = a\n", ["unknown option [placement] usernam is ignored"]),
        ("[oslo_concurrency]\nlock_path = a\n[keystone_authtoken]\na = b\n", []),
    ],
    ids=["own", "of another group", "messaging", "keystone", "placement", "groups of others"],
)  # fmt: skip
def test_unknown_options_of_own_groups_are_ignored_and_named(tmp_path, text, ignored):
    pytest.importorskip("keystoneauth1")
    assert find(tmp_path, text, find_ignored) == ignored


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
    errors = io.StringIO()
    app = SimpleNamespace(
        read_configuration=lambda program: conf, stderr=errors, build_option_parser=None
    )
    command = CheckConfig(app, None)
    assert command.take_action(SimpleNamespace(program="nodetracker-compute")) == 78
    assert errors.getvalue() == "[placement] auth_type: is not set\n"


def test_programs_are_found_whose_units_are_enabled(tmp_path):
    assert find_enabled(tmp_path / "none") == []
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    for name in ("nodetracker-conductor", "nodetracker-api", "nodetracker-standalone", "other"):
        (wants / f"{name}.service").symlink_to(f"/lib/systemd/system/{name}.service")
    (tmp_path / "nodetracker-compute.service.d").mkdir()
    assert find_enabled(tmp_path) == ["nodetracker-api", "nodetracker-conductor"]


def make_conf(tmp_path, text):
    path = tmp_path / "nodetracker.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([f"--config-file={path}"])
    return conf, path


@pytest.mark.parametrize(
    "text", ["", "[compute]\ninstances_path = $state_path/disks\n"], ids=["default", "value"]
)
def test_the_option_that_is_wrong_is_named_and_not_those_that_refer_to_it(tmp_path, text):
    conf, path = make_conf(tmp_path, f"[DEFAULT]\nstate_path = state\n{text}")
    with pytest.raises(ConfigError) as raised:
        check_values(conf)
    problem = f"[DEFAULT] state_path: 'state' is not an absolute path ({path})"
    assert raised.value.problems == (problem,)


def test_a_value_of_the_environment_is_named_with_its_variable(tmp_path, monkeypatch):
    conf, _ = make_conf(tmp_path, "[compute]\nprobe_timeout = 5\n")
    monkeypatch.setenv("OS_COMPUTE__PROBE_TIMEOUT", "x")
    with pytest.raises(ConfigError) as raised:
        check_values(conf)
    assert raised.value.problems == (
        "[compute] probe_timeout: 'x' is not a whole number (OS_COMPUTE__PROBE_TIMEOUT)",
    )


@pytest.mark.parametrize("name", ["report_interval", "service_down_time"])
def test_a_number_without_a_digit_is_invalid_where_the_option_has_a_default(tmp_path, name):
    conf, path = make_conf(tmp_path, f"[DEFAULT]\n{name} =\n[compute]\ncpu_allocation_ratio =\n")
    with pytest.raises(ConfigError) as raised:
        build_settings(conf)
    assert f"[DEFAULT] {name}: '' is not a whole number ({path})" in raised.value.problems
    assert "cpu_allocation_ratio" not in str(raised.value)


def test_a_credential_of_the_program_is_read_after_the_usual_files(tmp_path, monkeypatch):
    usual, credentials = tmp_path / ".nodetracker", tmp_path / "credentials"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    for directory in (usual, credentials):
        directory.mkdir()
    (usual / "p.conf").write_text("[DEFAULT]\nreport_interval = 5\n[compute]\nprobe_timeout = 7\n")
    (credentials / "other.conf").write_text("[DEFAULT]\nreport_interval = 6\n")

    def load():
        conf = cfg.ConfigOpts()
        load_configuration(conf, [], "p")
        return conf.report_interval, conf.compute.probe_timeout

    assert load() == (5, 7)
    (credentials / "p.conf").write_text("[DEFAULT]\nreport_interval = 8\n")
    assert load() == (8, 7)


def test_a_reload_reads_nothing_else_again_if_the_log_configuration_is_invalid(tmp_path):
    path = tmp_path / "nodetracker.conf"
    path.write_text(f"[DEFAULT]\nlog_config_append = {tmp_path}/none\n")
    done = []
    with pytest.raises(ConfigError, match="log_config_append"):
        reload_configuration(
            cfg.ConfigOpts(),
            lambda conf, register: load_configuration(conf, [], "p", [path], register),
            lambda conf: None,
            [lambda: done.append("certificate")],
        )
    assert done == []


@pytest.mark.parametrize(
    ("text", "mode", "warned"),
    [
        (
            "[database]\nconnection = mysql+pymysql://nt:s3cret@db/nt\n",
            0o644,
            "database] connection",
        ),
        ("[database]\nconnection = mysql+pymysql://nt:s3cret@db/nt\n", 0o640, None),
        ("[database]\nconnection = sqlite:////x\n", 0o644, None),
        ("transport_url = rabbit://nt:s3cret@mq:5672/\n", 0o604, "DEFAULT] transport_url"),
        ("[keystone_authtoken]\npassword = s3cret\n", 0o644, "keystone_authtoken] password"),
        ("[conductor]\njoin_token = s3cret\n", 0o644, "conductor] join_token"),
        ("[conductor]\njoin_token_file = /x\n", 0o644, None),
    ],
)
def test_a_file_with_a_password_that_everybody_may_read_is_a_warning(tmp_path, text, mode, warned):
    path = tmp_path / "nodetracker.conf"
    path.touch()
    path.chmod(mode)
    text = text if text.startswith("[") else f"[DEFAULT]\n{text}"
    line = f"has a password ([{warned}), and all users may read it; use mode 0640"
    assert find(tmp_path, text, find_exposures) == ([line] if warned else [])


@pytest.mark.parametrize(
    ("mode", "strategy", "is_warned"),
    [(0o666, "http_basic", True), (0o664, "http_basic", False), (0o666, "keystone", False)],
)
def test_a_user_file_that_everybody_may_write_is_a_warning(tmp_path, mode, strategy, is_warned):
    users = tmp_path / "htpasswd"
    users.touch()
    users.chmod(mode)
    text = f"[api]\nauth_strategy = {strategy}\nhttp_basic_auth_user_file = {users}\n"
    line = f"{users}: all users may write it, and so administer; use mode 0640"
    assert find(tmp_path, text, find_exposures) == ([line] if is_warned else [])


def test_libraries_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "SAMPLE_NAMESPACES", ("nodetracker", "absent.library"))
    monkeypatch.setattr(manage.ManageApp, "conf", SimpleNamespace())
    assert manage.main(["config", "sample"]) == 0
    captured = capsys.readouterr()
    assert "[compute]" in captured.out
    assert captured.err == "absent.library is not installed; its options are left out\n"
