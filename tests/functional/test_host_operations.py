"""Operating hosts from another shell: the command line, the broker, the agents."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodetracker.cmd.commands.service import read_operator
from tests.functional.servers.process import find_free_port
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.programs import Programs, wait_until

NODE = {"nodename": "node-1", "vcpus": 8, "memory_mb": 16384, "disk_gb": 100}


class Host(Programs):
    """A host with an agent on the fake driver, and the command line beside it."""

    def __init__(self, directory: Path, url: str | None, **options: Any) -> None:
        extra = f"transport_url = {url}\n" if url else ""
        super().__init__(directory, extra=extra, **options)
        self.list_nodes(NODE)
        self.make_schema()

    def list_nodes(self, *nodes: dict[str, Any]) -> None:
        """Let the driver have these nodes."""
        self.inventory.write_text(json.dumps({"nodes": list(nodes)}))

    def claim(self) -> Any:
        """Ask for a claim of one CPU."""
        body = self.directory / "request.json"
        number = time.monotonic_ns() % 10**12
        body.write_text(
            json.dumps(
                {
                    "workload": {"uuid": f"6a0e1f6c-5a34-4a64-9d3a-{number:012d}"},
                    "resources": {"VCPU": 1},
                }
            )
        )
        return self.manage("claim", "create", str(body), "--host", self.host)

    def report_count(self) -> int:
        """How many heartbeats there were."""
        shown = self.ask("service", "show", self.host, "nodetracker-compute")
        return int(shown["report_count"])


@pytest.fixture
def host(tmp_path: Path, rabbitmq: RabbitMQ) -> Iterator[Host]:
    host = Host(tmp_path / "host", rabbitmq.url, update_resources_interval=-1)
    with host.start() as agent:
        agent.wait_for("RPC is served")
        yield host
        assert agent.stop() == 0, agent.output()
        assert "Traceback" not in agent.output()


def test_a_host_is_disabled_on_one_shell_and_refuses_on_another(host: Host) -> None:
    assert host.claim().returncode == 0
    done = host.manage("host", "set", "host-1", "--disable")
    assert (done.returncode, done.stdout) == (0, "host host-1 is disabled\n")
    assert host.ask("service", "list")[0]["disabled_reason"] is None
    reason = ("--disable", "--disable-reason", "a disk")
    assert host.manage("host", "set", "host-1", *reason).returncode == 0
    assert host.ask("service", "list")[0]["disabled_reason"] == "a disk"
    (shown,) = host.ask("service", "list", "--long")
    assert shown["disabled_by"] == read_operator()
    assert shown["disabled_at"]
    refused = host.claim()
    assert refused.returncode == 1
    assert "host host-1 is disabled" in refused.stderr
    assert host.manage("host", "set", "host-1", "--enable").returncode == 0
    assert host.claim().returncode == 0


def test_a_host_is_disabled_with_a_reason(host: Host) -> None:
    done = host.manage("host", "set", "host-1", "--disable", "--disable-reason", "new disk")
    assert (done.returncode, done.stdout) == (0, "host host-1 is disabled\n")
    assert "host host-1 is disabled: new disk" in host.claim().stderr
    done = host.manage("host", "set", "host-1", "--enable", "--disable-reason", "x")
    assert done.returncode == 2
    assert "--disable-reason requires --disable" in done.stderr


def test_maintenance_takes_no_claims_moves_nothing_and_says_so(host: Host) -> None:
    assert host.claim().returncode == 0
    reason = ("--disable", "--disable-reason", "disk")
    host.manage("service", "set", "host-1", "nodetracker-compute", *reason)
    done = host.manage("host", "set", "host-1", "--enable-maintenance")
    assert "new claims are refused; running workloads are not moved" in done.stdout
    shown = host.ask("service", "show", "host-1", "nodetracker-compute")
    assert (shown["maintenance"], shown["disabled_reason"]) == (True, "disk")
    assert "host host-1 is in maintenance" in host.claim().stderr
    for noun in ("node", "service"):
        assert " maintenance " in host.manage(noun, "list").stdout
        (row,) = json.loads(host.manage(noun, "list", "--long", "-f", "json").stdout)
        assert (row["state"], row["maintenance"]) == ("up", True)
    assert [claim["state"] for claim in host.ask("claim", "list")] == ["held"]
    assert host.manage("host", "set", "host-1", "--disable-maintenance").returncode == 0
    shown = host.ask("service", "show", "host-1", "nodetracker-compute")
    assert (shown["maintenance"], shown["status"]) == (False, "disabled")


def test_an_audit_is_had_from_another_shell(host: Host) -> None:
    host.list_nodes(NODE | {"vcpus": 12})
    rows = host.ask("node", "audit", "host-1")
    assert rows == [{"host": "host-1", "nodename": "node-1", "outcome": "update"}]
    assert host.ask("node", "list")[0]["vcpus"] == 12
    assert host.ask("node", "audit", "host-1", "node-1")[0]["outcome"] == "unchanged"
    missing = host.manage("node", "audit", "host-1", "node-9")
    assert (missing.returncode, missing.stderr) == (1, "no such node: node-9 on host host-1\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("host", "set", "nobody-9", "--enable"), 1, "no such service: nodetracker-compute"),
        (("host", "set", "host-1"), 2, "required"),
        (("host", "set", "host-1", "--enable", "--disable-reason", "x"), 2, "requires --disable"),
        (("host", "action", "nobody-9", "reboot"), 1, "no such host: nobody-9"),
        (("host", "action", "host-1", "dance"), 2, "invalid choice"),
        (
            ("host", "action", "host-1", "reboot"),
            1,
            "the fake driver does not support the power action reboot",
        ),
        (("node", "audit", "nobody-9"), 1, "no such host: nobody-9"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_in_a_line(
    host: Host, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = host.manage(*arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_that_does_not_run_is_said_in_time(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    host = Host(tmp_path / "host", rabbitmq.url)
    host.host = "nobody-7"
    host.configure(extra=f"transport_url = {rabbitmq.url}")
    assert host.run("nodetracker-compute", "--once").returncode == 0
    began = time.monotonic()
    done = host.manage("node", "audit", "nobody-7")
    assert done.returncode == 1
    assert "the agent of host nobody-7 does not run" in done.stderr
    assert time.monotonic() - began < 30


def test_a_broker_that_cannot_be_meant_ends_the_start(tmp_path: Path) -> None:
    host = Host(tmp_path / "host", "http://nobody:s3cret@127.0.0.1:1/")
    done = host.run("nodetracker-compute")
    assert done.returncode == 78
    assert "[DEFAULT] transport_url" in done.stderr
    assert "s3cret" not in done.stderr


class TestPower:
    """The local driver, with a ``systemctl`` of the test's own before all others."""

    @pytest.fixture
    def start(self, tmp_path: Path, rabbitmq: RabbitMQ) -> Iterator[Callable[..., Host]]:
        agents: list[Any] = []
        bin_directory = tmp_path / "bin"
        bin_directory.mkdir()
        systemctl = bin_directory / "systemctl"
        systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
        systemctl.chmod(0o755)

        def make(**options: Any) -> Host:
            host = Host(tmp_path / "host", rabbitmq.url, driver="local", **options)
            agent = host.start(PATH=f"{bin_directory}:/usr/bin:/bin")
            agents.append(agent)
            agent.wait_for("RPC is served")
            return host

        yield make
        for agent in agents:
            agent.stop()

    def test_a_host_is_rebooted_where_that_is_allowed(
        self, start: Callable[..., Host], tmp_path: Path
    ) -> None:
        host = start(allow_power_actions=True)
        assert host.manage("host", "action", "host-1", "reboot").returncode == 0
        assert (tmp_path / "asked").read_text() == "reboot\n"
        assert host.manage("host", "action", "host-1", "startup").returncode == 1

    def test_and_not_where_it_is_not(self, start: Callable[..., Host], tmp_path: Path) -> None:
        host = start()
        done = host.manage("host", "action", "host-1", "reboot")
        assert done.returncode == 1
        assert "[compute] allow_power_actions is false" in done.stderr
        assert not (tmp_path / "asked").exists()


