"""Schedulers read all versions of any store, and of some nodes what admission needs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.fleet import LedgerNode
from nodetracker.model.guest import GuestPins
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.ports import Store
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import (
    ADMISSION_POLICY,
    admission_values,
    ask,
    availability_of,
    create,
    key_of,
    make_guest,
    make_incarnation,
    make_node,
    make_values,
    node,
    register,
    take_service,
)
from tests.contract.stores import StoreMaker


def load(store: Store, *hosts: str) -> list[LedgerNode]:
    records = [record for host in hosts for record in store.load_nodes(host)]
    return store.load_ledger_nodes([record.id for record in records])


def test_nodes_have_their_services(store: Store) -> None:
    for host in ("alpha", "beta"):
        agent = register(store, host, agent_id=f"agent-{host}")
        store.report_state(agent, 1, AuditState())
        store.apply_changes(agent, [create(agent, f"{host}-{i}") for i in range(2)], 60)
    change = ServiceChange(disabled=True, disabled_reason="disk")
    store.set_service("beta", COMPUTE_BINARY, change)
    before = store.now()
    records = [record for host in ("beta", "alpha") for record in store.load_nodes(host)]
    nodes = load(store, "beta", "alpha")
    assert len(nodes) == 4
    assert [(n.id, n.host, n.nodename) for n in nodes] == sorted(
        (r.id, r.host, r.nodename) for r in records
    )
    services = {host: availability_of(store.list_services(host)[0]) for host in ("alpha", "beta")}
    assert services["beta"].disabled_reason == "disk"
    for found in nodes:
        assert found.service == services[found.host]
        assert before <= found.now <= store.now()


def test_a_host_without_an_agent_has_nodes_and_no_service(store: Store) -> None:
    agent = key_of(take_service(store, "alpha", make_incarnation(), "another-binary"))
    store.apply_changes(agent, [create(agent, "n1")], 60)
    (found,) = load(store, "alpha")
    assert (found.nodename, found.service) == ("n1", None)


def test_a_conductor_of_the_host_is_not_its_agent(store: Store) -> None:
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
    store.set_service("alpha", CONDUCTOR_BINARY, ServiceChange(disabled=True))
    (found,) = load(store, "alpha")
    assert found.service is not None
    assert not found.service.disabled


def test_a_node_comes_with_its_active_claims_and_unclaimed_guests(store: Store) -> None:
    adopted, alone, large = make_guest("adopted"), make_guest("alone"), make_guest("large")
    make_node(store, (adopted, alone, large))
    held = store.create_claim(ask(VCPU=1, CUSTOM_FPGA=1), "alpha", "node-1", ADMISSION_POLICY)
    covers = store.create_claim(
        ask(adopted.uuid, PCPU=1, VCPU=1, MEMORY_MB=2048, DISK_GB=20),
        "alpha",
        "node-1",
        ADMISSION_POLICY,
    )
    small = store.create_claim(ask(large.uuid, VCPU=1), "alpha", "node-1", ADMISSION_POLICY)
    released = store.create_claim(ask(VCPU=1), "alpha", "node-1", ADMISSION_POLICY)
    store.abort_claim(released.uuid)
    record = node(store)
    (found,) = store.load_ledger_nodes([record.id])
    assert (found.host, found.nodename) == ("alpha", "node-1")
    assert found.claims == (held, covers, small)
    assert found.unclaimed == {alone.uuid: record.guests[alone.uuid]}
    assert found.larger == {large.uuid: record.guests[large.uuid]}
    for name in ("vcpus", "cpu_used", "reserved", "inventory", "traits", "facts", "overhead"):
        assert getattr(found.values, name) == getattr(record.values, name)


def test_a_guest_that_exceeds_its_claim_by_any_amount_or_is_bound_is_loaded(store: Store) -> None:
    changes: dict[str, dict[str, Any]] = {
        "equal": {},
        "cpu": {"vcpu_milli": 1001},
        "memory": {"memory_mb": 1025},
        "disk": {"disk_mb": 1025},
        "bound": {"pins": GuestPins(devices=("0000:81:00.0",))},
    }
    size = {"vcpu_milli": 1000, "memory_mb": 1024, "disk_mb": 1024}
    guests = tuple(make_guest(name, **{**size, **own}) for name, own in changes.items())
    make_node(store, guests)
    for guest in guests:
        request = ask(guest.uuid, VCPU=1, MEMORY_MB=1024, DISK_GB=1)
        store.create_claim(request, "alpha", "node-1", ADMISSION_POLICY)
    (found,) = store.load_ledger_nodes([node(store).id])
    assert sorted(guest.name for guest in found.larger.values()) == [
        "bound",
        "cpu",
        "disk",
        "memory",
    ]


def test_only_the_columns_that_admission_needs_are_loaded(store: Store) -> None:
    make_node(store)
    record = node(store)
    (found,) = store.load_ledger_nodes([record.id])
    assert found.values == admission_values(record.values)
    assert (record.values.os, found.values.os) == (make_values().os, "")


def test_only_what_some_requests_are_evaluated_by_is_loaded(store: Store) -> None:
    make_node(store)
    requests = [ask(VCPU=1, MEMORY_MB=64) for _ in range(3)]
    claims = [store.create_claim(item, "alpha", "node-1", ADMISSION_POLICY) for item in requests]
    ids = [node(store).id]
    (found,) = store.load_ledger_nodes(ids, requests[:2])
    assert {claim.uuid for claim in found.claims} == {claim.uuid for claim in claims[:2]}
    (found,) = store.load_ledger_nodes(ids, [])
    assert found.claims == ()


def test_only_the_requested_nodes_are_loaded(store: Store) -> None:
    agent = register(store)
    changes = [create(agent, f"n{i}", make_values(), (make_guest(f"g{i}"),)) for i in range(3)]
    store.apply_changes(agent, changes, 60)
    ids = {record.nodename: record.id for record in store.load_nodes("alpha")}
    found = store.load_ledger_nodes([ids["n0"], ids["n2"], 99999999])
    assert {n.nodename: [g.name for g in n.unclaimed.values()] for n in found} == {
        "n0": ["g0"],
        "n2": ["g2"],
    }
    assert store.load_ledger_nodes([]) == []


def test_concurrent_schedulers_get_what_is_left_or_every_reason(
    stores: StoreMaker,
) -> None:
    agent = make_node(stores.open())  # 7 CPUs
    other = make_values(
        vcpus=3, cpu_allocation_ratio=1.0, reserved={}, overhead={}, facts={}, cpu_used=0.0
    )
    stores.open().apply_changes(agent, [create(agent, "node-2", other)], 60)

    def one(number: int) -> str:
        store = stores.open()
        try:
            return Scheduler(store, ADMISSION_POLICY).create_claim(ask(VCPU=1)).nodename
        except ClaimRefusedError as error:
            assert "cpu: " in str(error) or "Free vcpu 0.00" in str(error)
            return ""

    with ThreadPoolExecutor(6) as pool:
        granted = list(pool.map(one, range(14)))
    assert {name: granted.count(name) for name in ("node-1", "node-2", "")} == {
        "node-1": 7,
        "node-2": 3,
        "": 4,
    }
