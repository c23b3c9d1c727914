import pytest

from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.scheduler.host_manager import HostManager
from tests.contract.values import delete, make_guest, measure, update
from tests.unit.scheduler.fakes import ADMISSION_POLICY, ask


class CountingStore:
    """Notes which nodes are loaded."""

    def __init__(self, store):
        self.store = store
        self.loads = []

    def load_ledger_versions(self):
        return self.store.load_ledger_versions()

    def load_ledger_nodes(self, node_ids):
        found = self.store.load_ledger_nodes(node_ids)
        self.loads.append(sorted(node.version.nodename for node in found))
        return found


@pytest.fixture
def fake_fleet(empty_fleet):
    fake_fleet = empty_fleet
    for name in ("n1", "n2", "n3"):
        fake_fleet.add(nodename=name)
    return fake_fleet


@pytest.fixture
def store(fake_fleet):
    return CountingStore(fake_fleet.store)


@pytest.fixture
def manager(store):
    manager = HostManager(store)
    manager.refresh()
    store.loads.clear()
    return manager


def record(fake_fleet, nodename):
    return next(r for r in fake_fleet.store.load_nodes("h1") if r.nodename == nodename)


def test_the_first_use_reads_every_node(fake_fleet):
    assert list(HostManager(fake_fleet.store).fleet.states) == [
        ("h1", "n1"),
        ("h1", "n2"),
        ("h1", "n3"),
    ]


def test_what_did_not_change_is_not_read_again(store, manager):
    manager.refresh()
    assert store.loads == [[]]


def test_only_what_a_claim_or_an_audit_moved_is_read_again(fake_fleet, store, manager):
    fake_fleet.store.create_claim(ask(VCPU=2), "h1", "n2", ADMISSION_POLICY)
    agent = fake_fleet.agents["h1"]
    fake_fleet.store.apply_changes(agent, [update(record(fake_fleet, "n3"), vcpus=16)], 60)
    fake_fleet.store.apply_changes(agent, [measure(record(fake_fleet, "n1"), mem_available=5)], 60)
    states = manager.refresh().states
    assert store.loads == [["n2", "n3"]]
    free = {key[1]: state.free.vcpu_milli for key, state in states.items()}
    assert free == {"n1": 8000, "n2": 6000, "n3": 16000}


def test_gates_are_as_new_as_the_refresh_though_no_node_moved(fake_fleet, store, manager):
    fake_fleet.store.set_service("h1", COMPUTE_BINARY, ServiceChange(disabled=True))
    fake_fleet.sleep(30)
    fake_fleet.report_state()
    fleet = manager.refresh()
    assert store.loads == [[]]
    assert fleet.now == fake_fleet.now
    for state in fleet.states.values():
        assert (state.service.disabled, state.service.last_seen_up) == (True, fake_fleet.now)


def test_nodes_and_hosts_that_are_gone_leave(fake_fleet, manager):
    fake_fleet.add("h2", "m1")
    assert ("h2", "m1") in manager.refresh().states
    fake_fleet.store.apply_changes(fake_fleet.agents["h1"], [delete(record(fake_fleet, "n2"))], 60)
    fake_fleet.store.delete_service("h2", COMPUTE_BINARY, -1)
    assert list(manager.refresh().states) == [("h1", "n1"), ("h1", "n3")]


def test_a_host_that_is_renamed_is_found_under_its_new_name(fake_fleet, store, manager):
    (seen,) = fake_fleet.store.list_services("h1")
    fake_fleet.store.rename_host("h1", "h9", COMPUTE_BINARY, seen)
    states = manager.refresh().states
    assert list(states) == [("h9", "n1"), ("h9", "n2"), ("h9", "n3")]
    assert all(state.service is not None for state in states.values())


def test_what_is_consumed_counts_until_the_next_refresh_reads_the_node_again(
    fake_fleet, store, manager
):
    claim = fake_fleet.store.create_claim(ask(VCPU=2, MEMORY_MB=100), "h1", "n2", ADMISSION_POLICY)
    manager.consume(claim)
    estimate = manager.fleet.states["h1", "n2"]
    assert (estimate.free.vcpu_milli, estimate.free.memory_mb) == (6000, 8092)
    assert manager.fleet.states["h1", "n1"].free.vcpu_milli == 8000
    fake_fleet.store.abort_claim(claim.uuid)
    assert manager.refresh().states["h1", "n2"].free.vcpu_milli == 8000
    manager.refresh()
    assert store.loads == [["n2"], []]


def test_consuming_comes_to_what_the_ledger_wrote(empty_fleet):
    guest = make_guest("adopted", vcpu_milli=1000)
    empty_fleet.add(
        guests=(guest,),
        overhead_mb=64,
        inventory={"CUSTOM_FPGA": {"total": 2}},
    )
    manager = HostManager(empty_fleet.store)
    for request in (
        ask(VCPU=1, MEMORY_MB=512, CUSTOM_FPGA=1),
        ask(kind="container", VCPU=0.5, DISK_GB=1),
        ask(guest.uuid, VCPU=2),
    ):
        before = manager.fleet
        claim = empty_fleet.store.create_claim(request, "h1", "n1", ADMISSION_POLICY)
        manager.consume(claim)
        estimate = manager.fleet.states["h1", "n1"].node
        written = manager.refresh().states["h1", "n1"].node
        assert estimate.values == written.values
        assert (estimate.claims, estimate.unclaimed) == (written.claims, written.unclaimed)
        assert before.states["h1", "n1"].node.claims == written.claims[:-1]


def test_a_claim_on_a_node_that_is_not_known_is_left_aside(fake_fleet, manager):
    claim = fake_fleet.store.create_claim(ask(VCPU=2), "h1", "n2", ADMISSION_POLICY)
    fake_fleet.store.abort_claim(claim.uuid)
    fake_fleet.store.apply_changes(fake_fleet.agents["h1"], [delete(record(fake_fleet, "n2"))], 60)
    before = manager.refresh()
    manager.consume(claim)
    assert manager.fleet == before


def test_a_node_that_moves_between_the_two_reads_is_never_shown_with_a_wrong_gate(fake_fleet):
    class Moving(CountingStore):
        def load_ledger_nodes(self, node_ids):
            if not self.loads:
                (seen,) = self.store.list_services("h1")
                self.store.rename_host("h1", "h9", COMPUTE_BINARY, seen)
            return super().load_ledger_nodes(node_ids)

    manager = HostManager(Moving(fake_fleet.store))
    assert manager.refresh().states == {}
    assert list(manager.refresh().states) == [("h9", "n1"), ("h9", "n2"), ("h9", "n3")]