def test_an_agent_audits_and_beats_without_its_broker(tmp_path: Path) -> None:
    url = f"rabbit://u:p@127.0.0.1:{find_free_port()}/"
    host = Host(tmp_path / "host", url, update_resources_interval=1)
    with host.start() as agent:
        agent.wait_for("is ready")
        before = host.report_count()
        host.list_nodes(NODE | {"vcpus": 12})
        wait_until(lambda: host.ask("node", "list")[0]["vcpus"] == 12)
        agent.wait_for("The message broker cannot be reached yet")
        wait_until(lambda: host.report_count() > before)
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("way", ["deleted", "renamed"])
def test_a_host_that_is_gone_leaves_no_queue_behind(
    tmp_path: Path, rabbitmq: RabbitMQ, way: str
) -> None:
    host = Host(tmp_path / "host", rabbitmq.make_virtual_host(way))
    with host.start() as agent:
        agent.wait_for("RPC is served")
        assert agent.stop() == 0

    assert "compute.host-1" in rabbitmq.count_messages(way)
    wait_until(lambda: host.ask("service", "list")[0]["state"] == "down")
    if way == "deleted":
        done = host.manage("service", "delete", "host-1", "nodetracker-compute")
    else:
        done = host.manage("host", "rename", "host-1", "host-2")
    assert done.returncode == 0, done.stderr
    assert "compute.host-1" not in rabbitmq.count_messages(way)


