"""The agent with a real libvirtd and QEMU: rows follow virsh's actions and failures of libvirtd.

The agent audits only on events here (`update_resources_interval` -1) unless a
test sets an interval, so only an event can update a row.
"""

import json
import os
import re
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodetracker.compute.audit_queue import STOP_SECONDS
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.model.amount_text import render_mib
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest, PowerState
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import Alias, AliasSpec
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.types import HypervisorEndpoint
from tests.bench.hypervisor import define_domains, measure_hypervisor
from tests.builders import read_history
from tests.functional.read_back import Card, ReadBack
from tests.functional.servers.libvirtd import Libvirtd, domain_xml
from tests.functional.servers.placement import Placement
from tests.functional.servers.process import find_free_port
from tests.libvirt_nodes import domain, pci_device, write_node
from tests.programs import Programs, Running, wait_until

PAGES = Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB")
FIRST, SECOND = (f"6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b{number:02d}" for number in (1, 2))


@pytest.fixture(scope="module")
def shared() -> Iterator[Libvirtd]:
    server = Libvirtd()
    yield server
    server.remove()


@pytest.fixture
def libvirtd(shared: Libvirtd) -> Iterator[Libvirtd]:
    """A libvirtd that no test stops."""
    yield shared
    shared.clear()


@pytest.fixture
def private_libvirtd() -> Iterator[Libvirtd]:
    """A separate libvirtd that the test may stop."""
    server = Libvirtd()
    yield server
    server.remove()


