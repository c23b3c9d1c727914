"""The receiving end of sd_notify, in place of systemd."""

import socket
from pathlib import Path

from tests.programs import wait_until


class NotifySocket:
    """Collects the messages of a program to its service manager."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = str(directory / "notify")
        self._socket.bind(self.address)
        self._socket.setblocking(False)
        self._messages: list[str] = []

    @property
    def messages(self) -> list[str]:
        """All messages so far."""
        while True:
            try:
                self._messages.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return list(self._messages)

    def count(self, start: str) -> int:
        """Return the number of messages with this prefix."""
        return sum(message.startswith(start) for message in self.messages)

    def wait_for(self, start: str, times: int = 1) -> None:
        """Wait until this number of messages with the prefix has arrived."""
        wait_until(lambda: self.count(start) >= times)

    def close(self) -> None:
        """Stop receiving."""
        self._socket.close()
