"""Agents that a test answers for."""


class Agents:
    """Agents that carry out power actions, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.done: list[tuple[str, str]] = []
        self._error = error

    def agent_of(self, host):
        self._host = host
        return self

    def host_power_action(self, action):
        if self._error is not None:
            raise self._error
        self.done.append((self._host, action))
