import pytest

from nodetracker.bootstrap.options import plugins
from nodetracker.bootstrap.options.plugins import DRIVERS, list_plugins
from nodetracker.model.errors import ConfigError

ENTRY_POINTS = """[nodetracker.virt_drivers]
broken = broken_driver:PLUGIN
odd = os:path
"""


@pytest.fixture
def broken_drivers(tmp_path, monkeypatch):
    """Install a driver that cannot be imported and one that is not a plugin."""
    package = tmp_path / "broken-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "broken_driver.py").write_text("PLUGIN = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._read_entry_points.cache_clear()
    yield
    plugins._read_entry_points.cache_clear()


def test_installed_drivers_are_listed():
    assert {"fake", "local"} <= set(DRIVERS.list_names())


@pytest.mark.parametrize("name", ["fake", "local"])
def test_a_plugin_has_a_group_and_options(name):
    plugin = DRIVERS.load(name)
    assert plugin.group == name


def test_an_unknown_driver_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown driver 'xen'; known: .*fake.*local"):
        DRIVERS.load("xen")


@pytest.mark.usefixtures("broken_drivers")
def test_a_driver_that_cannot_be_loaded_is_an_error_for_those_who_use_it_only():
    with pytest.raises(ConfigError, match="'broken' cannot be loaded: ZeroDivisionError"):
        DRIVERS.load("broken")
    with pytest.raises(ConfigError, match="os:path is not a DriverPlugin"):
        DRIVERS.load("odd")
    assert {"broken", "odd", "local"} <= set(DRIVERS.list_names())
    groups = {plugin.group for plugin in list_plugins()}
    assert {"fake", "local"} <= groups
    assert groups.isdisjoint({"broken", "odd"})
