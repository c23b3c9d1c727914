"""The agent on real engines: a dockerd and a podman service."""

import itertools
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningKind
from nodetracker.virt.host.memory import read_memory_info
from nodetracker.virt.host.roots import Roots
from tests.functional.docker_agent import HOST, RunningAgent, create, guest_of
from tests.functional.read_back import ReadBack
from tests.functional.servers.engines import IMAGE, SLEEP, Dockerd, Engine, Podman
from tests.functional.servers.placement import Placement
from tests.functional.servers.process import find_free_port, require
from tests.programs import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module", params=[Dockerd, Podman], ids=["dockerd", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that every test leaves running."""
    made = request.param()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    """A dockerd, for tests of features that Podman's service lacks."""
    made = Dockerd()
    yield made
    made.remove()


@pytest.fixture
def agent(engine: Engine, tmp_path: Path) -> Iterator[RunningAgent]:
    """An agent that has written its row."""
    made = RunningAgent(tmp_path / "agent", engine.url)
    try:
        made.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        yield made
    finally:
        made.stop()


def is_in(name: str, state: PowerState, **fields: Any) -> Any:
    def holds(node: NodeRecord) -> bool:
        guest = guest_of(node, name)
        return (
            guest is not None
            and guest.power_state is state
            and all(getattr(guest, field) == value for field, value in fields.items())
        )

    return holds


def read_service(agent: RunningAgent) -> ServiceRecord:
    (service,) = agent.store.list_services(HOST)
    return service


def adds_up(node: NodeRecord) -> bool:
    values = node.values
    return values.total_containers == (
        values.running_containers + values.paused_containers + values.stopped_containers
    )


def test_the_row_follows_a_container_within_a_second(
    engine: Engine, agent: RunningAgent, record_property: Any
) -> None:
    client = engine.client()
    took = {}

    def see(what: str, condition: Any) -> None:
        took[what] = round(agent.wait(condition), 2)
        node = agent.node()
        assert node is not None
        assert adds_up(node)

    container = create(client, "web-1")
    see("create", is_in("web-1", PowerState.SHUTDOWN, vcpu_milli=0, memory_mb=0))
    client.start(container)
    see("start", is_in("web-1", PowerState.RUNNING, vcpu_milli=500, memory_mb=64))
    client.pause(container)
    see("pause", is_in("web-1", PowerState.PAUSED, vcpu_milli=500))
    client.unpause(container)
    see("unpause", is_in("web-1", PowerState.RUNNING))
    if engine.name == "dockerd":  # Podman's service has no update
        client.update_container(container, cpu_shares=1024, mem_limit="96m", memswap_limit="192m")
        see("update", is_in("web-1", PowerState.RUNNING, vcpu_milli=1000, memory_mb=96))
    client.kill(container)
    see("die", is_in("web-1", PowerState.SHUTDOWN, vcpu_milli=0, memory_mb=0))
    client.remove_container(container)
    see("destroy", lambda node: guest_of(node, "web-1") is None)
    client.close()
    node = agent.node()
    assert node is not None
    assert (node.values.total_containers, node.values.cpu_used) == (0, 0.0)
    print(f"\n{engine.name}: event to row in s: {took}")


def test_facts_are_the_machines_and_the_engines(engine: Engine, agent: RunningAgent) -> None:
    agent.wait(lambda node: {e.state for e in node.values.facts.values()} == {FactState.FRESH})
    node = agent.node()
    assert node is not None
    values = node.values
    client = engine.client()
    info = client.info()
    client.close()
    assert node.nodename == HOST
    assert values.hypervisor_type == {"dockerd": "docker"}.get(engine.name, engine.name)
    assert values.memory_mb == read_memory_info(Roots()).total_mb
    assert values.vcpus == info["NCPU"]
    assert values.architecture == "x86_64"
    assert (values.os_type, values.kernel_version) == ("linux", info["KernelVersion"])
    assert values.os == info["OperatingSystem"] or engine.name == "podman"
    assert values.runtimes == sorted(info["Runtimes"])
    assert values.engine["storage_driver"] == info["Driver"]
    assert values.engine["root_dir"] == info["DockerRootDir"]
    assert values.engine["default_runtime"] == info["DefaultRuntime"] == "runc"
    assert values.engine["cgroup_version"] == info["CgroupVersion"]
    disk = psutil.disk_usage(info["DockerRootDir"])
    assert values.local_gb == disk.total // 2**30


