import pytest

from nodetracker.errors import ConfigError
from nodetracker.virt.loader import list_driver_names, load_plugin


def test_installed_drivers_are_listed():
    assert {"fake", "local"} <= set(list_driver_names())


@pytest.mark.parametrize("name", ["fake", "local"])
def test_a_plugin_has_a_group_and_options(name):
    plugin = load_plugin(name)
    assert plugin.group == name


def test_an_unknown_driver_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown driver 'xen'; known: .*fake.*local"):
        load_plugin("xen")
