"""A real libvirtd, and a real dockerd, that ask a real agent before a guest starts."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

from nodetracker.hooks import docker as docker_hook
from nodetracker.hooks import libvirt as libvirt_hook
from nodetracker.hooks.files import read_program
from nodetracker.hooks.libvirt import LibvirtHook
from nodetracker.model.guest import PowerState
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.roots import Roots
from tests.functional.conductors import Conductor
from tests.functional.runs import patient_agent
from tests.functional.servers.engines import IMAGE, SLEEP
from tests.functional.servers.libvirtd import Libvirtd, domain_xml
from tests.functional.test_docker_plugin import Host
from tests.functional.test_libvirt import FIRST, SECOND, RunningAgent
from tests.programs import Programs, wait_until

HOOKS = (docker_hook, libvirt_hook)
FREE_MB = 1100
SIZE_MB = 256
FITTING = FREE_MB // SIZE_MB


class PatientAgent(RunningAgent):
    """An agent at whose door a question waits as long as it takes."""

    program = patient_agent.__name__


@pytest.fixture
def patience() -> int:
    """Seconds that hooks wait for an agent on a busy machine, less than Docker for its plugin."""
    return 25


@pytest.fixture(autouse=True)
def _patient_hooks(monkeypatch: pytest.MonkeyPatch, patience: int) -> None:
    """Install hooks that wait longer than those that ship, after which a guest starts anyway."""

    def read_patient(name: str) -> str:
        text = read_program(name)
        text = text.replace(
            "timeout --foreground -s KILL 2 ", f"timeout --foreground -s KILL {patience} "
        )
        text = text.replace("WatchdogSec=3", f"WatchdogSec={patience}")
        return re.sub(r"(?m)^(\w+_SECONDS) = .*", rf"\1 = {patience}", text)

    for hook in HOOKS:
        monkeypatch.setattr(hook, "read_program", read_patient)


@pytest.fixture
def libvirtd(tmp_path: Path) -> Iterator[Libvirtd]:
    """A libvirtd with the hook."""
    server = Libvirtd()
    install(server, tmp_path)
    yield server
    server.remove()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Libvirtd]:
    """That of another host, with the hook."""
    server = Libvirtd(hostname="other")
    install(server, tmp_path / "other")
    yield server
    server.remove()


def install(libvirtd: Libvirtd, directory: Path) -> None:
    """Install the hook for an agent; libvirtd looks for hooks when it starts."""
    root = directory / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/libvirt").symlink_to(libvirtd.directory / "etc")
    LibvirtHook(root).install(directory / "state/admission.sock", "allow")
    libvirtd.stop()
    libvirtd.start()


@pytest.fixture
def agent(libvirtd: Libvirtd, tmp_path: Path) -> Iterator[RunningAgent]:
    """An agent whose node has `FREE_MB` left."""
    total_mb = read_memory_info(Roots()).total_mb
    with PatientAgent(
        tmp_path,
        libvirtd.uri,
        inactive_guests="ignored",
        admission="enforce",
        reserved_host_memory_mb=total_mb - FREE_MB,
    ) as agent:
        yield agent


def define(libvirtd: Libvirtd, count: int, memory_mb: int = SIZE_MB) -> list[str]:
    names = [f"vm-{number}" for number in range(count)]
    for name in names:
        libvirtd.define(domain_xml(name, str(uuid4()), memory_mb=memory_mb))
    return names


def start(libvirtd: Libvirtd, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["virsh", "-q", "-c", libvirtd.uri, "start", name],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def list_running(libvirtd: Libvirtd) -> list[str]:
    return libvirtd.virsh("list", "--name").split()


def test_domains_are_started_until_the_host_is_full(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    names = define(libvirtd, FITTING + 4)
    wait_until(lambda: len(agent.node().guests) == len(names))
    values = agent.node().values
    assert values.free_ram_mb == FREE_MB  # none of those that are off counts
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda name: start(libvirtd, name), names))
    refused = [item.stderr for item in done if item.returncode]
    assert len(list_running(libvirtd)) == FITTING
    assert len(refused) == 4
    for text in refused:
        assert "Hook script execution failed" in text
        assert re.search(rf"nodetracker: memory: {SIZE_MB} MiB requested, \d+ MiB free on", text)
    wait_until(lambda: agent.node().values.free_ram_mb == FREE_MB - FITTING * SIZE_MB)
    wait_until(lambda: all(c.state == "confirmed" for c in agent.node().claims.values()))
    assert agent.programs.manage("admission", "list").returncode == 0


def test_describe_tells_what_becomes_of_guests_that_do_not_fit(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    def describe() -> str:
        return agent.programs.manage("node", "describe", "host-1", agent.node().nodename).stdout

    told = "libvirt starts no guest that does not fit"
    assert told in describe()
    os.kill(agent.pid, signal.SIGHUP)
    wait_until(lambda: "Configuration reloaded" in agent.output())
    define(libvirtd, 1)
    wait_until(lambda: len(agent.node().guests) == 1)
    assert told in describe()


def test_where_it_only_warns_all_start_and_the_last_is_named(
    libvirtd: Libvirtd, tmp_path: Path
) -> None:
    total_mb = read_memory_info(Roots()).total_mb
    with PatientAgent(
        tmp_path,
        libvirtd.uri,
        inactive_guests="ignored",
        admission="warn",
        reserved_host_memory_mb=total_mb - FREE_MB,
    ) as agent:
        names = define(libvirtd, FITTING + 1)
        assert [start(libvirtd, name).returncode for name in names] == [0] * len(names)
        wait_until(lambda: agent.node().values.free_ram_mb == FREE_MB - len(names) * SIZE_MB)
        assert agent.programs.manage("node", "audit", "host-1").returncode == 0
        wait_until(lambda: "start_unfit" in agent.warnings())
        (message,) = agent.warnings()["start_unfit"]
        assert names[-1] in message
        assert f"memory: {SIZE_MB} MiB requested" in message


def test_dedicated_cpus_are_given_once(libvirtd: Libvirtd, tmp_path: Path) -> None:
    pin = '<cputune><vcpupin vcpu="0" cpuset="0"/></cputune>'
    with PatientAgent(
        tmp_path,
        libvirtd.uri,
        inactive_guests="ignored",
        admission="enforce",
        cpu_dedicated_set="0",
        cpu_shared_set="1",
    ) as agent:
        for name, uuid in (("web", FIRST), ("db", SECOND)):
            libvirtd.define(domain_xml(name, uuid, more=pin))
        assert start(libvirtd, "web").returncode == 0
        refused = start(libvirtd, "db")
        assert refused.returncode
        assert "CPU 0" in refused.stderr
        libvirtd.virsh("destroy", "web")
        assert start(libvirtd, "db").returncode == 0
        assert agent.node().values.free_ram_mb > 0


def test_an_agent_without_a_database_answers_as_well(libvirtd: Libvirtd, tmp_path: Path) -> None:
    total_mb = read_memory_info(Roots()).total_mb
    conductor = Conductor(tmp_path / "conductor", f"sqlite:///{tmp_path}/conductor.sqlite")
    conductor.make_schema()
    (tmp_path / "token").write_text(conductor.make_token())
    with conductor.start_conductor():
        agent = PatientAgent(
            tmp_path,
            libvirtd.uri,
            more=f"[conductor]\nuse_local = false\nendpoint = {conductor.endpoint}\n"
            f"join_token_file = {tmp_path}/token\n",
            inactive_guests="ignored",
            admission="enforce",
            reserved_host_memory_mb=total_mb - FREE_MB,
        )
        with agent:
            names = define(libvirtd, FITTING + 1)
            assert [start(libvirtd, name).returncode for name in names] == [0] * FITTING + [1]
            claims = conductor.ask("claim", "list")
            assert len(claims) == FITTING
            libvirtd.virsh("destroy", names[0])
            assert start(libvirtd, names[-1]).returncode == 0


def test_a_domain_that_stops_makes_room(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    for name in (names := define(libvirtd, FITTING + 1))[:-1]:
        assert start(libvirtd, name).returncode == 0
    assert start(libvirtd, names[-1]).returncode
    libvirtd.virsh("destroy", names[0])
    assert start(libvirtd, names[-1]).returncode == 0
    assert len(agent.node().claims) == FITTING


def test_a_start_that_fails_gives_back_its_room(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    more = (
        '<commandline xmlns="http://libvirt.org/schemas/domain/qemu/1.0"><arg value="-broken"/>'
        "</commandline>"
    )
    libvirtd.define(domain_xml("web", FIRST, memory_mb=SIZE_MB, more=more))
    assert start(libvirtd, "web").returncode
    wait_until(lambda: agent.node().claims == {})
    assert agent.node().values.free_ram_mb == FREE_MB


def test_a_restored_domain_asks_again(libvirtd: Libvirtd, agent: RunningAgent) -> None:
    saved = libvirtd.directory / "saved"
    libvirtd.define(domain_xml("web", FIRST, memory_mb=1000))
    libvirtd.define(domain_xml("other", SECOND, memory_mb=1000))
    assert start(libvirtd, "web").returncode == 0
    wait_until(lambda: agent.state(FIRST) is PowerState.RUNNING)
    libvirtd.virsh("save", "web", str(saved))
    assert start(libvirtd, "other").returncode == 0
    wait_until(lambda: agent.state(SECOND) is PowerState.RUNNING)
    with pytest.raises(AssertionError, match=r"nodetracker: memory: 1000 MiB requested, 100 MiB"):
        libvirtd.virsh("restore", str(saved))
    libvirtd.virsh("destroy", "other")
    libvirtd.virsh("restore", str(saved))
    assert list_running(libvirtd) == ["web"]


@pytest.mark.parametrize("patience", [2])
@pytest.mark.parametrize("state", ["killed", "frozen", "without its database"])
def test_without_an_answer_libvirt_goes_on(
    libvirtd: Libvirtd, agent: RunningAgent, state: str
) -> None:
    libvirtd.define(domain_xml("before", SECOND, memory_mb=SIZE_MB))
    assert start(libvirtd, "before").returncode == 0
    wait_until(lambda: agent.state(SECOND) is PowerState.RUNNING)
    rival = sqlite3.connect(agent.programs.connection.removeprefix("sqlite:///"))
    if state == "killed":
        os.kill(agent.pid, signal.SIGKILL)
    elif state == "frozen":
        os.kill(agent.pid, signal.SIGSTOP)
    else:
        rival.execute("BEGIN EXCLUSIVE")
    libvirtd.define(domain_xml("web", FIRST, memory_mb=5000))
    began = time.monotonic()
    assert start(libvirtd, "web").returncode == 0
    print(f"{state}: {time.monotonic() - began:.2f} s")
    assert sorted(list_running(libvirtd)) == ["before", "web"]
    libvirtd.stop()
    libvirtd.start()
    assert sorted(list_running(libvirtd)) == ["before", "web"]
    if state == "killed":
        agent.restart()
    elif state == "frozen":
        os.kill(agent.pid, signal.SIGCONT)
    else:
        rival.rollback()
    wait_until(lambda: agent.state() is PowerState.RUNNING)
    wait_until(lambda: agent.node().values.free_ram_mb == FREE_MB - SIZE_MB - 5000)
    wait_until(lambda: "1 guest started without a question: web" in agent.output())


def test_after_a_restart_of_the_machine_all_that_fit_start(
    libvirtd: Libvirtd, agent: RunningAgent
) -> None:
    """Before the agent's first audit, too: it answers from the stored row."""
    names = define(libvirtd, 20)
    for name in names:
        libvirtd.virsh("autostart", name)
    wait_until(lambda: len(agent.node().guests) == len(names))
    libvirtd.stop()
    os.kill(agent.pid, signal.SIGKILL)
    for marker in libvirtd.directory.glob("run/**/autostarted"):  # gone with /run
        marker.unlink()
    running = agent.start_again()
    door = agent.programs.directory / "state/admission.sock"
    wait_until(lambda: is_answering(door))  # as the drop-in of libvirtd does
    libvirtd.start()
    running.wait_for("is ready")
    wait_until(lambda: len(list_starts(agent)) == len(names))
    assert len(list_running(libvirtd)) == FITTING
    outcomes = Counter(item["outcome"] for item in list_starts(agent))
    assert outcomes == {"admitted": FITTING, "refused": len(names) - FITTING}