def test_measured_usage_is_written_with_other_changes(engine: Engine, agent: RunningAgent) -> None:
    client = engine.client()
    container = create(client, "busy")
    wanted = {"images_disk_used_mb", "containers_cpu_used_milli", "containers_memory_used_mb"}
    try:
        client.start(container)
        names = (f"busy-{number}" for number in itertools.count())

        def is_measured() -> bool:
            client.rename(container, name := next(names))
            agent.wait(is_in(name, PowerState.RUNNING))
            node = agent.node()
            return node is not None and wanted <= node.values.metrics.keys()

        wait_until(is_measured)  # measured usage alone does not cause a write
        node = agent.node()
        assert node is not None
        assert node.values.metrics["images_disk_used_mb"] >= 1
        assert node.values.metrics["containers_memory_used_mb"] >= 1
    finally:
        client.remove_container(container, force=True)
        client.close()
    agent.wait(lambda node: not node.guests)


def test_cpus_that_a_container_is_pinned_to_are_kept_from_claims(
    engine: Engine, tmp_path: Path
) -> None:
    pins = "[compute]\ncpu_shared_set = 0\ncpu_dedicated_set = 1\n"
    agent, client = RunningAgent(tmp_path / "agent", engine.url, extra=pins), engine.client()
    request = tmp_path / "request.json"
    request.write_text(
        '{"workload": {"uuid": "6a0e1f0e-5a43-4a6e-9d1c-0f6f5f6e2c11"},'
        ' "resources": {"PCPU": 1}, "numa": {"cpu_policy": "dedicated"}}'
    )
    ask = ("claim", "create", str(request), "--host", HOST, "--dry-run")
    try:
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        assert agent.programs.manage(*ask).returncode == 0
        create_id = create(client, "pinned", cpuset_cpus="1", cpu_shares=None)
        client.start(create_id)
        agent.wait(lambda node: node.values.pcpus_used == 1 and node.values.vcpus_used == 0)
        refused = agent.programs.manage(*ask)
        assert refused.returncode == 1
        if engine.name == "dockerd":  # Podman's service has no update
            client.update_container(create_id, cpuset_cpus="0")
            agent.wait(lambda node: node.values.pcpus_used == 0 and node.values.vcpus_used == 1)
            client.update_container(create_id, cpuset_cpus="1")
            agent.wait(lambda node: node.values.pcpus_used == 1)
        client.kill(create_id)
        agent.wait(lambda node: node.values.pcpus_used == 0 and node.values.vcpus_used == 0)
        assert agent.programs.manage(*ask).returncode == 0
    finally:
        client.remove_container("pinned", force=True)
        client.close()
        agent.stop()


def test_containers_without_a_limit_are_measured(engine: Engine, agent: RunningAgent) -> None:
    client = engine.client()
    container = create(client, "free", mem_limit=None, cpu_shares=None)
    try:
        client.start(container)
        agent.wait(is_in("free", PowerState.RUNNING, vcpu_milli=0, memory_mb=64))
        node = agent.node()
        assert node is not None
        (line,) = agent.programs.ask("workload", "show", guest_of(node, "free").uuid)["places"]
        assert {"cpu", "memory"} <= set(line["details"]["unlimited"])
    finally:
        client.remove_container(container, force=True)
        client.close()


