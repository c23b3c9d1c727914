"""What a host writes has the shape of its columns, or its node keeps its row and gets no claims."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodetracker.accounting.audit.planner import plan
from nodetracker.accounting.audit.view import account
from nodetracker.model.change import ItemDiff
from nodetracker.model.errors import ClaimRefusedError, FencedError, RequestError
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.local.plugin import LocalDriver
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.builders import (
    NOW,
    create,
    make_device,
    make_guest,
    make_incarnation,
    register,
    take_service,
    update,
)
from tests.contract.scene import POLICY, Scene, ask, build, uuid_of
from tests.hosts.captures import CAPTURES, HERE, unpack
from tests.stores import SqliteStore


@pytest.fixture(scope="module")
def built() -> tuple[SqliteStore, Scene, bytes]:
    store = SqliteStore()
    return store, build(store), store.save()


@pytest.fixture
def scene(built: tuple[SqliteStore, Scene, bytes]) -> Scene:
    store, scene, saved = built
    store.restore(saved)
    return scene


CELL = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 1, "siblings": [], "mempages": []}
COLUMNS: list[tuple[str, Any, str]] = [
    ("numa_topology", {"cells": 1}, "column numa_topology: cells: 1 is not a list"),
    (
        "numa_topology",
        {"cells": [CELL | {"memory": 2**62}]},
        "column numa_topology: cells[0].memory",
    ),
    (
        "numa_topology",
        {"cells": [CELL | {"cpuset": [2**20]}]},
        "cells[0].cpuset[0]: 1048576 is not",
    ),
    ("memory_mb", 2**62, "column memory_mb: 4611686018427387904 is not an integer from 0"),
    ("vcpus", -1, "column vcpus: -1"),
    ("cpu_allocation_ratio", 1e300, "column cpu_allocation_ratio: "),
    ("metrics", {"cpu_percent": 2**62}, "column metrics: cpu_percent: "),
    ("gpus", [{"vendor": "NVIDIA"}], "column gpus: [0]: address is missing"),
    (
        "inventory",
        {"CUSTOM_A": {"total": 1, "step_size": 0}},
        "column inventory: CUSTOM_A.step_size",
    ),
    ("os", "x" * 256, "column os: "),
    ("labels", {"a": "x" * 5000}, "column labels: a: "),
    ("system", {"deep": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}, "column system: deep: more than 16"),
    ("disks", [{"name": "sda"}] * 20_000, "column disks: 20000 items, more than 10000"),
]


@pytest.mark.parametrize(("column", "value", "reason"), COLUMNS, ids=[c[0] for c in COLUMNS])
def test_a_value_that_its_column_may_not_have_closes_the_node(
    scene: Scene, column: str, value: Any, reason: str
) -> None:
    before, other = scene.record("a1"), scene.record("a2")
    changes = [update(before, **{column: value}), update(other, boot_id="new")]
    result = scene.store.apply_changes(scene.agents["alpha"], changes, 60)
    assert result.misfits == ("n1",)
    assert result.refused["n1"].startswith("column ")
    assert reason in result.refused["n1"]
    assert scene.record("a2").values.boot_id == "new"  # others are written
    after = scene.record("a1")
    assert replace(after.values, facts={}) == replace(before.values, facts={})
    with pytest.raises(ClaimRefusedError, match=r"what the host reports cannot be stored: column"):
        scene.store.create_claim(ask("fresh a1", pci_requests=None), "alpha", "n1", POLICY)
    (warning,) = (
        found
        for found in scene.store.list_warnings("alpha")
        if found.warning.kind is WarningKind.ROW_REFUSED
    )
    assert (warning.warning.nodename, reason in warning.warning.message) == ("n1", True)
    scene.store.apply_changes(scene.agents["alpha"], changes[:1], 60)
    assert scene.record("a1").generation == after.generation  # it is closed once


def test_guests_and_devices_have_shapes_too(scene: Scene) -> None:
    guest = make_guest("big", memory_mb=2**62)
    device = make_device("0000:99:00.0", numa_node=2**40)
    for diffs, reason in (
        ({"guests": ItemDiff(added=(guest,))}, f"column memory_mb of guest {guest.uuid}: "),
        ({"devices": ItemDiff(added=(device,))}, "column numa_node of device 0000:99:00.0: "),
    ):
        change = update(scene.record("a1"), **diffs)
        result = scene.store.apply_changes(scene.agents["alpha"], [change], 60)
        assert result.refused["n1"].startswith(reason)


def test_a_new_node_that_does_not_fit_is_not_created(scene: Scene) -> None:
    change = create(scene.agents["alpha"], "n9")
    change = replace(change, values=replace(change.values, vcpus=2**62))
    result = scene.store.apply_changes(scene.agents["alpha"], [change], 60)
    assert result.misfits == ("n9",)
    assert "n9" not in [node.nodename for node in scene.store.load_nodes("alpha")]


def test_a_heartbeat_has_a_shape(scene: Scene) -> None:
    agent = scene.agents["alpha"]
    with pytest.raises(RequestError, match="age_seconds"):
        scene.store.report_state(agent, 2, AuditState(age_seconds=1e300))
    with pytest.raises(FencedError):
        scene.store.report_state(agent, 2**62, AuditState())
    scene.store.report_state(agent, 10**8, AuditState())


def test_an_agent_registers_with_numbers_in_range(scene: Scene) -> None:
    run = make_incarnation("agent", report_interval=10**10)
    with pytest.raises(RequestError, match="report_interval"):
        take_service(scene.store, "alpha", run)
    (seen,) = scene.store.list_services("alpha", COMPUTE_BINARY)
    arguments = "alpha", COMPUTE_BINARY, "compute", "1", make_incarnation("agent"), seen
    for held in (2**63 - 2, seen.epoch + 10**6 + 1):
        with pytest.raises(RequestError, match="held_epoch"):
            scene.store.register_agent(*arguments, held_epoch=held)
    taken = scene.store.register_agent(*arguments, held_epoch=seen.epoch + 10**6)
    assert taken.epoch == seen.epoch + 10**6 + 1


def test_a_damaged_claim_closes_its_node_until_it_is_aborted(scene: Scene) -> None:
    store = scene.store
    with store.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql(
            f"UPDATE claims SET memory_mb = 1e300 WHERE uuid = '{uuid_of('web b2')}'"
        )
    (claim,) = store.list_claims(uuid=uuid_of("web b2"))
    assert claim.damaged == ("memory_mb",)
    another = ask("web b2 again", pci_requests=None)
    with pytest.raises(ClaimRefusedError, match="the stored row is damaged: claims"):
        store.create_claim(another, "beta", "n2", POLICY)
    aborted = store.abort_claim(claim.uuid)
    assert (aborted.state, store.list_claims(uuid=claim.uuid)[0].damaged) == ("released", ())
    assert store.create_claim(another, "beta", "n2", POLICY).is_active


@pytest.mark.parametrize("name", CAPTURES)
def test_what_an_agent_reads_of_a_captured_machine_fits(name: str, tmp_path: Path) -> None:
    unpack(HERE / f"{name}.tar.xz", tmp_path)
    root = tmp_path / name
    roots = Roots(root / "proc", root / "sys", root)
    driver = LocalDriver(DriverEnvironment("alpha", str(root), roots, ProbeRunner(20)))
    view = account(driver.get_available_resource("alpha"), None, Policy(), NOW)
    store = SqliteStore()
    agent = register(store)
    (change,) = plan("alpha", [view], {}, {"alpha": uuid_of("node")}, NOW)
    result = store.apply_changes(agent, [change], 60)
    assert (result.misfits, [*result.records]) == ((), ["alpha"])
