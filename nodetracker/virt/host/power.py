"""Reboot and shut down this machine with systemctl, if the operator allows it."""

import logging
import subprocess
from collections.abc import Callable, Sequence

from nodetracker.model.errors import DriverFeatureError, HostDataError

LOG = logging.getLogger(__name__)

COMMANDS = {"reboot": ("systemctl", "reboot"), "shutdown": ("systemctl", "poweroff")}
COMMAND_SECONDS = 20.0

Run = Callable[[Sequence[str]], None]


def run_command(command: Sequence[str]) -> None:
    """Run a command and wait for it.

    Raises:
        HostDataError: the command could not be run, or failed; the reason is its output.
    """
    name = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603 - one of COMMANDS
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except OSError as error:
        raise HostDataError(name, error.strerror or type(error).__name__) from None
    except subprocess.TimeoutExpired:
        raise HostDataError(name, f"did not finish within {COMMAND_SECONDS:g} s") from None
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise HostDataError(name, output or f"exited with status {done.returncode}")


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