def test_facts_of_a_stopped_engine_are_held_until_it_is_back(
    engine: Engine, agent: RunningAgent
) -> None:
    client = engine.client()
    container = create(client, "kept")
    agent.wait(is_in("kept", PowerState.SHUTDOWN))
    client.close()
    engine.stop()
    # A request that was being answered fails by its connection, and the next one by the socket.
    lost = agent.wait(lambda node: "No such file" in str(node.values.facts["guests"].error))
    node = agent.node()
    assert node is not None
    assert node.values.facts["guests"].state is FactState.HELD
    assert guest_of(node, "kept") is not None
    assert node.values.facts["memory"].state is FactState.FRESH
    assert node.values.facts["storage"].state is FactState.FRESH
    agent.wait(lambda node: node.values.facts["engine"].state is FactState.HELD)
    wait_until(lambda: read_service(agent).disabled, 120)
    assert str(read_service(agent).disabled_reason).startswith(f"AUTO: {engine.url}: ")
    engine.start()
    wait_until(lambda: not read_service(agent).disabled)
    found = agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
    print(f"\n{engine.name}: loss noticed in {lost:.2f} s, return in {found:.2f} s")
    client = engine.client()
    client.remove_container(container)
    agent.wait(lambda node: guest_of(node, "kept") is None)
    client.close()


def test_a_frozen_engine_delays_no_heartbeat_and_recovers(
    engine: Engine, agent: RunningAgent
) -> None:
    engine.freeze()
    try:
        before = len(agent.running.output())
        lost = agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
        (service,) = agent.store.list_services(HOST)
        wait_until(
            lambda: agent.store.list_services(HOST)[0].report_count >= service.report_count + 2
        )
        node = agent.node()
        assert node is not None
        assert "no answer within" in str(node.values.facts["guests"].error)
        agent.wait(lambda node: node.values.facts["engine"].state is FactState.HELD)
        # A busy engine may answer late before the freeze and after the thaw.
        said = agent.running.output()[before:].splitlines()
        wait_until(lambda: read_service(agent).disabled, 120)
        assert str(read_service(agent).disabled_reason).startswith("AUTO: ")
    finally:
        engine.thaw()
    found = agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
    wait_until(lambda: not read_service(agent).disabled)
    print(f"\n{engine.name}: freeze noticed in {lost:.2f} s, thaw in {found:.2f} s")
    about = [line for line in said if " WARNING " in line and engine.url in line]
    probes = re.findall(r"Probe (\w+) of", "\n".join(about))
    assert len(probes) == len(set(probes)) > 0, about
    assert len(about) <= len(probes) + 1, about  # the stream of events ends, once
    client = engine.client()
    container = create(client, "after")
    agent.wait(is_in("after", PowerState.SHUTDOWN))
    client.remove_container(container)
    agent.wait(lambda node: guest_of(node, "after") is None)
    client.close()


def test_an_agent_starts_without_its_engine(engine: Engine, tmp_path: Path) -> None:
    engine.stop()
    agent = RunningAgent(tmp_path / "agent", engine.url)
    try:
        wait_until(lambda: bool(agent.store.list_services(HOST)))
        agent.running.wait_for("is ready")
        assert agent.node() is None
        warnings = [record.warning for record in agent.store.list_warnings(HOST)]
        not_ready = [w.message for w in warnings if w.kind is WarningKind.DRIVER_NOT_READY]
        assert not_ready == [f"{engine.url}: No such file or directory"]
        engine.start()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
    finally:
        if not engine.process.is_running:
            engine.start()
        agent.stop()


