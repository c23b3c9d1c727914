import uuid

import pytest

from nodetracker.accounting.ledger.exclusions import render_exclusions
from nodetracker.model.amounts import Amounts
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.settings import Multipliers, SchedulerSettings
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, make_guest
from tests.unit.scheduler.fakes import LOST

EVEN = Multipliers()


def select(fleet, request, multipliers=EVEN, limit=None):
    scheduler = Scheduler(fleet.store, ADMISSION_POLICY, SchedulerSettings(multipliers))
    return scheduler.select(request, limit)


def explain(fleet, request):
    exclusions = Scheduler(fleet.store, ADMISSION_POLICY).explain(request)
    return render_exclusions(exclusions, request)


def names(candidates):
    return [candidate.nodename for candidate in candidates]


@pytest.mark.parametrize(
    ("node", "body", "told"),
    [
        ({}, {"VCPU": 9}, "cpu"),
        ({}, {"MEMORY_MB": 8193}, "ram"),
        ({"overhead_mb": 1}, {"MEMORY_MB": 8192}, "ram"),
        ({}, {"DISK_GB": 101}, "disk"),
        ({"pcpus": 1}, {"PCPU": 2}, "pcpu: 1 of 1 node, numa"),
        ({}, {"CUSTOM_FPGA": 1}, "classes"),
        ({"inventory": {"CUSTOM_FPGA": {"total": 1}}}, {"CUSTOM_FPGA": 2}, "classes"),
        ({"traits": ["T1"]}, {"required_traits": ["T2"]}, "traits"),
        ({"facts": LOST}, {"MEMORY_MB": 1}, "facts"),
        (
            {"facts": {"gpus": LOST["memory"]}, "inventory": {"PGPU": {"total": 1}}},
            {"PGPU": 1},
            "facts",
        ),
        (
            {"facts": {"pci": LOST["memory"]}},
            {"pci_requests": [{"alias": "nic"}]},
            "facts: 1 of 1 node, pci",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_filter_tells_what_it_dropped(empty_fleet, node, body, told):
    empty_fleet.add(**node)
    request = ask(**body)
    assert select(empty_fleet, request) == []
    assert explain(empty_fleet, request) == f"{told}: 1 of 1 node"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (ServiceChange(disabled=True), "enabled"),
        (ServiceChange(forced_down=True), "up"),
        (ServiceChange(maintenance=True), "maintenance"),
    ],
)
def test_a_closed_host_is_no_candidate(empty_fleet, change, told):
    empty_fleet.add("h1", "n1")
    empty_fleet.add("h2", "n2")
    empty_fleet.store.set_service("h1", COMPUTE_BINARY, change)
    assert names(select(empty_fleet, ask(VCPU=1))) == ["n2"]
    assert explain(empty_fleet, ask(VCPU=1)) == f"{told}: 1 of 2 nodes"


def test_a_silent_host_is_no_candidate(empty_fleet):
    empty_fleet.add("h1", "n1")
    empty_fleet.add("h2", "n2")
    empty_fleet.sleep(61)
    empty_fleet.report_state("h2")
    assert names(select(empty_fleet, ask())) == ["n2"]


def test_a_node_is_counted_by_every_filter_that_it_fails(empty_fleet):
    empty_fleet.add(nodename="n1", vcpus=1)
    empty_fleet.add(nodename="n2", vcpus=1, memory_mb=10)
    empty_fleet.add(nodename="n3")
    assert explain(empty_fleet, ask(VCPU=2, MEMORY_MB=20)) == "cpu: 2 of 3 nodes, ram: 1 of 3 nodes"


def test_without_nodes_that_is_the_reason(empty_fleet):
    assert explain(empty_fleet, ask()) == "no node exists"
    empty_fleet.add()
    assert explain(empty_fleet, ask(nodename="ghost")) == "no node exists named ghost"
    assert explain(empty_fleet, ask(host="ghost")) == "no node exists on host ghost"


def test_a_nodename_leaves_only_nodes_so_called(empty_fleet):
    for host in ("h1", "h2"):
        empty_fleet.add(host, "a")
        empty_fleet.add(host, "b")
    found = [(c.host, c.nodename) for c in select(empty_fleet, ask(nodename="b"))]
    assert found == [("h1", "b"), ("h2", "b")]


def test_a_move_of_an_unknown_claim_excludes_no_node(empty_fleet):
    empty_fleet.add()
    move = {"type": "migration", "source_claim": str(uuid.uuid4())}
    assert names(select(empty_fleet, ask(VCPU=1, migration=move))) == ["n1"]


def test_an_unclaimed_guest_makes_room_on_its_own_node(empty_fleet):
    guest = make_guest("web", vcpu_milli=8000)
    empty_fleet.add("h1", "n1", guests=(guest,))
    assert names(select(empty_fleet, ask(VCPU=8))) == []
    assert names(select(empty_fleet, ask(guest.uuid, VCPU=8))) == ["n1"]


def test_the_workload_s_guest_makes_no_room_for_a_claim_larger_than_its_node(empty_fleet):
    guest = make_guest("web", vcpu_milli=1000)
    empty_fleet.add("h1", "n1", guests=(guest,), cpu_allocation_ratio=4.0)
    assert names(select(empty_fleet, ask(guest.uuid, VCPU=9, MEMORY_MB=1))) == []
    assert names(select(empty_fleet, ask(guest.uuid, VCPU=8, MEMORY_MB=1))) == ["n1"]


def test_a_further_claim_may_use_what_a_larger_guest_is_charged(empty_fleet):
    guest = make_guest("web", vcpu_milli=8000)
    empty_fleet.add("h1", "n1", guests=(guest,))
    small = ask(guest.uuid, VCPU=2)
    empty_fleet.store.create_claim(small, "h1", "n1", ADMISSION_POLICY)
    assert names(select(empty_fleet, ask(VCPU=1))) == []
    assert names(select(empty_fleet, ask(guest.uuid, VCPU=6))) == ["n1"]
    assert names(select(empty_fleet, ask(guest.uuid, VCPU=7))) == []


class TestWeights:
    def test_the_freest_comes_first(self, empty_fleet):
        empty_fleet.add("h1", "small", memory_mb=1024)
        empty_fleet.add("h2", "large", memory_mb=4096)
        empty_fleet.add("h3", "middle", memory_mb=2048)
        candidates = select(empty_fleet, ask())
        assert names(candidates) == ["large", "middle", "small"]
        assert [c.weight for c in candidates] == [1.0, 1 / 3, 0.0]
        assert names(select(empty_fleet, ask(), limit=2)) == ["large", "middle"]

    @pytest.mark.parametrize(
        ("multipliers", "first"),
        [
            (Multipliers(1, 0, 0), "ram"),
            (Multipliers(0, 1, 0), "cpu"),
            (Multipliers(0, 0, 1), "disk"),
            (Multipliers(-1, -1, 0), "disk"),
        ],
    )
    def test_multipliers_say_what_counts(self, empty_fleet, multipliers, first):
        empty_fleet.add("h1", "cpu", vcpus=16)
        empty_fleet.add("h2", "disk", local_gb=200)
        empty_fleet.add("h3", "ram", memory_mb=16384)
        assert names(select(empty_fleet, ask(), multipliers))[0] == first

    def test_what_is_promised_weighs(self, empty_fleet):
        empty_fleet.add("h1", "full", charge=Amounts(4000, memory_mb=4096))
        empty_fleet.add("h2", "empty")
        (best, worst) = select(empty_fleet, ask())
        assert (best.nodename, best.free.vcpu_milli, best.free.memory_mb) == ("empty", 8000, 8192)
        assert (worst.free.vcpu_milli, worst.weight) == (4000, 0.0)
