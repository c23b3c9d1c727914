"""Schedulers read all versions of any store, and of some nodes what admission needs."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

from nodetracker.errors import ClaimRefusedError
from nodetracker.model.node import admission_values
from nodetracker.model.pci_request import Alias, AliasSpec
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AuditState,
    ServiceChange,
)
from nodetracker.ports import Store
from nodetracker.scheduler.host_manager import HostManager
from nodetracker.scheduler.scheduler import Scheduler
from tests.builders import take_service
from tests.contract.stores import StoreMaker
from tests.contract.test_ledger import ADMISSION_POLICY, ask, make_node, node
from tests.contract.values import (
    create,
    delete,
    key_of,
    make_device,
    make_guest,
    make_incarnation,
    make_values,
    register,
    update,
)


def test_an_empty_fleet_returns_only_the_time(store: Store) -> None:
    register(store)
    before = store.now()
    versions = store.load_ledger_versions()
    assert (versions.nodes, versions.services) == ((), {})
    assert before <= versions.now <= store.now()


def test_versions_are_those_of_all_hosts_with_their_services(store: Store) -> None:
    for host in ("alpha", "beta"):
        agent = register(store, host, agent_id=f"agent-{host}")
        store.report_state(agent, 1, AuditState())
        store.apply_changes(agent, [create(agent, f"{host}-{i}") for i in range(2)], 60)
    change = ServiceChange(disabled=True, disabled_reason="disk")
    store.set_service("beta", COMPUTE_BINARY, change)
    versions = store.load_ledger_versions()
    records = [record for host in ("alpha", "beta") for record in store.load_nodes(host)]
    assert {(s.id, s.host, s.nodename, s.generation, s.created_at) for s in versions.nodes} == {
        (r.id, r.host, r.nodename, r.generation, r.created_at) for r in records
    }
    alpha, beta = (versions.services[host] for host in ("alpha", "beta"))
    assert (alpha.disabled, alpha.disabled_reason, alpha.forced_down) == (False, None, False)
    assert (beta.disabled, beta.disabled_reason) == (True, "disk")
    (service,) = store.list_services("alpha")
    assert alpha.last_seen_up == service.last_seen_up


def test_a_host_without_an_agent_has_versions_and_no_service(store: Store) -> None:
    agent = key_of(take_service(store, "alpha", make_incarnation(), "another-binary"))
    store.apply_changes(agent, [create(agent, "n1")], 60)
    versions = store.load_ledger_versions()
    assert [version.nodename for version in versions.nodes] == ["n1"]
    assert versions.services == {}


def test_a_conductor_of_the_host_is_not_its_agent(store: Store) -> None:
    agent = register(store)
    store.apply_changes(agent, [create(agent, "n1")], 60)
    take_service(store, "alpha", make_incarnation("conductor"), CONDUCTOR_BINARY)
    store.set_service("alpha", CONDUCTOR_BINARY, ServiceChange(disabled=True))
    versions = store.load_ledger_versions()
    assert [version.nodename for version in versions.nodes] == ["n1"]
    assert not versions.services["alpha"].disabled


def test_changes_of_the_ledger_raise_the_version_and_measurements_do_not(store: Store) -> None:
    agent = make_node(store)

    def version() -> object:
        return store.load_ledger_versions().nodes

    seen = [version()]
    granted = store.create_claim(ask(VCPU=1), "alpha", "node-1", ADMISSION_POLICY)
    seen.append(version())
    store.abort_claim(granted.uuid)
    seen.append(version())
    store.apply_changes(agent, [update(node(store), vcpus=16)], 60)
    seen.append(version())
    assert len(set(map(repr, seen))) == 4
    store.report_state(agent, 2, AuditState())
    assert version() == seen[-1]
    store.apply_changes(agent, [delete(node(store))], 60)
    assert version() == ()


def test_a_row_created_again_has_another_version(store: Store) -> None:
    agent = make_node(store)
    before = store.load_ledger_versions().nodes
    store.apply_changes(agent, [delete(node(store))], 60)
    store.apply_changes(agent, [create(agent, "node-1")], 60)
    assert store.load_ledger_versions().nodes != before


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
    (version,) = store.load_ledger_versions().nodes
    (found,) = store.load_ledger_nodes([version.id])
    record = node(store)
    assert found.version == version
    assert found.claims == (held, covers, small)
    assert found.unclaimed == {alone.uuid: record.guests[alone.uuid]}
    assert found.larger == {large.uuid: record.guests[large.uuid]}
    for name in ("vcpus", "cpu_used", "reserved", "inventory", "traits", "facts", "overhead"):
        assert getattr(found.values, name) == getattr(record.values, name)


def test_only_the_columns_that_admission_needs_are_loaded(store: Store) -> None:
    make_node(store)
    (version,) = store.load_ledger_versions().nodes
    (found,) = store.load_ledger_nodes([version.id])
    record = node(store)
    assert found.values == admission_values(record.values)
    assert (record.values.os, found.values.os) == (make_values().os, "")


def test_a_scheduler_s_cached_usage_equals_what_the_ledger_writes(store: Store) -> None:
    adopted = make_guest("adopted", vcpu_milli=1000)
    make_node(store, (adopted,), devices=(make_device(),))
    policy = dataclasses.replace(
        ADMISSION_POLICY, aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),))}
    )
    manager = HostManager(store)
    for request in (
        ask(VCPU=1, MEMORY_MB=512, CUSTOM_FPGA=1),
        ask(adopted.uuid, VCPU=2),
        ask(adopted.uuid, MEMORY_MB=4096, DISK_GB=40),
        ask(PCPU=1, MEMORY_MB=512, numa={"cpu_policy": "dedicated"}),
        ask(pci_requests=[{"alias": "nic"}]),
    ):
        manager.refresh()
        manager.consume(store.create_claim(request, "alpha", "node-1", policy))
        estimate = manager.fleet.states["alpha", "node-1"].node
        written = manager.refresh().states["alpha", "node-1"].node
        assert estimate == dataclasses.replace(written, version=estimate.version)


def test_only_the_requested_nodes_are_loaded(store: Store) -> None:
    agent = register(store)
    changes = [create(agent, f"n{i}", make_values(), (make_guest(f"g{i}"),)) for i in range(3)]
    store.apply_changes(agent, changes, 60)
    ids = {version.nodename: version.id for version in store.load_ledger_versions().nodes}
    found = store.load_ledger_nodes([ids["n0"], ids["n2"], 99999999])
    assert {n.version.nodename: [g.name for g in n.unclaimed.values()] for n in found} == {
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
            return (
                Scheduler(store, HostManager(store), ADMISSION_POLICY)
                .create_claim(ask(VCPU=1))
                .nodename
            )
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
