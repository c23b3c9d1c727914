import dataclasses

import pytest

from nodetracker.accounting.usage import Charge
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.scheduler.host_manager import HostManager
from nodetracker.scheduler.selection import select_candidates
from nodetracker.scheduler.weighers import EVEN, Multipliers, weigh
from tests.builders import NOW
from tests.contract.values import make_guest
from tests.unit.scheduler.worlds import TERMS, World, ask

LOST = {"memory": FactEntry(FactState.UNKNOWN, "proc", NOW, "gone")}


def select(world, request, multipliers=EVEN):
    return select_candidates(HostManager(world.store).fleet, request, TERMS, multipliers)


def names(selection):
    return [candidate.nodename for candidate in selection.candidates]


@pytest.mark.parametrize(
    ("node", "body", "told"),
    [
        ({}, {"VCPU": 9}, "cpu"),
        ({}, {"MEMORY_MB": 8193}, "ram"),
        ({"overhead_mb": 1}, {"MEMORY_MB": 8192}, "ram"),
        ({}, {"DISK_GB": 101}, "disk"),
        ({"pcpus": 1}, {"PCPU": 2}, "pcpu: 1 of 1 nodes, numa"),
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
            "facts: 1 of 1 nodes, pci",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_filter_tells_what_it_dropped(node, body, told):
    world = World()
    world.add(**node)
    selection = select(world, ask(**body))
    assert (selection.candidates, selection.against) == ((), f"{told}: 1 of 1 nodes")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (ServiceChange(disabled=True), "enabled"),
        (ServiceChange(forced_down=True), "up"),
    ],
)
def test_a_closed_host_is_no_candidate(change, told):
    world = World()
    world.add("h1", "n1")
    world.add("h2", "n2")
    world.store.set_service("h1", COMPUTE_BINARY, change)
    selection = select(world, ask(VCPU=1))
    assert (names(selection), selection.against) == (["n2"], f"{told}: 1 of 2 nodes")


def test_a_host_in_maintenance_or_without_a_service_is_no_candidate():
    world = World()
    world.add("h1", "n1")
    fleet = HostManager(world.store).fleet
    state = fleet.states["h1", "n1"]
    for service, told in (
        (None, "service"),
        (dataclasses.replace(state.service, maintenance=True), "maintenance"),
    ):
        closed = dataclasses.replace(state, service=service)
        one = dataclasses.replace(fleet, states={("h1", "n1"): closed})
        assert select_candidates(one, ask(), TERMS, EVEN).against == f"{told}: 1 of 1 nodes"


def test_a_silent_host_is_no_candidate():
    world = World()
    world.add("h1", "n1")
    world.add("h2", "n2")
    world.sleep(61)
    world.beat("h2")
    assert names(select(world, ask())) == ["n2"]


def test_a_node_is_counted_by_every_filter_that_it_fails():
    world = World()
    world.add(nodename="n1", vcpus=1)
    world.add(nodename="n2", vcpus=1, memory_mb=10)
    world.add(nodename="n3")
    selection = select(world, ask(VCPU=2, MEMORY_MB=20))
    assert selection.against == "cpu: 2 of 3 nodes, ram: 1 of 3 nodes"


def test_without_nodes_that_is_the_reason():
    world = World()
    assert select(world, ask()).against == "there is no node"
    world.add()
    assert select(world, ask(nodename="ghost")).against == "there is no node called ghost"
    assert select(world, ask(host="ghost")).against == "there is no node on host ghost"


def test_a_nodename_leaves_only_nodes_so_called():
    world = World()
    for host in ("h1", "h2"):
        world.add(host, "a")
        world.add(host, "b")
    found = [(c.host, c.nodename) for c in select(world, ask(nodename="b")).candidates]
    assert found == [("h1", "b"), ("h2", "b")]


def test_an_unclaimed_guest_makes_room_on_its_own_node():
    guest = make_guest("web", vcpu_milli=8000)
    world = World()
    world.add("h1", "n1", guests=(guest,))
    assert names(select(world, ask(VCPU=8))) == []
    assert names(select(world, ask(guest.uuid, VCPU=8))) == ["n1"]


def test_limits_that_the_request_brings_stand_for_the_node_s_own():
    world = World()
    world.add()
    assert names(select(world, ask(VCPU=9, limits={"VCPU": None}))) == ["n1"]


class TestWeights:
    def test_the_freest_comes_first(self):
        world = World()
        world.add("h1", "small", memory_mb=1024)
        world.add("h2", "large", memory_mb=4096)
        world.add("h3", "middle", memory_mb=2048)
        selection = select(world, ask())
        assert names(selection) == ["large", "middle", "small"]
        assert [c.weight for c in selection.candidates] == [1.0, 1 / 3, 0.0]

    @pytest.mark.parametrize(
        ("multipliers", "first"),
        [
            (Multipliers(1, 0, 0), "ram"),
            (Multipliers(0, 1, 0), "cpu"),
            (Multipliers(0, 0, 1), "disk"),
            (Multipliers(-1, -1, 0), "disk"),
        ],
    )
    def test_multipliers_say_what_counts(self, multipliers, first):
        world = World()
        world.add("h1", "cpu", vcpus=16)
        world.add("h2", "disk", local_gb=200)
        world.add("h3", "ram", memory_mb=16384)
        assert names(select(world, ask(), multipliers))[0] == first

    def test_equal_ones_are_in_order_of_host_and_nodename(self):
        world = World()
        for host, nodename in (("h2", "a"), ("h1", "z"), ("h1", "b")):
            world.add(host, nodename)
        found = [(c.host, c.nodename) for c in select(world, ask()).candidates]
        assert found == [("h1", "b"), ("h1", "z"), ("h2", "a")]

    def test_what_is_promised_weighs(self):
        world = World()
        world.add("h1", "full", charge=Charge(4000, 4096, 0))
        world.add("h2", "empty")
        (best, worst) = select(world, ask()).candidates
        assert (best.nodename, best.free.vcpu_milli, best.free.memory_mb) == ("empty", 8000, 8192)
        assert (worst.free.vcpu_milli, worst.weight) == (4000, 0.0)

    def test_nothing_and_one_are_weighed_too(self):
        assert weigh([], EVEN) == []
        assert weigh([Charge(1, 2, 3)], EVEN) == [0.0]
