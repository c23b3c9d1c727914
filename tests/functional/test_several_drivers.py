"""Several drivers on one host with a real dockerd: one row, exact usage, independent failures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetracker.model.amounts import MEMORY
from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.node import NodeRecord
from nodetracker.model.warning import WarningKind
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.roots import Roots
from tests.functional.docker_agent import HOST, RunningAgent, create, guest_of
from tests.functional.servers.engines import Dockerd, Podman
from tests.functional.servers.libvirtd import Libvirtd, domain_xml
from tests.programs import WholeFile, wait_until

DOMAIN = {"vcpus": 2, "memory_mb": 1024, "disk_gb": 5, "kind": "instance"}
DOMAIN_UUID = "00000000-0000-4000-8000-0000000000ff"
UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2)]


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    """An engine with three containers of 64 MiB and half a CPU."""
    made = Dockerd()
    client = made.client()
    for number in range(3):
        client.start(create(client, f"web-{number}"))
    client.close()
    yield made
    made.remove()


class Host:
    """An agent with the docker driver and the file of the fake one."""

    def __init__(self, directory: Path, url: str, drivers: str) -> None:
        directory.mkdir()
        self.inventory = WholeFile(directory / "inventory.yaml")
        self.write(UUIDS)
        self.agent = RunningAgent(directory, url, driver=drivers)

    def write(self, uuids: list[str], **more: Any) -> None:
        guests = [DOMAIN | {"uuid": uuid, "name": uuid[-2:]} for uuid in uuids]
        node = {"nodename": "n", "vcpus": 64, "memory_mb": 1 << 20, "disk_gb": 1000}
        self.inventory.write_text(yaml.safe_dump({"nodes": [node | {"guests": guests}]} | more))


@pytest.fixture
def host(dockerd: Dockerd, tmp_path: Path) -> Iterator[Host]:
    """A host whose first driver is docker."""
    made = Host(tmp_path / "agent", dockerd.url, "docker,fake")
    try:
        made.agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        yield made
    finally:
        made.agent.stop()


def counts(node: NodeRecord) -> tuple[int, int]:
    kinds = [guest.kind for guest in node.guests.values()]
    return kinds.count(WorkloadKind.INSTANCE), kinds.count(WorkloadKind.CONTAINER)


def test_two_instances_and_three_containers_are_one_row(host: Host) -> None:
    (node,) = host.agent.store.load_nodes(HOST)
    values = node.values
    assert counts(node) == (2, 3)
    assert (values.running_vms, values.total_containers, values.running_containers) == (2, 3, 3)
    assert values.memory_mb == read_memory_info(Roots()).total_mb
    assert values.memory_mb_used == 512 + 2 * 1024 + 3 * 64
    assert values.cpu_used == 2 * 2 + 3 * 0.5


def test_a_driver_that_fails_holds_its_own_guests_and_the_other_is_fresh(
    host: Host, dockerd: Dockerd
) -> None:
    host.write(UUIDS, fail={"*": "boom"})
    agent = host.agent
    agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
    client = dockerd.client()
    client.remove_container("web-2", force=True)
    agent.wait(lambda node: counts(node) == (2, 2))
    host.write(UUIDS[:1])
    agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
    agent.wait(lambda node: counts(node) == (1, 2))
    dockerd.freeze()
    try:
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
        host.write(UUIDS)
        agent.wait(lambda node: counts(node) == (2, 2))
    finally:
        dockerd.thaw()
    agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
    client.start(create(client, "web-2"))
    agent.wait(lambda node: counts(node) == (2, 3))
    client.close()


def test_a_local_first_driver_provides_the_facts(dockerd: Dockerd, tmp_path: Path) -> None:
    host = Host(tmp_path / "agent", dockerd.url, "local,docker")
    try:
        host.agent.wait(lambda node: counts(node) == (0, 3))
        (node,) = host.agent.store.load_nodes(HOST)
        assert node.values.hypervisor_type == "local"
        assert node.values.engine["name"] == "docker"
    finally:
        host.agent.stop()


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    """An engine with one container of 64 MiB and half a CPU."""
    made = Podman()
    client = made.client()
    client.start(create(client, "pod-0"))
    client.close()
    yield made
    made.remove()


def warned_items(agent: RunningAgent, kind: WarningKind) -> list[str]:
    found = [record.warning for record in agent.store.list_warnings(HOST)]
    return [warning.item for warning in found if warning.kind is kind]


def test_dockerd_and_podman_are_one_node_and_fail_by_themselves(
    dockerd: Dockerd, podman: Podman, tmp_path: Path
) -> None:
    urls = f"{dockerd.url},{podman.url},{podman.url}"
    agent = RunningAgent(tmp_path / "agent", urls)
    client = dockerd.client()
    try:
        agent.wait(lambda node: counts(node) == (0, 4))
        (node,) = agent.store.load_nodes(HOST)
        assert node.values.engine["name"] == "docker"
        assert (node.values.memory_mb_used, node.values.cpu_used) == (512 + 4 * 64, 2.0)
        assert not warned_items(agent, WarningKind.GUEST_LISTED_TWICE)
        podman.stop()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
        (node,) = agent.store.load_nodes(HOST)
        error = node.values.facts["guests"].error or ""
        assert podman.url in error
        assert dockerd.url not in error
        assert node.values.facts["engine"].state is FactState.FRESH
        client.start(create(client, "late"))
        agent.wait(lambda node: counts(node) == (0, 5))
        client.remove_container("late", force=True)
        agent.wait(lambda node: counts(node) == (0, 4))
        assert "containers have not been listed since" in try_claim(agent, "container")
        podman.start()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        wait_until(lambda: not try_claim(agent, "container"))
    finally:
        client.close()
        agent.stop()


def test_one_engine_behind_two_sockets_is_counted_once(dockerd: Dockerd, tmp_path: Path) -> None:
    other = tmp_path / "other.sock"
    other.symlink_to(dockerd.socket)
    agent = RunningAgent(tmp_path / "agent", f"{dockerd.url},unix://{other}")
    try:
        agent.wait(lambda node: counts(node) == (0, 3))
        (node,) = agent.store.load_nodes(HOST)
        assert node.values.memory_mb_used == 512 + 3 * 64
        items = [f"unix://{other}"]
        wait_until(lambda: warned_items(agent, WarningKind.GUEST_LISTED_TWICE) == items)
    finally:
        agent.stop()


@pytest.fixture
def libvirtd() -> Iterator[Libvirtd]:
    """A libvirtd with two domains, one of which runs."""
    made = Libvirtd()
    for number, uuid in enumerate(UUIDS):
        made.define(domain_xml(f"vm-{number}", uuid, vcpus=2, memory_mb=64))
    made.virsh("start", "vm-0")
    yield made
    made.remove()


def test_libvirt_and_docker_are_one_row(
    libvirtd: Libvirtd, dockerd: Dockerd, tmp_path: Path
) -> None:
    extra = f"[libvirt]\nconnection_uris = {libvirtd.uri}\n"
    agent = RunningAgent(tmp_path / "agent", dockerd.url, driver="libvirt,docker", extra=extra)
    try:
        agent.wait(lambda node: counts(node) == (2, 3))
        (node,) = agent.store.load_nodes(HOST)
        values = node.values
        assert values.hypervisor_type == "QEMU"
        assert values.engine["name"] == "docker"
        assert (values.running_vms, values.running_containers) == (2, 3)
        assert values.memory_mb == read_memory_info(Roots()).total_mb
        assert values.memory_mb_used == 512 + 2 * 64 + 3 * 64
        assert values.cpu_used == 2 * 2 + 3 * 0.5
        libvirtd.virsh("start", "vm-1")
        agent.wait(lambda node: node.guests[UUIDS[1]].power_state is PowerState.RUNNING)
        libvirtd.virsh("undefine", "vm-1")
        libvirtd.virsh("destroy", "vm-1")
        agent.wait(lambda node: counts(node) == (1, 3))
        libvirtd.freeze()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
        client = dockerd.client()
        client.remove_container("web-2", force=True)
        agent.wait(lambda node: counts(node) == (1, 2))
        client.start(create(client, "web-2"))
        client.close()
        libvirtd.thaw()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        agent.wait(lambda node: counts(node) == (1, 3))
        (node,) = agent.store.load_nodes(HOST)
        assert node.values.memory_mb_used == 512 + 64 + 3 * 64
    finally:
        agent.stop()


def try_claim(agent: RunningAgent, kind: str) -> str:
    """Return why a claim of a kind of workload would be refused, "" if it fits."""
    request = agent.programs.directory / "request.json"
    workload = {"uuid": "6a0e1f0e-5a43-4a6e-9d1c-0f6f5f6e2c11", "kind": kind}
    request.write_text(json.dumps({"workload": workload, "resources": {"MEMORY_MB": 1}}))
    found = agent.programs.manage("claim", "create", str(request), "--host", HOST, "--dry-run")
    return found.stdout if found.returncode else ""


def is_written(record: Any, what: str, agent: RunningAgent, condition: Any) -> None:
    record[what] = round(agent.wait(condition, timeout=60), 2)


def test_a_frozen_source_delays_no_event_of_the_other(
    libvirtd: Libvirtd, dockerd: Dockerd, tmp_path: Path
) -> None:
    extra = f"[libvirt]\nconnection_uris = {libvirtd.uri}\n"
    agent = RunningAgent(
        tmp_path / "agent", dockerd.url, driver="libvirt,docker", extra=extra, timeout=10
    )
    took: dict[str, float] = {}

    def instance(state: PowerState) -> Any:
        return lambda node: node.guests[UUIDS[1]].power_state is state

    def container(state: PowerState) -> Any:
        return lambda node: guest_of(node, "web-0").power_state is state

    client = dockerd.client()
    try:
        agent.wait(lambda node: counts(node) == (2, 3))
        dockerd.freeze()
        for command, state in (
            ("start", PowerState.RUNNING),
            ("suspend", PowerState.PAUSED),
            ("resume", PowerState.RUNNING),
            ("destroy", PowerState.SHUTDOWN),
        ):
            libvirtd.virsh(command, "vm-1")
            is_written(took, f"{command} beside a frozen dockerd", agent, instance(state))
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD, timeout=60)
        assert "containers have not been listed since" in try_claim(agent, "container")
        assert not try_claim(agent, "instance")
        libvirtd.virsh("start", "vm-1")
        is_written(took, "start, later", agent, instance(PowerState.RUNNING))
        dockerd.thaw()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH, timeout=60)
        libvirtd.freeze()
        for number in range(4):
            (client.unpause if number % 2 else client.pause)("web-0")
            state = PowerState.RUNNING if number % 2 else PowerState.PAUSED
            is_written(took, f"pause {number} beside a frozen libvirtd", agent, container(state))
        libvirtd.thaw()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH, timeout=60)
    finally:
        dockerd.thaw()
        libvirtd.thaw()
        client.close()
        agent.stop()
    print(f"\nevent to row in s: {took}")


def test_limits_above_the_machine_are_charged_as_they_are_with_warnings(
    libvirtd: Libvirtd, dockerd: Dockerd, tmp_path: Path
) -> None:
    extra = f"[libvirt]\nconnection_uris = {libvirtd.uri}\n"
    agent = RunningAgent(tmp_path / "agent", dockerd.url, driver="libvirt,docker", extra=extra)
    tebibyte_mb = 1 << 20
    client = dockerd.client()

    def warned() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for record in agent.store.list_warnings(HOST):
            if record.resolved_at is None:
                found.setdefault(record.warning.kind, set()).add(record.warning.item)
        return found

    try:
        agent.wait(lambda node: counts(node) == (2, 3))
        libvirtd.define(domain_xml("huge", DOMAIN_UUID, memory_mb=3 * tebibyte_mb))
        client.start(create(client, "huge", mem_limit="1024g", memswap_limit="1024g"))
        agent.wait(lambda node: node.values.memory_mb_used > 4 * tebibyte_mb)
        node = agent.node()
        assert node is not None
        assert node.guests[DOMAIN_UUID].memory_mb == 3 * tebibyte_mb
        huge = {guest.uuid for guest in node.guests.values() if guest.name == "huge"}
        assert len(huge) == 2
        wait_until(lambda: warned().get(WarningKind.GUEST_EXCEEDS_NODE) == huge)
        wait_until(lambda: warned().get(WarningKind.NODE_OVERCOMMITTED) == {MEMORY})
        assert "MiB free, 1 MiB requested" in try_claim(agent, "instance")
        libvirtd.virsh("undefine", "huge")
        client.remove_container("huge", force=True)
        agent.wait(lambda node: counts(node) == (2, 3))
        wait_until(lambda: not {"guest_exceeds_node", "node_overcommitted"} & warned().keys())
    finally:
        client.close()
        agent.stop()
