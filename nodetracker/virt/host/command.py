"""Run another program of this machine and return what it prints."""

import subprocess
from collections.abc import Sequence

from nodetracker.model.errors import HostDataError

COMMAND_SECONDS = 20.0


def run_command(command: Sequence[str]) -> str:
    """Run a program, without a shell, and return its standard output.

    Raises:
        HostDataError: it could not be run, did not end within `COMMAND_SECONDS`, or failed;
            the reason is its output.
    """
    name = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603 - no part of it is from outside the configuration
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
    return done.stdout
