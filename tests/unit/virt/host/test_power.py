"""Test that a machine reboots and shuts down with systemctl, only where allowed."""

import pytest

from nodetracker.model.errors import DriverFeatureError, HostDataError
from nodetracker.virt.host.command import run_command
from nodetracker.virt.host.power import PowerSwitch


@pytest.mark.parametrize(
    ("action", "command"),
    [("reboot", ("systemctl", "reboot")), ("shutdown", ("systemctl", "poweroff"))],
)
def test_an_action_runs_systemctl(action, command):
    ran = []
    PowerSwitch(True, ran.append).act(action)
    assert ran == [command]


def test_no_command_runs_where_actions_are_not_allowed():
    ran = []
    with pytest.raises(DriverFeatureError, match="allow_power_actions is false"):
        PowerSwitch(False, ran.append).act("reboot")
    assert ran == []


@pytest.mark.parametrize("action", ["startup", "rm -rf"])
def test_an_unsupported_action_is_refused(action):
    with pytest.raises(DriverFeatureError, match=f"cannot perform {action} on itself"):
        PowerSwitch(True, pytest.fail).act(action)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["sh", "-c", "echo no bus >&2; exit 1"], "no bus"),
        (["sh", "-c", "exit 3"], "exited with status 3"),
        (["/does/not/exist"], "No such file or directory"),
    ],
    ids=str,
)
def test_a_failed_command_raises_its_output(command, output):
    with pytest.raises(HostDataError, match=output):
        run_command(command)
    assert run_command(["echo", "done"]) == "done\n"