def test_every_field_that_zun_shows_has_a_value(engine: Engine, agent: RunningAgent) -> None:
    client = engine.client()
    container = create(client, "zun")
    client.start(container)
    agent.wait(is_in("zun", PowerState.RUNNING))
    shown = agent.programs.ask("node", "show", HOST)
    info = client.info()
    client.remove_container(container, force=True)
    client.close()
    agent.wait(lambda node: not node.guests)
    zun = {
        "mem_total": shown["memory_mb"],
        "mem_used": shown["memory_mb_used"],
        "mem_free": max(0, shown["memory_mb"] - shown["memory_mb_used"]),
        "mem_available": shown["mem_available"],
        "cpus": shown["vcpus"],
        "cpu_used": shown["cpu_used"],
        "disk_total": shown["local_gb"],
        "disk_used": shown["disk_used"],
    }
    assert zun["mem_total"] == read_memory_info(Roots()).total_mb
    assert zun["mem_used"] == 512 + 64
    assert zun["mem_free"] == zun["mem_total"] - 576
    assert 0 < zun["mem_available"] <= zun["mem_total"]
    assert (zun["cpus"], zun["cpu_used"]) == (info["NCPU"], 0.5)
    assert (zun["disk_total"] > 0, zun["disk_used"]) == (True, 0)
    assert [shown[name] for name in ("total_containers", "running_containers")] == [1, 1]
    assert [shown[name] for name in ("paused_containers", "stopped_containers")] == [0, 0]
    assert shown["disk_quota_supported"] is False
    assert shown["enable_cpu_pinning"] is False
    assert shown["labels"] == {}
    assert "runc" in shown["runtimes"]
    assert shown["numa_topology"]["cells"]
    assert isinstance(shown["pci_stats"], list)
    for name in ("architecture", "os_type", "os", "kernel_version", "uuid", "host"):
        assert shown[name]


def test_facts_of_a_killed_daemon_are_held_until_it_is_back(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url)
    client = dockerd.client()
    try:
        container = create(client, "survivor")
        client.start(container)
        agent.wait(is_in("survivor", PowerState.RUNNING))
        dockerd.kill()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.HELD)
        node = agent.node()
        assert node is not None
        assert guest_of(node, "survivor").power_state is PowerState.RUNNING
        dockerd.start()
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        agent.wait(is_in("survivor", PowerState.SHUTDOWN))
        client.remove_container(container, force=True)
        agent.wait(lambda node: not node.guests)
    finally:
        client.close()
        agent.stop()


def test_placement_has_what_the_row_of_an_engine_says(
    dockerd: Dockerd, placement: Placement, tmp_path: Path
) -> None:
    host = f"h-{uuid.uuid4().hex[:8]}"
    client = dockerd.client()
    for name in ("web", "db"):
        client.start(create(client, name))
    agent = RunningAgent(tmp_path / "agent", dockerd.url, host, extra=placement.configuration())
    found = ReadBack(agent.programs, placement)
    try:
        agent.wait(lambda node: guest_of(node, "web") and guest_of(node, "db"))
        half = {"VCPU": 0.5, "MEMORY_MB": 64}
        web = guest_of(found.node(host), "web").uuid
        found.claim(host, web, kind="container", resources=half)
        found.claim(host, kind="container", resources={"VCPU": 1, "MEMORY_MB": 128, "DISK_GB": 1})
        found.wait()
        found.check(host)
        node = found.node(host)
        assert (node.values.cpu_used, node.values.memory_mb_used) == (2.0, 512 + 64 + 64 + 128)
    finally:
        found.close()
        for name in ("web", "db"):
            client.remove_container(name, force=True)
        client.close()
        agent.stop()


def test_labels_follow_the_daemons_configuration(dockerd: Dockerd, tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url)
    try:
        agent.wait(lambda node: node.values.labels == {})
        dockerd.config.write_text('{"labels": ["url=a=b", "empty=", "name=wéb"]}')
        dockerd.reload()
        agent.wait(lambda node: node.values.labels == {"url": "a=b", "empty": "", "name": "wéb"})
    finally:
        agent.stop()
        dockerd.config.write_text("{}")
        dockerd.reload()


def test_an_out_of_memory_kill_is_an_event(dockerd: Dockerd, tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url)
    client = dockerd.client()
    config = client.create_host_config(
        network_mode="none", mem_limit="8m", memswap_limit="8m", nano_cpus=250_000_000
    )
    greedy = ["/bin/busybox", "tail", "/dev/zero"]
    container = client.create_container(IMAGE, greedy, name="greedy", host_config=config)["Id"]
    try:
        agent.wait(is_in("greedy", PowerState.SHUTDOWN))
        for _ in range(10):
            client.start(container)
            assert client.wait(container)["StatusCode"] == 128 + signal.SIGKILL  # the kernel's
            if client.inspect_container(container)["State"]["OOMKilled"]:
                break  # the engine misses some of them
        agent.wait(is_in("greedy", PowerState.SHUTDOWN, vcpu_milli=0, memory_mb=0))
        agent.wait(lambda node: "oom_killed" in guest_of(node, "greedy").details)
        details = guest_of(agent.node(), "greedy").details
        assert (details["exit_code"], details["oom_killed"]) == (137, True)
    finally:
        client.remove_container(container, force=True)
        client.close()
        agent.stop()


