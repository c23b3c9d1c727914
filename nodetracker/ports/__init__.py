"""The ports: what the agent's core needs of drivers, of the database and of other processes.

Each has a contract suite below ``tests/contract`` that every implementation passes; the
driver's fake ships in the package (``virt/fake``), and tests have a store of their own.
Value types that only ports exchange are exported with them.
"""

from nodetracker.model.change import ApplyResult
from nodetracker.model.service import AgentKey
from nodetracker.model.settings import AdmissionPolicy, CandidatePolicy
from nodetracker.ports.agent import (
    AgentDirectory,
    AuditObserver,
    CalledHost,
    CallServer,
    HostAgent,
    Notifier,
    StoreObserver,
    WakeableAgent,
)
from nodetracker.ports.driver import (
    POWER_ACTIONS,
    Driver,
    DriverCapability,
    Monitor,
    StartReader,
)
from nodetracker.ports.fleet import FleetReader, FleetStore, ReadingStore
from nodetracker.ports.ledger import LedgerStore, SchedulerStore
from nodetracker.ports.store import (
    AgentStore,
    CallStore,
    CredentialStore,
    HostStore,
    OperatorStore,
    RemovalStore,
    Store,
    ToleranceStore,
    WatchStore,
)

__all__ = [
    "POWER_ACTIONS",
    "AdmissionPolicy",
    "AgentDirectory",
    "AgentKey",
    "AgentStore",
    "ApplyResult",
    "AuditObserver",
    "CallServer",
    "CallStore",
    "CalledHost",
    "CandidatePolicy",
    "CredentialStore",
    "Driver",
    "DriverCapability",
    "FleetReader",
    "FleetStore",
    "HostAgent",
    "HostStore",
    "LedgerStore",
    "Monitor",
    "Notifier",
    "OperatorStore",
    "ReadingStore",
    "RemovalStore",
    "SchedulerStore",
    "StartReader",
    "Store",
    "StoreObserver",
    "ToleranceStore",
    "WakeableAgent",
    "WatchStore",
]