def is_answering(door: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(door))
        except OSError:
            return False
        connection.sendall(b'{"ask": "list"}\n')
        return bool(connection.recv(1))


def list_starts(agent: RunningAgent) -> list[dict[str, str]]:
    found: list[dict[str, str]] = agent.programs.ask("admission", "list")
    return found


def test_a_live_migration_asks_at_its_destination(
    libvirtd: Libvirtd, agent: RunningAgent, other: Libvirtd, tmp_path: Path
) -> None:
    """And the workload has one claim in the end, without a warning on the way."""
    total_mb = read_memory_info(Roots()).total_mb
    programs = Programs(
        tmp_path / "other",
        connection=agent.programs.connection,
        host="host-2",
        driver="libvirt",
        extra=f"[libvirt]\nconnection_uris = {other.uri}\n",
        inactive_guests="ignored",
        admission="enforce",
        reserved_host_memory_mb=total_mb - FREE_MB,
    )

    def claims_of(host: str) -> list[str]:
        (record,) = agent.store.load_nodes(host)
        return [claim.state.value for claim in record.claims.values() if claim.is_active]

    libvirtd.define(domain_xml("web", FIRST, memory_mb=SIZE_MB))
    libvirtd.define(domain_xml("large", SECOND, memory_mb=600))
    other.define(domain_xml("db", str(uuid4()), memory_mb=600))
    with programs.start(PatientAgent.program) as running:
        running.wait_for("is ready")
        assert start(other, "db").returncode == 0
        assert start(libvirtd, "web").returncode == 0
        wait_until(lambda: claims_of("host-1") == ["confirmed"])
        migrate = ("migrate", "--live", "--persistent", "--undefinesource")
        libvirtd.virsh(*migrate, "web", other.uri, "tcp://127.0.0.1")
        wait_until(lambda: claims_of("host-2") == ["confirmed"] * 2)
        wait_until(lambda: claims_of("host-1") == [])
        assert start(libvirtd, "large").returncode == 0
        with pytest.raises(AssertionError, match="600 MiB requested, 244 MiB free on host-2"):
            libvirtd.virsh(*migrate, "large", other.uri, "tcp://127.0.0.1")
        assert list_running(libvirtd) == ["large"]
    kinds = {record.warning.kind.value for record in agent.store.list_warnings()}
    assert kinds.isdisjoint({"split_brain", "claimed_twice", "guest_vanished"})


