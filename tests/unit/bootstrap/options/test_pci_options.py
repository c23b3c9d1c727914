import pytest
from oslo_config import cfg

from nodetracker.bootstrap.options.opts import register_options_for_check
from nodetracker.bootstrap.settings import read_settings
from nodetracker.model.errors import ConfigError
from nodetracker.model.pci import AddressSpec
from nodetracker.model.settings import PciPolicy

SPEC = r'{"vendor_id": "8086", "address": {"domain": "1000$", "bus": "8[0-9]"}, "trusted": true}'


def read_pci(tmp_path, *lines):
    path = tmp_path / "nodetracker.conf"
    path.write_text("\n".join(["[DEFAULT]", "my_ip = 192.0.2.1", "[pci]", *lines]))
    conf = cfg.ConfigOpts()
    register_options_for_check(conf)
    conf([], default_config_files=[str(path)])
    return read_settings(conf).policy.pci


def test_without_options_no_device_is_managed(tmp_path):
    assert read_pci(tmp_path) == PciPolicy()


def test_options_become_typed_values(tmp_path):
    policy = read_pci(
        tmp_path,
        f"device_spec = {SPEC}",
        'device_spec = [{"devname": "eth0"}, {"one_time_use": "yes"}]',
        'alias = {"name": "nic", "vendor_id": "8086", "product_id": "10ed"}',
        "report_in_placement = true",
    )
    assert [spec.devname for spec in policy.specs] == [None, "eth0", None]
    assert isinstance(policy.specs[0].address, AddressSpec)
    assert policy.specs[0].address.domain.pattern == "1000$"
    assert policy.specs[0].tags == {"trusted": "true"}
    assert list(policy.aliases) == ["nic"]
    assert policy.report_in_placement


@pytest.mark.parametrize("option", ["device_spec", "alias"])
def test_a_malformed_entry_is_refused(tmp_path, option):
    with pytest.raises(ConfigError, match=rf"\[pci\] {option}: 7: is n"):
        read_pci(tmp_path, f"{option} = 7")
