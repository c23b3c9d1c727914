"""Claims added to a node and removed again in any order leave what its contents add up to."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from nodetracker.accounting.ledger.node_claims import add_claim, remove_claim
from nodetracker.model.amounts import Amounts
from nodetracker.model.guest import GuestPins
from nodetracker.model.numa import CellAssignment
from tests.builders import NOW, make_record
from tests.oracle import expected_usage
from tests.unit.accounting.ledger.fakes import BASE, GUEST, make_claim, make_node

amounts = st.builds(
    Amounts,
    vcpu_milli=st.sampled_from([0, 1000, 2000, 2500]),
    pcpus=st.integers(0, 2),
    memory_mb=st.sampled_from([0, 511, 512, 1024]),
    disk_mb=st.sampled_from([0, 10239, 10240, 20480]),
)
guests = st.builds(
    lambda cpus, pinned, memory_mb, disk_mb, missing: dataclasses.replace(
        GUEST,
        vcpu_milli=1000 * max(cpus, pinned),
        memory_mb=memory_mb,
        disk_mb=disk_mb,
        pins=GuestPins((CellAssignment(0, 0, 0, pins={cpu: cpu + 4 for cpu in range(pinned)}),)),
        missing_since=missing,
    ),
    cpus=st.integers(0, 5),
    pinned=st.integers(0, 3),
    memory_mb=st.sampled_from([0, 512, 1025]),
    disk_mb=st.sampled_from([0, 10240, 10241]),
    missing=st.sampled_from([None, None, NOW]),
)


@given(steps=st.lists(amounts | st.integers(0, 9), max_size=6), guest=st.none() | guests)
def test_a_row_shows_what_its_workloads_take_after_every_step(steps, guest):
    claims = []
    node = make_node(guest=guest)
    for number, step in enumerate(steps):
        if isinstance(step, Amounts):
            claims.append(make_claim(f"claim-{number}", amounts=step))
            node = add_claim(node, claims[-1])
        elif claims:
            removed = claims.pop(step % len(claims))
            node = remove_claim(node, removed, claims)
        found = {} if node.guest is None else {node.guest.uuid: node.guest}
        expected = expected_usage(make_record(BASE, guests=found), claims)
        assert {name: getattr(node.values, name) for name in SHOWN} == {
            name: expected[name] for name in SHOWN
        }


SHOWN = ("vcpus_used", "pcpus_used", "memory_mb_used", "local_gb_used", "cpu_used", "disk_used")