@pytest.fixture
def docker_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """A dockerd with the plugin."""
    host = Host()
    host.door = tmp_path / "state/admission.sock"
    monkeypatch.setattr(docker_hook, "run_program", host.run)
    host.install()
    yield host
    host.remove()


def run_container(host: Host, name: str, memory_mb: int = SIZE_MB) -> str:
    """Create and start a container as ``docker run`` does; return the error, "" without one."""
    client = host.engine.client()
    try:
        limits = client.create_host_config(mem_limit=f"{memory_mb}m", network_mode="none")
        made = client.create_container(IMAGE, SLEEP, name=name, host_config=limits)
        client.start(made["Id"])
    except docker.errors.APIError as error:
        return str(error)
    finally:
        client.close()
    return ""


def count_containers(host: Host) -> int:
    client = host.engine.client()
    try:
        return len(client.containers())
    finally:
        client.close()


def test_virsh_and_docker_fill_one_host_together(
    libvirtd: Libvirtd, docker_host: Host, tmp_path: Path
) -> None:
    total_mb = read_memory_info(Roots()).total_mb
    agent = PatientAgent(
        tmp_path,
        libvirtd.uri,
        driver="libvirt,docker",
        more=f"[docker]\nbase_url = {docker_host.engine.url}\n",
        inactive_guests="ignored",
        admission="enforce",
        reserved_host_memory_mb=total_mb - FREE_MB,
    )
    names = define(libvirtd, 5)
    with agent:
        with ThreadPoolExecutor(10) as pool:
            domains = [pool.submit(start, libvirtd, name) for name in names]
            containers = [pool.submit(run_container, docker_host, f"c{n}") for n in range(5)]
        refused = [f.result().stderr for f in domains if f.result().returncode]
        refused += [f.result() for f in containers if f.result()]
        assert len(list_running(libvirtd)) + count_containers(docker_host) == FITTING
        assert len(refused) == 10 - FITTING
        for text in refused:
            assert re.search(rf"memory: {SIZE_MB} MiB requested, \d+ MiB free on host-1", text)
        wait_until(lambda: all(c.state == "confirmed" for c in agent.node().claims.values()))
        assert agent.node().values.free_ram_mb == FREE_MB - FITTING * SIZE_MB
        client = docker_host.engine.client()
        for container in client.containers():
            client.kill(container["Id"])
        client.close()
        running = list_running(libvirtd)
        if len(running) == FITTING:
            libvirtd.virsh("destroy", running.pop())
        left = len(running)
        wait_until(lambda: agent.node().values.free_ram_mb == FREE_MB - left * SIZE_MB)
        assert run_container(docker_host, "again", SIZE_MB) == ""
        client = docker_host.engine.client()
        too_much_mb = FREE_MB + 1  # no other guest may be left
        more = f"{too_much_mb}m"
        with pytest.raises(docker.errors.APIError, match=f"memory: {too_much_mb} MiB requested"):
            client.update_container("again", mem_limit=more, memswap_limit=more)
        client.close()


