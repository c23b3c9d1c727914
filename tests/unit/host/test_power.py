"""A machine is switched only where that is allowed, and by the system's own means."""

import pytest

from nodetracker.errors import DriverFeatureError, HostDataError
from nodetracker.host.power import PowerSwitch, run_command


@pytest.mark.parametrize(
    ("action", "command"),
    [("reboot", ("systemctl", "reboot")), ("shutdown", ("systemctl", "poweroff"))],
)
def test_an_action_is_the_systems_own_command(action, command):
    ran = []
    PowerSwitch(True, ran.append).act(action)
    assert ran == [command]


def test_nothing_is_done_where_it_is_not_allowed():
    ran = []
    with pytest.raises(DriverFeatureError, match="allow_power_actions is false"):
        PowerSwitch(False, ran.append).act("reboot")
    assert ran == []


@pytest.mark.parametrize("action", ["startup", "rm -rf"])
def test_what_a_machine_cannot_do_to_itself_is_refused(action):
    with pytest.raises(DriverFeatureError, match=f"cannot {action} itself"):
        PowerSwitch(True, pytest.fail).act(action)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "echo no bus >&2; exit 1"], "no bus"),
        (["sh", "-c", "exit 3"], "ended with 3"),
        (["/does/not/exist"], "No such file or directory"),
    ],
    ids=str,
)
def test_a_command_that_fails_says_why(command, said):
    with pytest.raises(HostDataError, match=said):
        run_command(command)
    run_command(["true"])
