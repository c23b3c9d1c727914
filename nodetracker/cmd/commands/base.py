"""What the commands share: the application's store, and how times are written and read."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from cliff.columns import FormattableColumn

from nodetracker.bootstrap.settings import build_admission_policy
from nodetracker.errors import ConfigError, RefusedError, RpcError
from nodetracker.identifier import parse_uuid
from nodetracker.ports import AdmissionPolicy, AgentDirectory, OperatorStore, SchedulerStore

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Lines(FormattableColumn[Any]):
    """A value that is data for programs and lines for people.

    Args:
        lines: None = the items of the value.
    """

    def __init__(self, value: Any, lines: Iterable[str] | None = None) -> None:
        super().__init__(value)
        self._lines = list(value if lines is None else lines)

    def human_readable(self) -> str:
        """Return the lines."""
        return "\n".join(self._lines)


class StoreCommand:
    """Mixed into commands that ask the store."""

    app: Any  # a ManageApp; cliff declares it as its own base class

    def get_epilog(self) -> str:
        """Return nothing: cliff reads the metadata of all packages to name foreign commands."""
        return ""

    @property
    def store(self) -> OperatorStore:
        """The store of the application."""
        store: OperatorStore = self.app.store
        return store

    @property
    def scheduler_store(self) -> SchedulerStore:
        """The same store for requests that name no host."""
        store: SchedulerStore = self.app.store
        return store

    @property
    def policy(self) -> AdmissionPolicy:
        """What ledger transactions go by."""
        return build_admission_policy(self.app.conf)

    @property
    def agents(self) -> AgentDirectory:
        """The agents of all hosts.

        Raises:
            ConfigError: there is no ``transport_url``, by which they are asked.
        """
        agents: AgentDirectory = self.app.agents
        return agents

    @property
    def service_down_time(self) -> int:
        """Seconds of silence after which a service is down."""
        return int(self.app.conf.service_down_time)


def delete_queues(app: Any, host: str, binary: str) -> None:
    """Leave nothing of a service in the message broker that is gone from the database.

    What cannot be done is said: the rest is done already.
    """
    try:
        app.broker.delete_service_queues(host, binary)
    except (ConfigError, RpcError) as error:
        app.stderr.write(f"its queues stay in the message broker: {error}\n")


def render_time(moment: datetime | None) -> str | None:
    """Write a time with microseconds, in UTC; None stays None."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def parse_since(text: str, now: datetime) -> datetime:
    """Read a time: ISO 8601, or an age such as ``90m``, ``12h`` or ``7d``.

    A time without an offset is UTC.

    Raises:
        RefusedError: it is neither.
    """
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return now - timedelta(**{unit: int(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise RefusedError(
            f"--since: {text!r} is neither a time such as 2026-01-31T12:00 nor an age such as 12h"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def uuid_argument(text: str) -> str:
    """Return a uuid in its canonical form; other text stays, and names nothing."""
    try:
        return parse_uuid(text)
    except ValueError:
        return text


def columns_of(rows: list[dict[str, Any]], names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return rows as cliff wants them: the column names, and a tuple a row."""
    return names, [tuple(row[name] for name in names) for row in rows]
