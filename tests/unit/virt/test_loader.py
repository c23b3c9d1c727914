import pytest

from nodetracker.errors import ConfigError
from nodetracker.virt.loader import list_driver_names, load_plugin


def test_the_drivers_of_the_package_are_found():
    assert {"fake", "local"} <= set(list_driver_names())


@pytest.mark.parametrize("name", ["fake", "local"])
def test_a_plugin_has_a_group_and_options(name):
    plugin = load_plugin(name)
    assert plugin.group == name


def test_a_driver_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ConfigError, match=r"no driver 'xen'; known: .*fake.*local"):
        load_plugin("xen")
