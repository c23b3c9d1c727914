"""The ports: what the agent's core needs of drivers, of the database and of other processes.

Each has a contract suite below ``tests/contract`` that every implementation
passes, and a fake that ships in the package (``virt/fake``, ``db/memory``).
Value types that only ports exchange are exported with them.
"""

from nodetracker.model.change import ApplyResult
from nodetracker.model.service import AgentKey
from nodetracker.model.settings import AdmissionPolicy, CandidatePolicy
from nodetracker.ports.agent import (
    AgentDirectory,
    AuditAgent,
    AuditObserver,
    CallServer,
    HostAgent,
    LedgerListener,
    Notifier,
)
from nodetracker.ports.agent_store import AgentStore
from nodetracker.ports.driver import POWER_ACTIONS, Driver, DriverCapability
from nodetracker.ports.fleet import FleetReader
from nodetracker.ports.fleet_store import FleetStore
from nodetracker.ports.ledger_store import LedgerStore
from nodetracker.ports.monitor import Monitor
from nodetracker.ports.operator_store import OperatorStore, ReadingStore
from nodetracker.ports.removal_store import RemovalStore
from nodetracker.ports.scheduler_store import SchedulerStore
from nodetracker.ports.store import HostStore, Store, WatchStore

__all__ = [
    "POWER_ACTIONS",
    "AdmissionPolicy",
    "AgentDirectory",
    "AgentKey",
    "AgentStore",
    "ApplyResult",
    "AuditAgent",
    "AuditObserver",
    "CallServer",
    "CandidatePolicy",
    "Driver",
    "DriverCapability",
    "FleetReader",
    "FleetStore",
    "HostAgent",
    "HostStore",
    "LedgerListener",
    "LedgerStore",
    "Monitor",
    "Notifier",
    "OperatorStore",
    "ReadingStore",
    "RemovalStore",
    "SchedulerStore",
    "Store",
    "WatchStore",
]
