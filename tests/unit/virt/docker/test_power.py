"""Power actions on a container host, if they are allowed."""

from pathlib import Path

import pytest

from nodetracker.model.errors import DriverFeatureError
from nodetracker.ports import DriverCapability
from nodetracker.virt.docker.plugin import PLUGIN
from nodetracker.virt.host.power import PowerSwitch
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.contract.drivers.docker import default_values


class Switch(PowerSwitch):
    def __init__(self) -> None:
        super().__init__(True)
        self.actions: list[str] = []

    def act(self, action: str) -> None:
        self.actions.append(action)


def build(directory: Path, switch: PowerSwitch):
    environment = DriverEnvironment("host-1", str(directory), Roots(), ProbeRunner(1), power=switch)
    return PLUGIN.build(environment, default_values(base_url=[f"unix://{directory}/none.sock"]))


def test_power_actions_run_if_allowed(tmp_path):
    switch = Switch()
    driver = build(tmp_path, switch)
    assert DriverCapability.POWER_ACTIONS in driver.capabilities
    driver.host_power_action("reboot")
    assert switch.actions == ["reboot"]
    driver.close()


def test_power_actions_are_rejected_unless_allowed(tmp_path):
    driver = build(tmp_path, PowerSwitch())
    assert DriverCapability.POWER_ACTIONS not in driver.capabilities
    with pytest.raises(DriverFeatureError, match="allow_power_actions"):
        driver.host_power_action("reboot")
    driver.close()