@pytest.fixture
def docker_agent(docker_host: Host, tmp_path: Path) -> Iterator[RunningAgent]:
    """An agent whose engine is Docker alone, and whose node has `FREE_MB` left."""
    total_mb = read_memory_info(Roots()).total_mb
    with PatientAgent(
        tmp_path,
        driver="docker",
        more=f"[docker]\nbase_url = {docker_host.engine.url}\n",
        inactive_guests="ignored",
        admission="enforce",
        reserved_host_memory_mb=total_mb - FREE_MB,
    ) as agent:
        yield agent


def test_a_container_that_has_ended_makes_room_at_once(
    docker_host: Host, docker_agent: RunningAgent
) -> None:
    """Nobody reports its end: it is listed before the next one is refused."""
    client = docker_host.engine.client()
    limits = client.create_host_config(mem_limit="1000m", network_mode="none")

    def create(name: str, **more: Any) -> None:
        client.create_container(IMAGE, SLEEP, name=name, host_config=limits, **more)

    create("web")
    client.start("web")
    wait_until(lambda: docker_agent.node().values.free_ram_mb == FREE_MB - 1000)
    client.remove_container("web", force=True)
    create("web")
    client.start("web")
    wait_until(lambda: docker_agent.node().values.free_ram_mb == FREE_MB - 1000)
    with pytest.raises(docker.errors.APIError, match="memory: 1000 MiB requested"):
        create("other")
    old = client.inspect_container("web")["Id"]  # and now as Compose does
    new = f"{old[:12]}_web"
    create(new, labels={"com.docker.compose.replace": "web"})
    client.kill("web")
    client.remove_container("web")
    client.rename(new, "web")
    client.start("web")
    client.close()
    outcomes = [item["outcome"] for item in list_starts(docker_agent)]
    assert outcomes == ["admitted"] * 4 + ["refused"] + ["admitted"] * 2


