"""Messages to the service manager, as sd_notify(3) defines them; silent without one."""

import os
import socket
import time
from collections.abc import MutableMapping

MICROSECONDS = 1_000_000


class SystemdNotifier:
    """Tells systemd what the process does.

    Takes its addresses out of the environment, so that no child talks in its place.

    Args:
        environment: with NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID where
            systemd started the process.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._told_status = ""
        microseconds = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.watchdog_seconds: float | None = None
        if microseconds.isdigit() and int(microseconds) and owner in ("", str(os.getpid())):
            self.watchdog_seconds = int(microseconds) / MICROSECONDS

    @property
    def is_listening(self) -> bool:
        """True when there is somebody to tell."""
        return bool(self._address)

    def ready(self) -> None:
        """Tell that the service is at work, at its start or after a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Tell that the configuration is being read again."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the service ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for more time to start or to stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def status(self, text: str) -> None:
        """Tell in a line how the service does, when that is news."""
        line = " ".join(text.split())
        if line != self._told_status:
            self._told_status = line
            self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError:
            pass  # who supervises is not there, and nobody else could be told
