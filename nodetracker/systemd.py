"""Notify systemd of the service's state, as sd_notify(3) defines; a no-op without systemd."""

import os
import socket
import time
from collections.abc import MutableMapping

MICROSECONDS = 1_000_000


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