def test_a_service_is_deleted_also_while_the_broker_is_away(tmp_path: Path) -> None:
    url = f"rabbit://u:s3cret@127.0.0.1:{find_free_port()}/"
    host = Host(tmp_path / "host", url, down_after=3)
    assert host.run("nodetracker-compute", "--once").returncode == 0
    wait_until(lambda: host.ask("service", "list")[0]["state"] == "down")
    done = host.manage("service", "delete", "host-1", "nodetracker-compute")
    assert done.returncode == 0
    assert "its queues are left in the message broker: queue compute.host-1" in done.stderr
    assert "s3cret" not in done.stderr
    assert host.ask("service", "list") == []


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    """A broker of this module's own, as its tests stop it."""
    server = RabbitMQ()
    yield server
    server.remove()


def test_an_agent_ends_in_time_behind_a_frozen_broker(tmp_path: Path, broker: RabbitMQ) -> None:
    host = Host(tmp_path / "host", broker.url)
    with host.start() as agent:
        agent.wait_for("RPC is served")
        broker.freeze()
        try:
            began = time.monotonic()
            assert agent.stop() == 0, agent.output()
            assert time.monotonic() - began < 30
        finally:
            broker.thaw()


@pytest.mark.parametrize("way", ["stopped", "frozen", "full"])
def test_an_agents_audits_and_heartbeats_never_pause_for_its_broker(
    tmp_path: Path, broker: RabbitMQ, way: str
) -> None:
    host = Host(tmp_path / "host", broker.url, update_resources_interval=1)
    breaks: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "stopped": (broker.stop, broker.start),
        "frozen": (broker.freeze, broker.thaw),
        "full": (lambda: broker.set_full(True), lambda: broker.set_full(False)),
    }
    with host.start() as agent:
        agent.wait_for("RPC is served")
        break_it, mend = breaks[way]
        break_it()
        try:
            before = host.report_count()
            host.list_nodes(NODE | {"vcpus": 12})
            wait_until(lambda: host.ask("node", "list")[0]["vcpus"] == 12)
            wait_until(lambda: host.report_count() >= before + 4)
            show = ("service", "show", "host-1", "nodetracker-compute")
            wait_until(lambda: host.ask(*show)["last_audit"]["age_seconds"] < 3)
        finally:
            mend()
        wait_until(lambda: host.manage("node", "audit", "host-1").returncode == 0, 90, 1)
        assert agent.stop() == 0


def test_a_node_is_given_to_the_host_that_lists_it_and_not_taken_back(tmp_path: Path) -> None:
    """As where the agent of another machine is to manage a hypervisor by its URI from now on."""
    old = Host(tmp_path / "old", None)
    new = Host(tmp_path / "new", None, connection=old.connection, host="host-2")
    node = NODE | {"uuid": "0b9c4e6e-6d0f-4a53-9a51-2d1c0f7e3a11"}
    for host in (old, new):
        host.list_nodes(node)

    def hosts() -> list[str]:
        return [row["host"] for row in old.ask("node", "list")]

    def refusal(host: str) -> str:
        found = old.ask("warning", "list")
        return "".join(
            row["message"] for row in found
            if (row["host"], row["kind"]) == (host, "node_uuid_refused")
        )  # fmt: skip

    command = "nodetracker-manage host takeover node-1 --from host-1"
    with old.start() as former:
        wait_until(lambda: hosts() == ["host-1"])
        assert old.claim().returncode == 0
        assert new.run("nodetracker-compute", "--once").returncode == 1
        assert "belongs to host host-1 as node-1 since 20" in refusal("host-2")
        assert "which is up" in refusal("host-2")
        refused = old.manage("host", "takeover", "node-1", "--from", "host-1")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "host host-1 is up; stop its agent first" in refused.stderr
        assert former.stop() == 0
    with new.start() as agent:
        agent.wait_for("is ready")
        wait_until(lambda: f"which is down: '{command}'" in refusal("host-2"))
        assert hosts() == ["host-1"]
        before = old.ask("node", "show", "host-1")
        given = new.manage(*command.split()[1:])
        assert (given.returncode, given.stderr) == (0, "")
        assert given.stdout == "node node-1 of host host-1 given to host host-2\n"
        assert new.manage("node", "audit", "host-2").returncode == 0
        after = old.ask("node", "show", "host-2")
        assert (after["uuid"], after["vcpus_used"]) == (before["uuid"], 1)
        assert after["generation"] > before["generation"]
        assert refusal("host-2") == ""
        assert agent.stop() == 0
    assert old.run("nodetracker-compute", "--once").returncode == 1  # also while host-2 is down
    assert hosts() == ["host-2"]
    assert "belongs to host host-2 as node-1" in refusal("host-1")
    assert old.ask("claim", "list")[0]["host"] == "host-2"