def test_a_container_starts_as_it_was_created_and_changed_just_before(
    docker_host: Host, docker_agent: RunningAgent
) -> None:
    client = docker_host.engine.client()
    limits = client.create_host_config(mem_limit="600m", memswap_limit="8g", network_mode="none")
    labels = {"nodetracker.workload": FIRST}
    for name in ("web", "db"):
        client.create_container(IMAGE, SLEEP, name=name, host_config=limits, labels=labels)
    client.update_container("db", mem_limit="400m")
    client.start("db")
    client.update_container("web", mem_limit="1200m")
    with pytest.raises(docker.errors.APIError, match="memory: 1200 MiB requested, 700 MiB free"):
        client.start("web")
    client.update_container("web", mem_limit="600m")
    client.start("web")
    client.close()
    wait_until(lambda: docker_agent.node().values.free_ram_mb == FREE_MB - 1000)


def test_containers_without_limits_are_refused_where_these_are_required(
    docker_host: Host, tmp_path: Path
) -> None:
    with PatientAgent(
        tmp_path,
        driver="docker",
        more=f"[docker]\nbase_url = {docker_host.engine.url}\nrequire_limits = true\n",
        inactive_guests="ignored",
        admission="enforce",
    ):
        client = docker_host.engine.client()
        for limits, lacking in (
            ({}, "CPUs and memory"),
            ({"mem_limit": "64m"}, "CPUs"),
            ({"cpu_quota": 50_000}, "memory"),
        ):
            config = client.create_host_config(network_mode="none", **limits)
            with pytest.raises(docker.errors.APIError, match=f"no limit of {lacking} is set"):
                client.create_container(IMAGE, SLEEP, host_config=config)
        both = client.create_host_config(network_mode="none", mem_limit="64m", cpu_quota=50_000)
        client.start(client.create_container(IMAGE, SLEEP, host_config=both)["Id"])
        client.close()
        assert count_containers(docker_host) == 1