class RunningAgent:
    """The real agent on SQLite with the libvirt driver, and views of its rows."""

    program = "nodetracker-compute"

    def __init__(
        self,
        directory: Path,
        *uris: str,
        interval: int = -1,
        driver: str = "libvirt",
        more: str = "",
        **options: Any,
    ) -> None:
        keepalive = "keepalive_interval = 1\nkeepalive_count = 3\n"
        self.programs = Programs(
            directory,
            driver=driver,
            extra=f"[libvirt]\nconnection_uris = {','.join(uris)}\n{keepalive}{more}",
            update_resources_interval=interval,
            instances_path=directory,
            **options,
        )
        self.programs.make_schema()
        self.store = open_store(DatabaseSettings(self.programs.connection))
        self.running: Running | None = None

    def __enter__(self) -> "RunningAgent":
        self.running = self.programs.start(self.program)
        self.running.wait_for("is ready")
        return self

    def __exit__(self, *details: object) -> None:
        assert self.running is not None
        self.running.__exit__()
        self.store.close()

    def restart(self) -> None:
        """End the agent's process, and start another."""
        self.start_again().wait_for("is ready")

    def start_again(self) -> Running:
        """Do the same without waiting until it is ready."""
        assert self.running is not None
        self.running.__exit__()
        self.running = self.programs.start(self.program)
        return self.running

    def output(self) -> str:
        assert self.running is not None
        return self.running.output()

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.process.pid

    def nodes(self) -> dict[str, NodeRecord]:
        return {record.nodename: record for record in self.store.load_nodes("host-1")}

    def node(self) -> NodeRecord:
        (record,) = self.nodes().values()
        return record

    def guest(self, uuid: str = FIRST) -> Guest | None:
        return self.node().guests.get(uuid)

    def service(self) -> Any:
        (service,) = self.store.list_services("host-1", COMPUTE_BINARY)
        return service

    def warnings(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for record in self.store.list_warnings("host-1"):
            if record.resolved_at is None:
                found.setdefault(record.warning.kind.value, []).append(record.warning.message)
        return found

    def wait_for_warning(self, kind: str) -> list[str]:
        """Wait until there is a warning, which is stored after the row; return its messages."""
        wait_until(lambda: kind in self.warnings())
        return self.warnings()[kind]

    def claim(self, uuid: str, **resources: int) -> dict[str, Any]:
        path = self.programs.directory / "request.json"
        path.write_text(json.dumps({"workload": {"uuid": uuid}, "resources": resources}))
        answer: dict[str, Any] = self.programs.ask("claim", "create", str(path), "--host", "host-1")
        return answer

    def follows(self, condition: Callable[[], object], what: str = "") -> float:
        """Wait until a row follows; print and return how long it took."""
        began = time.monotonic()
        wait_until(condition, interval=0.01)
        took = time.monotonic() - began
        print(f"{what}: {took:.2f} s")
        return took

    def state(self, uuid: str = FIRST) -> PowerState | None:
        guest = self.guest(uuid)
        return None if guest is None else guest.power_state


@pytest.fixture
def agent(libvirtd: Libvirtd, tmp_path: Path) -> Iterator[RunningAgent]:
    with RunningAgent(tmp_path, libvirtd.uri) as agent:
        yield agent


def test_the_row_follows_a_domain_s_whole_life_by_events(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    disk = libvirtd.create_disk("web.qcow2", "2G")
    reserved = agent.node().values.memory_mb_used
    steps: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("define", lambda: libvirtd.define(domain_xml("web", FIRST, 1, disk=disk)),
         lambda: agent.state() is PowerState.SHUTDOWN),
        ("start", lambda: libvirtd.virsh("start", "web"),
         lambda: agent.state() is PowerState.RUNNING),
        ("suspend", lambda: libvirtd.virsh("suspend", "web"),
         lambda: agent.state() is PowerState.PAUSED),
        ("resume", lambda: libvirtd.virsh("resume", "web"),
         lambda: agent.state() is PowerState.RUNNING),
        ("destroy", lambda: libvirtd.virsh("destroy", "web"),
         lambda: agent.state() is PowerState.SHUTDOWN),
        ("resize", lambda: libvirtd.define(domain_xml("web", FIRST, 2, memory_mb=96, disk=disk)),
         lambda: agent.node().values.vcpus_used == 2
         and agent.node().values.memory_mb_used == reserved + 96),
        ("undefine", lambda: libvirtd.virsh("undefine", "web"),
         lambda: agent.guest() is None),
    ]  # fmt: skip
    for what, act, condition in steps:
        act()
        agent.follows(condition, what)
        if what == "define":
            guest = agent.guest()
            assert guest is not None
            assert (guest.name, guest.vcpu_milli, guest.memory_mb) == ("web", 1000, 64)
            assert guest.disk_mb == 2048
    assert agent.node().values.memory_mb_used == reserved
    assert agent.node().values.vcpus_used == 0


def test_the_stop_within_a_restart_is_not_seen(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    """But where this machine takes longer for it than the agent waits."""
    libvirtd.define(domain_xml("web", FIRST))
    libvirtd.define(domain_xml("db", SECOND))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    seen = len(read_history(agent.store, "host-1"))
    libvirtd.virsh("reset", "web")
    agent.programs.ask("node", "audit", "host-1")  # none reads the domains during the restart
    began = time.monotonic()
    libvirtd.virsh("destroy web; resume db; start web", check=False)
    is_quick = time.monotonic() - began < STOP_SECONDS
    agent.programs.ask("node", "audit", "host-1")
    assert agent.state() is PowerState.RUNNING
    libvirtd.virsh("suspend", "web")
    agent.follows(lambda: agent.state() is PowerState.PAUSED, "suspend")
    states = [
        entry["power_state"]
        for line in read_history(agent.store, "host-1")[seen:]
        for entry in line.diff.get("guests", {}).get("changed", ())
        if entry["uuid"] == FIRST and "power_state" in entry
    ]
    stop = (
        [] if is_quick or len(states) == 1 else [["running", "shutdown"], ["shutdown", "running"]]
    )
    assert states == [*stop, ["running", "paused"]]


def test_a_saved_state_is_shown_until_the_domain_starts_from_it(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    def is_saved() -> object:
        guest = agent.guest()
        return guest is not None and (guest.details or {}).get("saved")

    libvirtd.define(domain_xml("web", FIRST))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    assert not is_saved()
    libvirtd.virsh("managedsave", "web")
    agent.follows(is_saved, "managedsave")
    assert agent.state() is PowerState.SHUTDOWN
    (place,) = agent.programs.ask("workload", "show", "web")["places"]
    assert place["details"]["saved"] is True
    assert "guest web: details.saved" in agent.programs.manage("events").stdout
    libvirtd.virsh("start", "web")
    agent.follows(lambda: not is_saved(), "start from it")


def test_an_attached_disk_is_seen_by_its_event(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    disk, more = libvirtd.create_disk("a.qcow2", "1G"), libvirtd.create_disk("b.qcow2", "3G")
    libvirtd.define(domain_xml("web", FIRST, disk=disk))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    libvirtd.virsh("attach-disk", "web", str(more), "vdb", "--subdriver", "qcow2")
    agent.follows(lambda: agent.node().guests[FIRST].disk_mb == 4096, "attach-disk")


def test_an_owner_that_is_written_is_seen_by_its_event(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    libvirtd.define(domain_xml("web", FIRST))
    agent.follows(lambda: agent.guest() is not None, "define")
    namespace = "http://openstack.org/xmlns/libvirt/nova/1.1"
    owner = '<instance><owner><project uuid="p1">shop</project></owner></instance>'
    libvirtd.virsh("metadata", "web", namespace, "--key", "nova", "--set", owner)
    agent.follows(lambda: getattr(agent.guest(), "project_id", "") == "p1", "owner")


def test_what_running_domains_use_is_written_with_other_changes(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    libvirtd.define(domain_xml("web", FIRST))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    namespace = "http://openstack.org/xmlns/libvirt/nova/1.1"
    for number in range(50):  # measured usage alone does not cause a write
        owner = f'<instance><owner><project uuid="p{number}">shop</project></owner></instance>'
        libvirtd.virsh("metadata", "web", namespace, "--key", "nova", "--set", owner)
        agent.follows(lambda: agent.guest().project_id == f"p{number}", "owner")  # noqa: B023
        metrics = agent.node().values.metrics
        if metrics.keys() >= {"instances_cpu_used_milli", "instances_memory_used_mb"}:
            break
    assert 0 < metrics["instances_memory_used_mb"] < 1000
    assert metrics["instances_cpu_used_milli"] >= 0
    shown = agent.programs.ask("node", "show", "host-1")["measured"]
    (text,) = (item["text"] for item in shown if item["label"] == "Guests")
    assert re.fullmatch(r"\d+\.\d CPUs and \d+ MiB of memory in use", text)


def test_a_domain_with_many_devices_is_read_completely(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    more = """
      <maxMemory slots='4' unit='GiB'>4</maxMemory>
      <memoryBacking><hugepages><page size='2048' nodeset='0'/></hugepages></memoryBacking>
      <numatune><memory mode='strict' nodeset='0'/></numatune>
      <vcpus><vcpu id='0' enabled='yes' hotpluggable='no'/>
        <vcpu id='1' enabled='no' hotpluggable='yes'/>
        <vcpu id='2' enabled='yes' hotpluggable='yes'/></vcpus>
      <cputune><vcpupin vcpu='1' cpuset='0'/><vcpupin vcpu='2' cpuset='1'/></cputune>
      <cpu><numa><cell id='0' cpus='0' memory='64' unit='MiB'/>
        <cell id='1' cpus='1-2' memory='32' unit='MiB'/></numa></cpu>"""
    devices = """
      <memory model='dimm'><target><size unit='MiB'>128</size><node>1</node></target></memory>
      <disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>
      <disk type='file' device='floppy'><target dev='fda' bus='fdc'/></disk>
      <disk type='nvme' device='disk'><driver name='qemu' type='raw'/>
        <source type='pci' managed='yes' namespace='1'>
          <address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></source>
        <target dev='vdb' bus='virtio'/></disk>
      <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>
        <address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>"""
    libvirtd.define(
        domain_xml("web", FIRST, 2, vcpus_max=3, memory_mb=224, more=more, devices=devices)
    )
    agent.follows(lambda: agent.guest() is not None, "define")
    guest = agent.guest()
    assert guest is not None
    assert (guest.vcpu_milli, guest.memory_mb, guest.disk_mb) == (2000, 224, 0)
    sizes = [(cell.page_size_kb, cell.memory_mb, cell.pages) for cell in guest.pins.cells]
    assert sizes == [(None, 160, 0), (2048, 64, 32)]
    assert guest.pins.devices == ("0000:81:00.0",)
    assert guest.details == {
        "vcpus_max": 3,
        "host_devices": ["mdev c2177883-f1bb-47f0-914d-32a22e3a8804"],
        "disks_elsewhere": ["vdb"],
    }


@pytest.mark.skipif(not PAGES.exists(), reason="needs a kernel with pages of 2 MiB")
def test_libvirt_reports_the_free_huge_pages_of_a_cell(libvirtd: Libvirtd) -> None:
    from nodetracker.virt.libvirt.client import open_client

    client = open_client(HypervisorEndpoint(libvirtd.uri))
    found = client.get_free_pages([2048], 0, 1)
    client.close()
    assert found == {0: {2048: int((PAGES / "free_hugepages").read_text())}}


def test_pinned_vcpus_are_kept_from_claims(libvirtd: Libvirtd, tmp_path: Path) -> None:
    sets = {"cpu_shared_set": "0", "cpu_dedicated_set": "1"}
    with RunningAgent(tmp_path, libvirtd.uri, **sets) as agent:
        libvirtd.define(domain_xml("web", FIRST))
        libvirtd.virsh("start", "web")
        agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
        assert (agent.node().values.vcpus_used, agent.node().values.pcpus_used) == (1, 0)
        libvirtd.virsh("vcpupin", "web", "0", "1", "--live")
        agent.follows(lambda: agent.node().values.pcpus_used == 1, "vcpupin")
        (cell,) = agent.node().values.numa_topology["cells"]
        assert cell["pinned_cpus"] == [1]
        assert agent.node().guests[FIRST].pins.pcpus == 1
        request = tmp_path / "pinned.json"
        request.write_text(json.dumps({"workload": {"uuid": SECOND}, "resources": {"PCPU": 1}}))
        refused = agent.programs.manage("claim", "create", str(request), "--host", "host-1")
        assert refused.returncode == 1
        assert "NUMA" in refused.stderr
        libvirtd.virsh("vcpupin", "web", "0", "0", "--live")
        agent.follows(lambda: agent.node().values.pcpus_used == 0, "vcpupin")
        libvirtd.virsh("emulatorpin", "web", "1", "--live")
        agent.follows(
            lambda: agent.node().values.numa_topology["cells"][0]["pinned_cpus"] == [1],
            "emulatorpin",
        )
        assert (agent.node().values.vcpus_used, agent.node().values.pcpus_used) == (1, 1)
        refused = agent.programs.manage("claim", "create", str(request), "--host", "host-1")
        assert refused.returncode == 1
        libvirtd.virsh("emulatorpin", "web", "0-1", "--live")  # all of the host's CPUs
        agent.follows(lambda: agent.node().values.pcpus_used == 0, "unpinned")


def test_memory_is_the_kernel_s_and_a_different_value_of_libvirt_raises_a_warning(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    total = read_memory_info(Roots()).total_mb
    assert agent.node().values.memory_mb == total
    reported = int(re.findall(r"Memory size: +(\d+)", libvirtd.virsh("nodeinfo"))[0]) // 1024
    is_off = abs(reported - total) * 10 > total
    found = [text for text in agent.warnings().get("memory_mismatch", []) if "node info" in text]
    assert bool(found) == is_off, (reported, total)
    assert all(f"the kernel {render_mib(total)};" in text for text in found)


def test_a_domain_has_its_name_and_uuid(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    libvirtd.define(domain_xml("web ", FIRST))
    agent.follows(lambda: agent.guest(), "define")
    (row,) = agent.programs.ask("workload", "list")
    assert (row["uuid"], row["name"], row["power_state"]) == (FIRST, "web ", "shutdown")
    (vcpus, *_) = agent.programs.ask("node", "diff", "host-1")
    assert vcpus["hypervisor"] == 1
    shown = agent.programs.ask("node", "show", "host-1")
    assert shown["hypervisor_type"] == "QEMU"
    assert ["x86_64", "qemu", "hvm"] in shown["supported_instances"]
    assert shown["cpu_info"]["features"]
    nodeinfo = dict(re.findall(r"(.+): +(\d+)\n", libvirtd.virsh("nodeinfo")))
    assert shown["cpu_info"]["topology"] == {
        "cells": int(nodeinfo["NUMA cell(s)"]),
        "sockets": int(nodeinfo["CPU socket(s)"]),
        "cores": int(nodeinfo["Core(s) per socket"]),
        "threads": int(nodeinfo["Thread(s) per core"]),
    }


def test_the_whole_life_of_a_workload_with_a_claim(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    claim = agent.claim(FIRST, VCPU=2, MEMORY_MB=128)

    def is_claim(state: str) -> bool:
        return agent.programs.ask("claim", "show", claim["uuid"])["state"] == state

    assert is_claim("held")
    used = agent.node().values.memory_mb_used
    libvirtd.define(domain_xml("web", FIRST, 1))
    wait_until(lambda: is_claim("confirmed"))
    assert agent.node().values.memory_mb_used == used
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    libvirtd.virsh("destroy", "web")
    agent.follows(lambda: agent.state() is PowerState.SHUTDOWN, "destroy")
    assert is_claim("confirmed")
    libvirtd.virsh("undefine", "web")
    agent.follows(lambda: agent.guest() is None, "undefine")
    assert agent.programs.ask("claim", "show", claim["uuid"])["reason"] == "deleted"
    assert agent.node().values.vcpus_used == 0


def test_a_claim_of_a_guest_that_is_deleted_at_once_is_released(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    libvirtd.define(domain_xml("web", FIRST, 1))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    claim = agent.claim(FIRST, MEMORY_MB=64)
    libvirtd.virsh("destroy", "web")
    libvirtd.virsh("undefine", "web")
    agent.follows(lambda: agent.guest() is None, "undefine")
    assert agent.programs.ask("claim", "show", claim["uuid"])["reason"] == "deleted"
    assert agent.node().claims == {}


def test_placement_has_what_the_rows_of_two_hypervisors_say(
    libvirtd: Libvirtd, placement: Placement, tmp_path: Path
) -> None:
    """The second one is simulated, as QEMU without hardware has no cards to pass on."""
    real, simulated = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("real", "cards"))
    address, third = "0000:81:00.0", FIRST.replace("6a", "7a")
    devices = pci_device(address, 0) + pci_device("0000:82:00.0", 0) + domain("sim", third, 2)
    uri = write_node(tmp_path / "cards.xml", cores=8, memory_mb=16384, more=devices)
    programs = Programs(
        tmp_path, driver="libvirt", update_resources_interval=1, instances_path=tmp_path,
        extra=f"[libvirt]\nconnection_uris = {real}={libvirtd.uri},{simulated}={uri}\n"
        '[pci]\nreport_in_placement = true\ndevice_spec = {"product_id": "10fb"}\n'
        + placement.configuration(),
    )  # fmt: skip
    programs.make_schema()
    for name, guest in (("web", FIRST), ("db", SECOND)):
        libvirtd.define(domain_xml(name, guest))
    libvirtd.virsh("start", "web")
    aliases = {"nic": Alias("nic", (AliasSpec("8086", "10fb"),))}
    host = ReadBack(programs, placement, aliases)
    try:
        with programs.start() as agent:
            agent.wait_for("is ready")
            host.claim(real, FIRST, resources={"VCPU": 1, "MEMORY_MB": 64})
            host.claim(real, resources={"VCPU": 1, "MEMORY_MB": 128, "DISK_GB": 1})
            host.claim(simulated, third, resources={"VCPU": 2}, pci_requests=[{"alias": "nic"}])
            host.wait()
            cards = {a: Card("CUSTOM_PCI_8086_10FB", 1) for a in (address, "0000:82:00.0")}
            (claimed,) = (d.address for d in host.node(simulated).devices.values() if d.claim_uuid)
            cards[claimed] = Card("CUSTOM_PCI_8086_10FB", 1, 1)
            host.check(real)
            host.check(simulated, cards)
            assert host.node(real).guests.keys() == {FIRST, SECOND}
    finally:
        host.close()


def test_a_missing_disk_is_one_warning_and_its_guest_counts(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    disk = libvirtd.create_disk("lost.qcow2", "1G")
    libvirtd.define(domain_xml("web", FIRST, 2, disk=disk))
    agent.follows(lambda: agent.guest(), "define")
    disk.unlink()
    libvirtd.define(domain_xml("web", FIRST, 1, disk=disk))
    agent.follows(lambda: agent.node().values.vcpus_used == 1, "define again")
    (message,) = agent.wait_for_warning("disk_unreadable")
    assert "web/vda" in message
    assert str(disk) in message
    guest = agent.guest()
    assert guest is not None
    assert guest.disk_mb == 1024  # as last known
    libvirtd.virsh("undefine", "web")
    agent.follows(lambda: "disk_unreadable" not in agent.warnings(), "undefine")


def test_disk_available_least_counts_what_disks_may_grow_by(
    libvirtd: Libvirtd, agent: RunningAgent, tmp_path: Path
) -> None:
    free_gb = agent.node().values.disk_available_least
    assert free_gb is not None
    libvirtd.define(domain_xml("web", FIRST, disk=libvirtd.create_disk("big.qcow2", "50G")))
    agent.follows(lambda: agent.guest(), "define")
    least = agent.node().values.disk_available_least
    assert least is not None
    assert free_gb - 52 <= least <= free_gb - 49


# Failures of libvirtd.


def test_a_libvirtd_that_stops_holds_the_row_and_marks_the_service(
    private_libvirtd: Libvirtd, tmp_path: Path
) -> None:
    private_libvirtd.define(domain_xml("web", FIRST))
    with RunningAgent(tmp_path, private_libvirtd.uri) as agent:
        before = agent.node()
        private_libvirtd.stop()
        agent.follows(lambda: agent.service().disabled, "stopped")
        assert agent.service().disabled_reason.startswith("AUTO: qemu:///system")
        held = agent.node()
        assert held.guests == before.guests
        assert held.values.memory_mb == before.values.memory_mb
        assert held.values.facts["memory"].state.value == "held"
        agent.wait_for_warning("driver_not_ready")
        private_libvirtd.start()
        wait_until(lambda: not agent.service().disabled)
        wait_until(lambda: agent.node().values.facts["memory"].state.value == "fresh")
        assert agent.service().disabled_reason is None
        wait_until(lambda: agent.warnings().keys() <= {"memory_mismatch"})
        private_libvirtd.virsh("start", "web")
        agent.follows(lambda: agent.state() is PowerState.RUNNING, "start after a restart")


def test_changes_while_libvirtd_was_down_are_seen_when_it_is_back(
    private_libvirtd: Libvirtd, tmp_path: Path
) -> None:
    private_libvirtd.define(domain_xml("web", FIRST))
    with RunningAgent(tmp_path, private_libvirtd.uri) as agent:
        agent.store.set_service("host-1", COMPUTE_BINARY, ServiceChange(True, "disk swap"))
        private_libvirtd.kill_daemon()
        agent.wait_for_warning("driver_not_ready")
        assert agent.service().disabled_reason == "disk swap"
        (private_libvirtd.directory / "etc" / "qemu" / "web.xml").unlink()
        private_libvirtd.start()
        wait_until(lambda: agent.guest() is None)
        assert (agent.service().disabled, agent.service().disabled_reason) == (True, "disk swap")


def count_threads(pid: int) -> int:
    return psutil.Process(pid).num_threads()


def count_audits(port: int) -> int:
    """Return how many audits an agent has ended, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.findall(r"(?m)^nodetracker_audits_total{.*} (.*)$", answer.read().decode())
    return int(sum(map(float, found)))


def test_a_frozen_libvirtd_costs_no_thread_per_audit_and_all_recovers(
    private_libvirtd: Libvirtd, tmp_path: Path
) -> None:
    private_libvirtd.define(domain_xml("web", FIRST))
    port = find_free_port()
    options: dict[str, Any] = {"interval": 1, "probe_timeout": 2, "metrics_port": port}
    with RunningAgent(tmp_path, private_libvirtd.uri, **options) as agent:
        wait_until(lambda: "Metrics and health: serving on" in agent.output())
        before = len(agent.output())
        private_libvirtd.freeze()
        try:
            wait_until(lambda: agent.service().disabled)
            most: dict[int, int] = {}  # audit -> threads
            first = count_audits(port)

            def note() -> bool:
                number = count_audits(port) - first
                most[number] = max(most.get(number, 0), count_threads(agent.pid))
                return number >= 8

            wait_until(note, 240, 0.2)
            print(most)
            assert max(most.values()) <= 30, most
            early, late = (
                max(count for audit, count in most.items() if (audit >= 4) == is_late)
                for is_late in (False, True)
            )
            assert late <= early, most
            assert agent.node().guests
            facts = agent.node().values.facts
            assert {name for name, fact in facts.items() if fact.state is FactState.FRESH} == {
                "system", "storage", "gpus",
            }  # fmt: skip
            assert facts["guests"].state is FactState.HELD
            # A busy machine may answer late before the freeze and after the thaw.
            said = agent.output()[before:].splitlines()
        finally:
            private_libvirtd.thaw()
        wait_until(lambda: not agent.service().disabled)
        wait_until(lambda: agent.node().values.facts["guests"].state.value == "fresh")
        private_libvirtd.virsh("start", "web")
        wait_until(lambda: agent.state() is PowerState.RUNNING)
        about = [line for line in said if " WARNING " in line and private_libvirtd.uri in line]
        # Each once, by its name and source; amounts are also read over further connections.
        probes = re.findall(r"Probe (\w+ of .+): ", "\n".join(about))
        assert probes
        assert len(probes) == len(set(probes)), about
        assert len(about) <= len(probes) + 1, about  # the connection breaks, once


def test_a_frozen_qemu_changes_no_amount_and_is_named(
    private_libvirtd: Libvirtd, tmp_path: Path
) -> None:
    def define(name: str, uuid: str, size: str) -> None:
        disk = private_libvirtd.create_disk(f"{name}.qcow2", size)
        private_libvirtd.define(domain_xml(name, uuid, disk=disk))

    def is_whole() -> bool:
        used = {guest.name: guest.disk_mb for guest in agent.node().guests.values()}
        return used == {"web": 5120, "db": 2048} and agent.node().values.local_gb_used == 7

    def is_held() -> bool:
        fact = agent.node().values.facts["guests"]
        return fact.state is FactState.HELD and "domain web" in str(fact.error)

    define("web", FIRST, "5G")
    private_libvirtd.virsh("start", "web")
    options: dict[str, Any] = {"interval": 1, "probe_timeout": 4}
    pid = int((private_libvirtd.directory / "run" / "qemu" / "web.pid").read_text())
    with RunningAgent(tmp_path / "a", private_libvirtd.uri, **options) as agent:
        wait_until(lambda: agent.state() is PowerState.RUNNING)
        os.kill(pid, signal.SIGSTOP)
        try:
            define("db", SECOND, "2G")
            wait_until(is_whole)
            wait_until(is_held)
            (message,) = agent.wait_for_warning("guest_unreadable")
            assert message == "domain web: its emulator does not answer"
            seen = len(read_history(agent.store, "host-1"))
            agent.restart()
            wait_until(is_held)
            changes = [line.diff for line in read_history(agent.store, "host-1")[seen:]]
            assert not any("guests" in diff or "local_gb_used" in diff for diff in changes)
            assert is_whole()
            fresh = Programs(tmp_path / "b", host="host-2")
            uri = f"other={private_libvirtd.uri}"
            fresh.configure(driver="libvirt", extra=f"[libvirt]\nconnection_uris = {uri}\n")
            fresh.make_schema()
            once = fresh.run("nodetracker-compute", "--once")
            assert once.returncode == 1
            shown = fresh.manage("node", "show", "host-2", "-f", "json", "--all").stdout
            fact = json.loads(shown)["facts"]["guests"]
            # The document and the image say what it uses, so that claims go on.
            assert (fact["state"], fact["unseen_kinds"]) == ("held", [])
            assert "domain web: its emulator does not answer" in fact["error"]
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: agent.node().values.facts["guests"].state is FactState.FRESH)
        wait_until(lambda: "guest_unreadable" not in agent.warnings())
        assert is_whole()


def test_a_domain_that_is_defined_and_started_at_once_never_lacks_its_disk(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    for number in range(3):
        name, uuid = f"vm-{number}", f"6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b1{number}"
        xml = libvirtd.directory / f"{name}.xml"
        xml.write_text(domain_xml(name, uuid, disk=libvirtd.create_disk(f"{name}.qcow2", "4G")))
        libvirtd.virsh(f"define {xml}; start {name}")
        agent.follows(lambda uuid=uuid: agent.state(uuid) is PowerState.RUNNING, "start")
    changes = [line.diff.get("guests", {}) for line in read_history(agent.store, "host-1")]
    sizes = [guest["disk_mb"] for diff in changes for guest in diff.get("added", ())]
    assert sizes == [4096] * 3
    assert not any("disk_mb" in guest for diff in changes for guest in diff.get("changed", ()))


def test_a_volume_of_a_domain_that_is_off_counts_as_its_pool_reports(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    target = libvirtd.directory / "images"
    target.mkdir()
    volume = """<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>
      <source pool='images' volume='web.qcow2'/><target dev='vda' bus='virtio'/></disk>"""
    libvirtd.virsh("pool-create-as", "images", "dir", "--target", str(target))
    try:
        libvirtd.virsh("vol-create-as", "images", "web.qcow2", "6G", "--format", "qcow2")
        libvirtd.define(domain_xml("web", FIRST, devices=volume))
        agent.follows(lambda: agent.guest() is not None, "define")
        assert agent.node().guests[FIRST].disk_mb == 6144
        libvirtd.virsh("vol-resize", "web.qcow2", "8G", "--pool", "images")
        agent.programs.ask("node", "audit", "host-1")
        assert agent.node().guests[FIRST].disk_mb == 8192
        libvirtd.define(domain_xml("db", SECOND, devices=volume.replace("web.q", "lost.q")))
        agent.follows(lambda: agent.guest(SECOND) is not None, "define without a volume")
        (message,) = agent.wait_for_warning("disk_unreadable")
        assert message.startswith("db/vda: volume lost.qcow2 of pool images: its size is unknown: ")
    finally:
        libvirtd.virsh("pool-destroy", "images")


@pytest.mark.parametrize("interval", [-1, 1])
def test_one_hypervisor_that_is_down_does_not_affect_the_others(
    private_libvirtd: Libvirtd, libvirtd: Libvirtd, tmp_path: Path, interval: int
) -> None:
    uris = f"one={private_libvirtd.uri}", f"two={libvirtd.uri}"
    with RunningAgent(tmp_path, *uris, interval=interval) as agent:
        assert set(agent.nodes()) == {"one", "two"}
        private_libvirtd.freeze()
        try:
            libvirtd.define(domain_xml("db", SECOND))
            agent.follows(lambda: SECOND in agent.nodes()["two"].guests, "beside a frozen one")
            # By now an audit waits for the frozen hypervisor.
            libvirtd.define(domain_xml("web", FIRST))
            agent.follows(lambda: FIRST in agent.nodes()["two"].guests, "beside a frozen one")
        finally:
            private_libvirtd.thaw()
        private_libvirtd.stop()
        wait_until(lambda: agent.nodes()["one"].values.facts["cpu"].state.value == "held")
        assert not agent.service().disabled
        libvirtd.virsh("undefine", "web")
        agent.follows(lambda: FIRST not in agent.nodes()["two"].guests, "beside a dead one")
        assert set(agent.nodes()) == {"one", "two"}


def test_two_agents_do_not_manage_one_hypervisor(libvirtd: Libvirtd, tmp_path: Path) -> None:
    with RunningAgent(tmp_path / "a", libvirtd.uri) as agent:
        other = Programs(tmp_path / "b", agent.programs.connection, host="host-2")
        other.configure(
            driver="libvirt", extra=f"[libvirt]\nconnection_uris = mine={libvirtd.uri}\n"
        )
        done = other.run("nodetracker-compute", "--once")
        assert done.returncode == 1
        assert "host-1" in done.stdout
        assert agent.store.load_nodes("host-2") == []


def test_a_storm_of_events_is_few_audits(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    libvirtd.define(domain_xml("web", FIRST))
    libvirtd.virsh("start", "web")
    agent.follows(lambda: agent.state() is PowerState.RUNNING, "start")
    before, began = len(read_history(agent.store, "host-1")), time.monotonic()
    threads = [
        threading.Thread(
            target=libvirtd.virsh,
            args=("; ".join(["suspend web", "resume web"] * 20),),
            kwargs={"check": False},
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libvirtd.virsh("destroy", "web")
    agent.follows(lambda: agent.state() is PowerState.SHUTDOWN, "destroy after a storm")
    # Events in a row are at most one audit in 0.8 s, and a pause is one at its end.
    most = 10 + (time.monotonic() - began) / 0.8
    assert len(read_history(agent.store, "host-1")) - before <= most


def test_two_hundred_domains_cost_few_round_trips_and_no_write(
    private_libvirtd: Libvirtd, tmp_path: Path
) -> None:
    define_domains(private_libvirtd, 200)
    store = open_store(DatabaseSettings(f"sqlite:///{tmp_path}/bench.sqlite"))
    revisions.sync(store.engine)
    costs = measure_hypervisor(private_libvirtd, store, tmp_path)
    store.close()
    print(costs)
    assert costs.domains == 200
    assert costs.steady_round_trips <= 10
    assert costs.statements <= 3
    assert costs.writes == 0
