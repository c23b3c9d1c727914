"""Reboot and shut down this machine with systemctl, if the operator allows it."""

import logging
from collections.abc import Callable, Sequence

from nodetracker.model.errors import DriverFeatureError
from nodetracker.virt.host.command import run_command

LOG = logging.getLogger(__name__)

COMMANDS = {"reboot": ("systemctl", "reboot"), "shutdown": ("systemctl", "poweroff")}
Run = Callable[[Sequence[str]], object]


class PowerSwitch:
    """Reboots and shuts down this machine.

    Args:
        run: runs a command; raises HostDataError on failure.
    """

    def __init__(self, is_allowed: bool = False, run: Run = run_command) -> None:
        self.is_allowed = is_allowed
        self._run = run

    def act(self, action: str) -> None:
        """Perform ``reboot`` or ``shutdown``.

        Raises:
            DriverFeatureError: the action is not allowed or not supported.
        """
        command = COMMANDS.get(action)
        if command is None:
            raise DriverFeatureError(f"a host cannot perform {action} on itself")
        if not self.is_allowed:
            raise DriverFeatureError(
                f"{action} is not allowed on this host: [compute] allow_power_actions is false"
            )
        LOG.warning("Host %s requested; running: %s", action, " ".join(command))
        self._run(command)
