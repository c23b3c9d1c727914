"""A node whose usage a test changes."""

from nodetracker.accounting.usage import charge_of_ledger, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimState, Workload
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NodeValues
from tests import builders
from tests.builders import make_guest, make_record

RESERVED = {"vcpus": 1, "memory_mb": 512, "disk_mb": 1024}
FPGA = {"CUSTOM_FPGA": {"total": 4, "reserved": 1, "allocation_ratio": 1.0}}
WEB = make_guest(1, name="web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240)


def make_claim(number=1, state=ClaimState.HELD, kind=WorkloadKind.INSTANCE, **amounts):
    workload = Workload(make_guest(number).uuid, kind)
    changes = {"workload": workload, "state": state, "amounts": Amounts(**amounts)}
    return builders.make_claim(f"claim-{number}-{state}", **changes)


def make_node(claims=(), guests=(), **shown):
    guests = {guest.uuid: guest for guest in guests}
    total = charge_of_ledger(claims, guests, 100)
    columns = usage_columns(total, RESERVED, 8192, 100) | shown
    values = NodeValues(reserved=RESERVED, overhead={"memory_mb": 100}, inventory=FPGA, **columns)
    return make_record(
        values,
        claims={claim.uuid: claim for claim in claims},
        guests=guests,
    )