def test_a_health_check_that_fails_is_in_the_history(dockerd: Dockerd, tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url)
    client = dockerd.client()
    wait = "until [ -e /seen ]; do sleep .1; done; false"
    check = {"test": ["CMD", "sh", "-c", wait], "interval": 10**9, "retries": 3, "timeout": 10**12}
    config = client.create_host_config(network_mode="none", mem_limit="8m")
    container = client.create_container(
        IMAGE, SLEEP, name="sick", host_config=config, healthcheck=check
    )["Id"]
    try:
        client.start(container)
        agent.wait(lambda node: (guest := guest_of(node, "sick")) and guest.details.get("health"))
        seen = client.exec_create(container, ["/bin/busybox", "touch", "/seen"])
        client.exec_start(seen["Id"])
        agent.wait(lambda node: guest_of(node, "sick").details["health"] == "unhealthy")
        shown = agent.programs.manage("events", "--host", HOST).stdout
        assert "guest sick: details.health starting → unhealthy" in shown
        place = agent.programs.ask("workload", "show", "sick")["places"][0]
        assert place["details"]["health"] == "unhealthy"
    finally:
        client.remove_container(container, force=True)
        client.close()
        agent.stop()


def test_an_engine_with_another_host_name_raises_one_warning(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url, host="quite-another")
    try:
        agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
        client = dockerd.client()
        name = client.info()["Name"]
        client.close()
        agent.running.stop(signal.SIGTERM)
        assert agent.running.output().count(f"reports its host as {name}") == 1
    finally:
        agent.stop()


def test_the_driver_reads_without_the_kernels_files_of_containers(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    agent = RunningAgent(tmp_path / "agent", dockerd.url)
    agent.stop()
    sysfs = tmp_path / "sys"
    sysfs.mkdir()
    for name in ("bus", "class", "devices"):
        (sysfs / name).symlink_to(Path("/sys") / name)
    lines = f"[docker]\nbase_url = {dockerd.url}\n[host]\nsysfs = {sysfs}"
    agent.programs.configure(extra=lines, driver="docker")
    client = dockerd.client()
    container = create(client, "far", mem_limit=None)
    try:
        client.start(container)
        done = agent.programs.run("nodetracker-compute", "--once")
        assert done.returncode == 0, done.stderr
        node = agent.node()
        assert node is not None
        assert guest_of(node, "far").memory_mb == 64
        assert node.values.metrics["containers_memory_used_mb"] > 0
    finally:
        client.remove_container(container, force=True)
        client.close()


def test_an_engine_is_read_over_tcp_with_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("openssl")
    cert, key, port = tmp_path / "cert.pem", tmp_path / "key.pem", find_free_port()
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", key, "-out", cert,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    url = f"tcp://127.0.0.1:{port}"
    tls = {"tlscacert": str(cert), "tlscert": str(cert), "tlskey": str(key), "tlsverify": True}
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    dockerd = Dockerd(tls, url)
    try:
        agent = RunningAgent(tmp_path / "agent", url, tls_ca_cert=cert, tls_cert=cert, tls_key=key)
        try:
            agent.wait(lambda node: node.values.facts["guests"].state is FactState.FRESH)
            client = dockerd.client()
            container = create(client, "secure")
            agent.wait(is_in("secure", PowerState.SHUTDOWN))
            client.remove_container(container)
            client.close()
            agent.wait(lambda node: not node.guests)
        finally:
            agent.stop()
        stranger = RunningAgent(tmp_path / "stranger", url)
        try:
            stranger.running.wait_for("is ready")
            assert stranger.node() is None
        finally:
            stranger.stop()
    finally:
        dockerd.remove()
