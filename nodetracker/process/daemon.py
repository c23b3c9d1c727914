"""What systemd and the shell learn of a process: notifications, exit codes, who started it."""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, MutableMapping

MICROSECONDS = 1_000_000

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78


class SystemdNotifier:
    """Notifies systemd of the process's state.

    It removes its variables from the environment, so that no child process
    notifies in its place.

    Args:
        environment: contains NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID
            when systemd started the process.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._last_status = ""
        microseconds = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.watchdog_seconds: float | None = None
        if microseconds.isdigit() and int(microseconds) and owner in ("", str(os.getpid())):
            self.watchdog_seconds = int(microseconds) / MICROSECONDS

    @property
    def is_enabled(self) -> bool:
        """True when systemd expects notifications."""
        return bool(self._address)

    def ready(self) -> None:
        """Notify that the service is ready, after its start or a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the service is stopping."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Request more time to start or to stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def status(self, text: str) -> None:
        """Send a one-line status, if it changed."""
        line = " ".join(text.split())
        if line != self._last_status:
            self._last_status = line
            self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError:
            pass  # systemd does not respond, and nothing else could be notified


def is_started_by_hand(environ: Mapping[str, str]) -> bool:
    """Return whether a person runs this process in a terminal, and wants it to end with that.

    ``nohup`` ignores SIGHUP; systemd names the process that it started.
    """
    return (
        sys.stdin.isatty()
        and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        and environ.get("SYSTEMD_EXEC_PID") != str(os.getpid())
    )
