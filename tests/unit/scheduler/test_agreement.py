"""Filter and ledger agree: over random nodes, exactly what is listed is granted."""

import uuid

import pytest
from hypothesis import strategies as st

from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import RequestError
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, make_guest
from tests.unit.scheduler.fakes import LOST, FakeFleet

SMALL = st.integers(0, 6)
RATIO = st.sampled_from([0.5, 1.0, 1.1, 4.0])
WORKLOADS = [str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in "abc"]

GUESTS = st.lists(
    st.builds(
        lambda workload, cpus, memory: make_guest(
            "g", uuid=workload, vcpu_milli=cpus * 500, memory_mb=memory, disk_mb=0
        ),
        st.sampled_from(WORKLOADS),
        SMALL,
        SMALL,
    ),
    max_size=2,
    unique_by=lambda guest: guest.uuid,
)

NODES = st.fixed_dictionaries(
    {
        "guests": GUESTS,
        "overhead_mb": st.integers(0, 2),
        "charge": st.builds(Amounts, st.integers(0, 4000), SMALL, SMALL, st.integers(0, 4096)),
        "vcpus": SMALL,
        "pcpus": SMALL,
        "memory_mb": SMALL,
        "local_gb": SMALL,
        "cpu_allocation_ratio": RATIO,
        "ram_allocation_ratio": RATIO,
        "disk_allocation_ratio": RATIO,
        "reserved": st.fixed_dictionaries({"vcpus": st.integers(0, 1), "memory_mb": SMALL}),
        "inventory": st.dictionaries(
            st.just("CUSTOM_X"), st.fixed_dictionaries({"total": SMALL}), max_size=1
        ),
        "traits": st.sampled_from([[], ["T"]]),
        "facts": st.sampled_from([{}, {}, LOST]),
    }
)

REQUESTS = st.builds(
    lambda workload, resources, traits, limits: ask(
        workload,
        required_traits=traits,
        limits={
            name: limit
            for name, limit in limits.items()
            if name in ("VCPU", "MEMORY_MB", *resources)
        },
        **resources,
    ),
    st.sampled_from(WORKLOADS),
    st.dictionaries(
        st.sampled_from(["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_X"]), st.integers(0, 3)
    ),
    st.sampled_from([[], [], ["T"]]),
    st.dictionaries(
        st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_X"]), st.none() | SMALL, max_size=1
    ),
)

CHANGES = st.sampled_from([None, None, None, ServiceChange(disabled=True)])


FLEETS = {
    "nodes": st.lists(st.tuples(NODES, CHANGES), min_size=1, max_size=3),
    "requests": st.lists(REQUESTS, min_size=1, max_size=5),
}


def test_the_node_of_the_workload_s_guest_is_not_listed_beyond_the_request_s_limit():
    """The store's question lets such a node pass, whatever the amounts."""
    fleet = FakeFleet()
    guest = make_guest("g", uuid=WORKLOADS[0], vcpu_milli=0, memory_mb=0, disk_mb=0)
    fleet.add("h0", "n", memory_mb=1, ram_allocation_ratio=1.0, guests=[guest])
    request = ask(WORKLOADS[0], MEMORY_MB=1, limits={"MEMORY_MB": 0})
    assert Scheduler(fleet.store, ADMISSION_POLICY).select(request) == []


def check_agreement(fake_fleet, nodes, requests):
    for number, (node, change) in enumerate(nodes):
        fake_fleet.add(f"h{number}", "n", **node)
        if change is not None:
            fake_fleet.store.set_service(f"h{number}", COMPUTE_BINARY, change)
    scheduler = Scheduler(fake_fleet.store, ADMISSION_POLICY)
    for request in requests:
        listed = scheduler.select(request)
        granting = {
            f"h{number}"
            for number in range(len(nodes))
            if not fake_fleet.store.try_claim(request, f"h{number}", "n", ADMISSION_POLICY).reasons
        }
        assert {candidate.host for candidate in listed} == granting
        if request.amounts == Amounts():
            with pytest.raises(RequestError):
                scheduler.create_claim(request)
        elif listed:
            assert scheduler.create_claim(request).host in granting
