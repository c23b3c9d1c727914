"""Measure the costs of a claim and its abort on a node with guests: statements and speed."""

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import Claim
from nodetracker.ports import AdmissionPolicy
from tests.bench.audits import BenchHost, Statements
from tests.statements import count_statements

PAIRS = 200
"""Pairs that are timed, after a tenth as many that warm up."""

ADMISSION_POLICY = AdmissionPolicy(service_down_time=3600, claim_timeout=600)


@dataclass(frozen=True, slots=True)
class ClaimCosts:
    """The statements that a plain claim and its abort send, and how many pairs a second run.

    Attributes:
        pairs_per_second: by one client, one after another; for information.
    """

    guests_per_node: int
    claim: Statements
    abort: Statements
    pairs_per_second: float

    def as_row(self) -> dict[str, int | float]:
        """Return the figures by name, statements as their number."""
        return {
            name: len(value) if isinstance(value, tuple) else round(value, 1)
            for name in self.__slots__
            for value in (getattr(self, name),)
        }


def measure_claims(store: SqlStore, directory: Path, guests: int) -> ClaimCosts:
    """Claim and abort on a new host's one node with that many guests.

    Args:
        store: with its schema; other hosts' rows in it do not matter.
        directory: gets the file with the node.
    """
    host = BenchHost(store, directory, 1, 0)
    # Large enough for the guests and one more claim.
    host.nodes[0] |= {"vcpus": 4096, "memory_mb": 2**20, "disk_gb": 2**20}
    host.add_guests(host.nodes, guests)
    host.audit()
    host.report_state()
    name = host.agent.host
    with count_statements(store) as claimed:
        claim = _claim(store, name)
    with count_statements(store) as aborted:
        store.abort_claim(claim.uuid)
    _time_pairs(store, name, PAIRS // 10)
    seconds = _time_pairs(store, name, PAIRS)
    return ClaimCosts(guests, tuple(claimed.statements), tuple(aborted.statements), PAIRS / seconds)


def _claim(store: SqlStore, host: str) -> Claim:
    request = parse_claim_request(
        {
            "workload": {"uuid": str(uuid.uuid4())},
            "resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1},
        }
    )
    return store.create_claim(request, host, "node-0", ADMISSION_POLICY)


def _time_pairs(store: SqlStore, host: str, pairs: int) -> float:
    """Return the seconds that this number of pairs takes."""
    started_at = time.perf_counter()
    for _ in range(pairs):
        store.abort_claim(_claim(store, host).uuid)
    return time.perf_counter() - started_at
