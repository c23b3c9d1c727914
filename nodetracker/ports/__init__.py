"""The ports: what the agent's core asks of drivers and of the database.

Each has a contract suite below ``tests/contract`` that every implementation
passes, and a fake that ships in the package (``virt/fake``, ``db/memory``).
"""

from nodetracker.ports.agent import AgentDirectory, AuditObserver, CallServer, HostAgent, Notifier
from nodetracker.ports.driver import POWER_ACTIONS, Driver, DriverCapability
from nodetracker.ports.store import AgentKey, ApplyResult, Store
from nodetracker.settings import AdmissionPolicy

__all__ = [
    "POWER_ACTIONS",
    "AdmissionPolicy",
    "AgentDirectory",
    "AgentKey",
    "ApplyResult",
    "AuditObserver",
    "CallServer",
    "Driver",
    "DriverCapability",
    "HostAgent",
    "Notifier",
    "Store",
]
