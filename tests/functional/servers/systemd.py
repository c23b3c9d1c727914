"""The receiving end of sd_notify, in place of systemd."""

import socket
from pathlib import Path

from tests.programs import wait_until


class NotifySocket:
    """Collects what a program tells its service manager."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = str(directory / "notify")
        self._socket.bind(self.address)
        self._socket.setblocking(False)
        self._messages: list[str] = []

    @property
    def messages(self) -> list[str]:
        """Everything told so far, a message an item."""
        while True:
            try:
                self._messages.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return list(self._messages)

    def count(self, start: str) -> int:
        """How many messages begin so."""
        return sum(message.startswith(start) for message in self.messages)

    def wait_for(self, start: str, times: int = 1) -> None:
        """Wait until messages that begin so have come that often."""
        wait_until(lambda: self.count(start) >= times)

    def close(self) -> None:
        """Hear nothing any more."""
        self._socket.close()
