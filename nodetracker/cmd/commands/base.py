"""Base classes and functions of the commands: access to the store, times, rows."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from nodetracker.bootstrap.settings import build_admission_policy, build_scheduler_settings
from nodetracker.errors import ConfigError, NotFoundError, RefusedError, RpcError
from nodetracker.identifier import parse_uuid
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.ports import (
    AdmissionPolicy,
    AgentDirectory,
    FleetStore,
    OperatorStore,
    SchedulerStore,
)

if TYPE_CHECKING:  # imported late: few commands need it
    from nodetracker.scheduler.scheduler import Scheduler

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
    """Mixin of commands that use the store."""

    app: Any  # a ManageApp; cliff declares it as its own base class

    def get_epilog(self) -> str:
        """Return "": cliff's own epilog reads the metadata of all installed packages."""
        return ""

    @property
    def store(self) -> OperatorStore:
        """The store of the application."""
        store: OperatorStore = self.app.store
        return store

    @property
    def scheduler(self) -> "Scheduler":
        """The scheduler of requests that name no host."""
        from nodetracker.scheduler.scheduler import Scheduler

        store: SchedulerStore = self.app.store
        settings = build_scheduler_settings(self.app.conf)
        return Scheduler(store, self.policy, settings)

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of ledger transactions."""
        return build_admission_policy(self.app.conf)

    @property
    def agents(self) -> AgentDirectory:
        """The agents of all hosts.

        Raises:
            ConfigError: ``transport_url`` is not set.
        """
        agents: AgentDirectory = self.app.agents
        return agents

    @property
    def service_down_time(self) -> int:
        """Seconds without a heartbeat after which a service is down."""
        return int(self.app.conf.service_down_time)


def find_compute_service(store: FleetStore, host: str) -> ServiceRecord:
    """Return the services row of a host's agent.

    Raises:
        NotFoundError: the host has none.
    """
    found = store.list_services(host, COMPUTE_BINARY)
    if not found:
        raise NotFoundError(f"no such host: {host}")
    return found[0]


def delete_queues(app: Any, host: str, binary: str) -> None:
    """Delete the message broker's queues of a service that was deleted from the database.

    A failure is printed and not raised, because the service is deleted already.
    """
    try:
        app.broker.delete_service_queues(host, binary)
    except (ConfigError, RpcError) as error:
        app.stderr.write(f"its queues are left in the message broker: {error}\n")


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a time: ISO 8601, or an age such as ``90m``, ``12h`` or ``7d``.

    A time without an offset is UTC.

    Raises:
        RefusedError: the text is neither.
    """
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return now - timedelta(**{unit: int(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise RefusedError(
            f"--since: invalid value {text!r}: expected a time such as 2026-01-31T12:00 "
            "or an age such as 12h"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def uuid_argument(text: str) -> str:
    """Return a uuid in canonical form; other text unchanged, as nothing has it as uuid."""
    try:
        return parse_uuid(text)
    except ValueError:
        return text


def columns_of(rows: list[dict[str, Any]], names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return rows in cliff's format: the column names, and a tuple per row."""
    return names, [tuple(row[name] for name in names) for row in rows]
