"""The whole store, and the parts of it that an agent uses together."""

from typing import Protocol

from nodetracker.ports.agent_store import AgentStore
from nodetracker.ports.fleet import FleetReader
from nodetracker.ports.ledger_store import LedgerStore
from nodetracker.ports.operator_store import OperatorStore
from nodetracker.ports.removal_store import RemovalStore
from nodetracker.ports.scheduler_store import SchedulerStore


class WatchStore(AgentStore, FleetReader, Protocol):
    """The services row and warnings of one process, and lists of whole fleets."""


class HostStore(WatchStore, LedgerStore, RemovalStore, Protocol):
    """An agent's own rows, the ledger for claims on its host, and its deleted nodes' providers."""


class Store(HostStore, SchedulerStore, OperatorStore, Protocol):
    """All of the store; conductors serve it to processes without a database."""
