"""Claims and moves of one workload between two hosts."""

from typing import Any

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import Claim, Migration
from nodetracker.ports import Store
from tests.builders import ADMISSION_POLICY, make_guest

GUEST = make_guest("web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240)
WORKLOAD = GUEST.uuid


def ask(workload: str | dict[str, Any] = WORKLOAD, **more: Any) -> Any:
    resources = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10} | more.pop("resources", {})
    known = {"uuid": workload} if isinstance(workload, str) else {"uuid": WORKLOAD, **workload}
    return parse_claim_request({"workload": known, "resources": resources} | more)


def ask_move(source: Claim, kind: str = "migration", **more: Any) -> Any:
    migration = {"type": kind, "source_claim": source.uuid}
    return ask(more.pop("workload", source.workload.uuid), migration=migration, **more)


def move(store: Store, request: Any, host: str = "beta") -> Migration:
    return store.create_migration(request, host, "node-1", ADMISSION_POLICY)


def find(store: Store, claim_uuid: str) -> Claim:
    (found,) = store.list_claims(uuid=claim_uuid)
    return found
