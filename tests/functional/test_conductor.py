"""Agents without a database, and the conductors that work with it for them."""

import contextlib
import http.client
import json
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.model.tolerance import HostTolerance, LossPlan, Verdict
from nodetracker.model.warning import WarningKind
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.process import find_free_port, suspend
from tests.functional.servers.tls import Authority
from tests.functional.storm import StormProcess
from tests.oracle import check_rows
from tests.programs import Programs, Running, wait_until

MAX_RSS_MIB = 48
AGENTS = 8
CLAIMERS = 4


@pytest.fixture
def remote(tmp_path: Path, conductor: Conductor) -> Remote:
    token = conductor.make_token()
    return Remote(tmp_path / "remote", conductor.endpoint, token, update_resources_interval=1)


def make_request(number: int) -> dict[str, Any]:
    return {
        "workload": {"uuid": f"6a0e1f6c-5a34-4a64-9d3a-{number:012d}"},
        "resources": {"VCPU": 1, "MEMORY_MB": 64},
    }


def claim(programs: Programs, number: int, host: str = "host-1") -> Any:
    body = programs.directory / f"request-{number}"
    body.write_text(json.dumps(make_request(number)))
    return programs.manage("claim", "create", str(body), "--host", host, "-f", "json")


def describe(programs: Programs) -> str:
    """Return what node describe prints of host-1, without ages."""
    done = programs.manage("node", "describe", "host-1")
    assert done.returncode == 0, done.stderr
    return re.sub(r" *[0-9]+ (s|min)\b", " N s", done.stdout)


def last_seen(store: SqlStore, host: str = "host-1", binary: str = COMPUTE_BINARY) -> Any:
    return store.list_services(host, binary)[0].last_seen_up


def test_an_agent_without_a_database_keeps_its_row_true(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        (row,) = store.list_nodes()
        assert (row.host, row.nodename, row.values.vcpus) == ("host-1", "node-1", 16)
        remote.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": 32}]}))
        wait_until(lambda: store.list_nodes()[0].values.vcpus == 32)
        (service,) = store.list_services("host-1", COMPUTE_BINARY)
        assert service.last_audit["by_conductor"] is True
        assert abs(service.clock_skew_ms or 0) < 60_000
        (own,) = store.list_services(binary=CONDUCTOR_BINARY)
        assert (own.host, own.topic) == ("c-1", "")
        assert agent.stop() == 0
        assert running.stop() == 0
        assert "Traceback" not in agent.output() + running.output()


def test_a_conductor_stores_no_more_of_a_host_than_its_quotas(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.path.open("a") as file:
        file.write("[conductor]\nmax_nodes_per_host = 2\nmax_guests_per_node = 1\n")
    guest = {"name": "vm", "kind": "instance", "vcpus": 1, "memory_mb": 1, "disk_gb": 0}
    guests = [guest | {"uuid": f"6a0e1f6c-5a34-4a64-9d3a-{number:012d}"} for number in range(2)]
    nodes = [NODE | {"nodename": f"node-{number}"} for number in range(1, 4)]

    def list_refused() -> dict[str, str]:
        found = [record.warning for record in store.list_warnings() if record.resolved_at is None]
        return {w.nodename: w.message for w in found if w.kind == WarningKind.ROW_REFUSED}

    with conductor.start_conductor() as running:
        remote.inventory.write_text(
            json.dumps({"nodes": [nodes[0] | {"guests": guests}, *nodes[1:2]]})
        )
        with remote.start() as agent:
            agent.wait_for("is ready")
            wait_until(lambda: "node-1" in list_refused())
            assert [row.nodename for row in store.list_nodes()] == ["node-2"]
            remote.inventory.write_text(json.dumps({"nodes": nodes[:2]}))
            wait_until(lambda: not list_refused())
            remote.inventory.write_text(
                json.dumps({"nodes": [nodes[0] | {"guests": guests}, *nodes[1:]]})
            )
            wait_until(lambda: set(list_refused()) == {"node-1", "node-3"})
            shown = conductor.manage("candidate", "list", "--resource", "VCPU=1", "-f", "json")
            assert [item["nodename"] for item in json.loads(shown.stdout)] == ["node-2"]
            remote.inventory.write_text(json.dumps({"nodes": nodes[:2]}))
            wait_until(lambda: not list_refused())
            agent.stop()
        running.stop()
        assert "Traceback" not in agent.output() + running.output()


@pytest.mark.parametrize("holds", [False, True])
def test_a_node_whose_capacity_jumps_is_a_warning_and_held_where_that_is_set(
    conductor: Conductor, remote: Remote, store: SqlStore, holds: bool
) -> None:
    with conductor.path.open("a") as file:
        file.write(f"[conductor]\nhold_jumps = {holds}\n")

    def list_jumps() -> list[str]:
        found = [record.warning for record in store.list_warnings() if record.resolved_at is None]
        return [w.message for w in found if w.kind == WarningKind.CAPACITY_JUMP]

    with conductor.start_conductor() as running:
        with remote.start() as agent:
            agent.wait_for("is ready")
            remote.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": 80}]}))
            wait_until(list_jumps)
            assert "80 CPUs, at most 16 before" in list_jumps()[0]
            refused = claim(remote, 1)
            assert (refused.returncode == 0) is not holds
            if holds:
                assert "node accept host-1 node-1" in refused.stdout + refused.stderr
                shown = conductor.manage("node", "describe", "host-1", "-f", "json").stdout
                assert "held: the capacity jumped" in shown
                found = conductor.manage("candidate", "list", "--resource", "VCPU=1", "-f", "json")
                assert found.stdout == ""
                assert "node accept" in found.stderr
                generation = store.list_nodes()[0].generation
                time.sleep(3)  # audits, which leave it as it is
                assert store.list_nodes()[0].generation == generation
            agent.stop()
        with remote.start() as agent:
            agent.wait_for("is ready")
            assert len(list_jumps()) == 1
            assert conductor.manage("node", "accept", "host-1", "node-1").returncode == 0
            assert list_jumps() == []
            wait_until(lambda: claim(remote, 2).returncode == 0)
            agent.stop()
        running.stop()
        assert "Traceback" not in agent.output() + running.output()


def test_an_agent_without_a_database_imports_no_database_library_and_is_small(
    conductor: Conductor, remote: Remote
) -> None:
    with (
        conductor.start_conductor(),
        remote.start(PYTHONPROFILEIMPORTTIME="1") as agent,
    ):
        agent.wait_for("is ready")
        lines = [line for line in agent.output().splitlines() if line.startswith("import time:")]
        imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
        assert not imported & {"sqlalchemy", "pymysql", "psycopg", "alembic", "oslo_messaging"}
        rss_mib = psutil.Process(agent.process.pid).memory_info().rss / 2**20
        print(f"RSS {rss_mib:.1f} MiB")
        assert rss_mib <= MAX_RSS_MIB


def test_commands_of_a_host_concern_that_host_alone(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor(), remote.start() as agent:
        agent.wait_for("is ready")
        assert claim(remote, 1).returncode == 0
        assert remote.ask("node", "list")[0]["vcpus_used"] == 1
        assert [row["host"] for row in remote.ask("service", "list")] == ["host-1"]
        assert len(remote.ask("claim", "list")) == 1
        lost = HostTolerance("host-1", Verdict.NOT_SURVIVED, "1 guest of 64 MiB", LossPlan())
        store.save_tolerances([lost], (), 3600)
        assert [row["loss"] for row in remote.ask("host", "list")] == ["not_survived"]
        refused = remote.manage("host", "set", "host-1", "--disable")
        assert (refused.returncode, "REST API" in refused.stderr) == (1, True)
        checked = remote.run("nodetracker-status", "upgrade", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert agent.stop() == 0  # so that only ages change
        through, direct = describe(remote), describe(conductor)
        assert "-000000000001  ◐ held" in through
        assert "If it fails" in through  # as found before or after the claim
        assert through == direct


def test_who_changed_what_is_in_the_file_of_changes(
    conductor: Conductor, remote: Remote, tmp_path: Path
) -> None:
    path = tmp_path / "changes.log"
    with conductor.path.open("a") as file:
        file.write(f"[audit]\nlog_file = {path}\n")
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        uuid = json.loads(claim(remote, 1).stdout)["uuid"]
        assert conductor.manage("host", "set", "host-1", "--disable").returncode == 0
        assert conductor.ask("node", "list")
        other = path.with_name("other.log")
        conductor.path.write_text(conductor.path.read_text().replace(f"{path}", f"{other}"))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("Configuration reloaded")
        assert remote.manage("claim", "abort", uuid).returncode == 0
        assert "abort_claim" in other.read_text()
        assert agent.stop() == 0
    changes = [line.partition(" Change -: ")[2] for line in path.read_text().splitlines()]
    by_agent = f"agent of host host-1, create_claim, target host host-1 node node-1 claim {uuid}"
    assert f"{by_agent} from 127.0.0.1: done" in changes
    assert changes[-1].startswith("user ")
    assert "command host set, target host-1 --disable from " in changes[-1]
    nouns = [line.split(", ")[1] for line in changes[:-1]]
    assert set(nouns) == {"join", "register_agent", "create_claim"}


def test_agents_are_listed_and_revoked(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        (row,) = conductor.ask("agent", "list")
        assert (row["host"], row["state"], row["address"]) == ("host-1", "valid", "127.0.0.1")
        assert conductor.ask("node", "list")[0]["state"] == "up"
        assert conductor.manage("agent", "revoke", "host-1").returncode == 0
        assert conductor.ask("node", "list")[0]["state"] == "down"
        agent.wait_for("conductors refuse this host")
        before = last_seen(store)
        assert conductor.ask("agent", "list")[0]["state"] == "revoked"
        running.wait_for("Refused /")
        (remote.directory / "token").write_text(conductor.make_token("--host", "host-1"))
        wait_until(lambda: last_seen(store) > before, 90)
        assert conductor.ask("node", "list")[0]["state"] == "up"


class TestCalls:
    """A host without a broker, which is called by its heartbeats."""

    @pytest.fixture
    def api(self, tmp_path: Path, connection: str) -> Iterator[Callable[..., Any]]:
        """Return a function that sends a request with a body to a REST service without a broker."""
        port = find_free_port()
        extra = f"[api]\nport = {port}\nauth_strategy = noauth"
        programs = Programs(tmp_path / "api", connection, "ctl", extra=extra)

        def post(path: str, body: Any = None) -> tuple[int, Any]:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as opened:
                headers = {"Content-Type": "application/json"}
                opened.request("POST", path, body and json.dumps(body), headers)
                answer = opened.getresponse()
                return answer.status, json.loads(answer.read())

        with programs.start("nodetracker-api") as running:
            running.wait_for("Serving on")
            yield post
            assert running.stop() == 0
            assert "Traceback" not in running.output()

    def test_it_is_audited_by_rest_by_command_and_after_a_claim_or_a_change_of_its_service(
        self, tmp_path: Path, conductor: Conductor, store: SqlStore, api: Callable[..., Any]
    ) -> None:
        def count_audits() -> float:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = answer.read().decode()
            return sum(
                float(value)
                for value in re.findall(r"^nodetracker_audits_total{.*} (.*)$", text, re.MULTILINE)
            )

        def add_cpus(vcpus: int) -> None:
            remote.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": vcpus}]}))

        def list_vcpus() -> list[int]:
            return [node.values.vcpus for node in store.list_nodes()]

        port = find_free_port()
        remote = Remote(
            tmp_path / "remote", conductor.endpoint, conductor.make_token(), metrics_port=port,
            update_resources_interval=-1,
        )  # fmt: skip
        with conductor.start_conductor(), remote.start() as agent:
            agent.wait_for("is ready")
            (node,) = store.list_nodes()
            add_cpus(32)
            status, answer = api(f"/v1/nodes/{node.uuid}/audit")
            assert (status, answer["nodes"], list_vcpus()) == (200, {"node-1": "update"}, [32])
            agent.wait_for("Carrying out update_available_resource, called by api:ctl")
            add_cpus(48)
            (row,) = conductor.ask("node", "audit", "host-1")
            assert (row["outcome"], list_vcpus()) == ("update", [48])
            before = count_audits()
            body = make_request(1) | {"host": "host-1", "nodename": "node-1"}
            assert api("/v1/claims", body)[0] == 201
            wait_until(lambda: count_audits() > before)
            for option in ("--disable", "--enable", "--enable-maintenance"):
                before = count_audits()
                assert conductor.manage("host", "set", "host-1", option).returncode == 0
                wait_until(lambda before=before: count_audits() > before)  # type: ignore[misc]
            status, answer = api("/v1/hosts/host-1/actions", {"action": "reboot"})
            assert (status, answer["errors"][0]["code"]) == (501, "nodetracker.not_supported")
            assert "oslo_messaging" not in agent.output()
            assert "broker" not in agent.output()
            assert agent.stop() == 0
            assert "Traceback" not in agent.output()

    @pytest.mark.parametrize("is_allowed", [True, False])
    def test_it_is_rebooted_where_that_is_allowed(
        self, tmp_path: Path, conductor: Conductor, store: SqlStore, api: Callable[..., Any],
        is_allowed: bool,
    ) -> None:  # fmt: skip
        systemctl = tmp_path / "bin" / "systemctl"
        systemctl.parent.mkdir()
        systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
        systemctl.chmod(0o755)
        remote = Remote(
            tmp_path / "remote", conductor.endpoint, conductor.make_token(), driver="local",
            allow_power_actions=is_allowed,
        )  # fmt: skip
        path = f"{systemctl.parent}:/usr/bin:/bin"
        with conductor.start_conductor(), remote.start(PATH=path) as agent:
            agent.wait_for("is ready")
            status, answer = api("/v1/hosts/host-1/actions", {"action": "reboot"})
            done = conductor.manage("host", "action", "host-1", "reboot")
            if is_allowed:
                assert (status, done.returncode, done.stderr) == (202, 0, "")
                assert (tmp_path / "asked").read_text() == "reboot\nreboot\n"
            else:
                assert "[compute] allow_power_actions is false" in json.dumps(answer)
                assert "[compute] allow_power_actions is false" in done.stderr
                assert (status, (tmp_path / "asked").exists()) == (501, False)
            assert agent.stop() == 0

    def test_one_whose_agent_has_ended_is_named(
        self, conductor: Conductor, remote: Remote, store: SqlStore
    ) -> None:
        with conductor.start_conductor(), remote.start() as agent:
            agent.wait_for("is ready")
            assert agent.stop() == 0
        done = conductor.manage("host", "action", "host-1", "reboot")
        assert done.returncode == 1
        assert "the agent of host host-1 does not run" in done.stderr


def test_a_host_with_a_database_has_no_credential_to_renew(conductor: Conductor) -> None:
    done = conductor.manage("agent", "rotate")
    assert done.returncode == 78
    assert "[conductor] use_local: is true" in done.stderr


def test_the_credential_is_renewed_on_its_host(conductor: Conductor, remote: Remote) -> None:
    with conductor.start_conductor(), remote.start() as agent:
        agent.wait_for("is ready")
        path = remote.directory / "state" / "credential"
        before = path.read_text()
        done = remote.manage("agent", "rotate")
        assert done.returncode == 0, done.stderr
        assert path.read_text() != before
        assert remote.ask("node", "list")[0]["state"] == "up"
        assert agent.stop() == 0


def test_over_tls_the_name_in_the_certificate_is_checked(
    conductor: Conductor, remote: Remote, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    conductor.use_tls(*authority.issue(tmp_path, "127.0.0.1"))
    port = conductor.port
    remote.path.write_text(remote.path.read_text().replace("= http://", "= https://"))
    remote.trust(authority.certificate)
    text = remote.path.read_text()
    with conductor.start_conductor(), remote.start() as agent:
        agent.wait_for("is ready")
        remote.path.write_text(text.replace(f"127.0.0.1:{port}", f"localhost:{port}"))
        done = remote.manage("node", "list")
        assert (done.returncode, "its certificate is refused" in done.stderr) == (1, True)
        assert agent.stop() == 0


def test_a_host_without_a_database_makes_none(remote: Remote) -> None:
    lines = remote.path.read_text().splitlines(keepends=True)
    remote.path.write_text("".join(line for line in lines if not line.startswith("connection =")))
    for command in ("sync", "version", "check"):
        done = remote.manage("db", command)
        assert done.returncode == 78
        assert "[database] connection: not set" in done.stderr
    assert remote.run("nodetracker-conductor").returncode == 78
    assert not list(remote.directory.rglob("*.sqlite"))


def test_without_a_conductor_calls_end_and_the_agent_goes_on_when_one_comes(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with remote.start() as agent:
        agent.wait_for("The database: ")
        began = time.monotonic()
        done = remote.manage("node", "list")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert time.monotonic() - began < 90
        with conductor.start_conductor():
            wait_until(lambda: bool(store.list_nodes()), 90)


def test_a_heartbeat_that_comes_late_does_not_revive_a_dead_agent(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor() as running, remote.start() as agent:
        agent.wait_for("is ready")
        before = last_seen(store)
        wait_until(lambda: last_seen(store) > before)
        suspend(running.process.pid)
        agent.wait_for("The database: ")  # a heartbeat is on its way, and given up
        time.sleep(2.5)  # and so are further ones, should the first have been in the works
        agent.process.kill()
        time.sleep(1.5)  # longer than its interval: whatever it sent last is late by then
        resumed_at = store.now()
        running.process.send_signal(signal.SIGCONT)
        later = store.now() + timedelta(seconds=2)
        wait_until(lambda: last_seen(store, "c-1", CONDUCTOR_BINARY) > later)
        assert last_seen(store) < resumed_at


class Storm:
    """Processes that claim on their hosts through the conductors."""

    def __init__(self, directory: Path, remotes: list[Remote], steps: int) -> None:
        self._running = [
            StormProcess(
                directory / f"storm-{number}",
                str(remotes[number].path),
                "--by-conductor",
                f"--seed={number}",
                f"--steps={steps}",
                f"--host={remotes[number].host}",
            )
            for number in range(CLAIMERS)
        ]

    def begin(self) -> None:
        for process in self._running:
            process.wait_until_ready()
        for process in self._running:
            process.begin()

    def wait(self) -> list[dict[str, Any]]:
        for process in self._running:
            process.wait(300)
        return [line for process in self._running for line in process.told()]


def test_one_of_two_conductors_killed_in_a_storm_of_claims_loses_nothing(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    conductors = [Conductor(tmp_path / name, connection, name) for name in ("c-1", "c-2")]
    endpoints = ", ".join(item.endpoint for item in conductors)
    token = conductors[0].make_token("--uses", str(AGENTS))
    remotes = [
        Remote(
            tmp_path / f"r{n}",
            endpoints,
            token,
            f"host-{n}",
            down_after=600,
            report_interval=5,
            update_resources_interval=5,
        )
        for n in range(AGENTS)
    ]
    running = [item.start_conductor() for item in conductors]
    agents: list[Running] = []
    try:
        agents += [remote.start() for remote in remotes]
        for agent in agents:
            agent.wait_for("is ready", 120)
        storm = Storm(tmp_path, remotes, steps=60)
        storm.begin()
        wait_until(lambda: len(store.list_claims()) > 40, 60)
        running[0].process.kill()
        told = storm.wait()
        check_storm(store, told)
        counts = {s.host: s.report_count for s in store.list_services(binary=COMPUTE_BINARY)}
        assert len(counts) == AGENTS
        wait_until(
            lambda: all(
                s.report_count > counts[s.host] for s in store.list_services(binary=COMPUTE_BINARY)
            ),
            60,
        )
        assert all("Traceback" not in agent.output() for agent in agents)
    finally:
        for agent in agents:
            agent.process.kill()
        for item in [*agents, *running]:
            item.process.kill()
            item.process.wait()
    check_storm(store, told)


def check_storm(store: SqlStore, told: list[dict[str, Any]]) -> None:
    """Assert that rows add up, and that every answer that was given is so."""
    claims = store.list_claims()
    for host in {record.host for record in store.list_nodes()}:
        check_rows(store.load_nodes(host), store.list_claims(host))
    by_uuid = {claim.uuid: claim for claim in claims}
    assert len(by_uuid) == len(claims)
    names: dict[str, set[str]] = {}
    for line in told:
        names.setdefault(line["what"], set()).add(line["uuid"])
    assert names["granted"] == by_uuid.keys()  # what was asked again was granted once
    bodies = {line["uuid"]: line["body"] for line in told if line["what"] == "asked"}
    for name, held in by_uuid.items():
        request = parse_claim_request(bodies[name])
        assert (held.workload, held.amounts) == (request.workload, request.amounts)
        assert (held.reason == "aborted") == (name in names["aborted"])


def test_agents_that_reach_no_conductor_are_unreachable_and_not_gone(
    tmp_path: Path, connection: str
) -> None:
    """The conductor lives on, and no agent can connect: it moved to another port."""
    down_after = 16
    conductor = Conductor(tmp_path / "conductor", connection, down_after=down_after)
    token = conductor.make_token("--uses", "2")
    remotes = [
        Remote(tmp_path / host, conductor.endpoint, token, host, down_after=down_after)
        for host in ("host-1", "host-2")
    ]

    def states() -> set[str]:
        return {row["state"] for row in conductor.ask("node", "list")}

    with conductor.start_conductor(), remotes[0].start() as first, remotes[1].start() as second:
        for agent in (first, second):
            agent.wait_for("is ready")
        wait_until(lambda: states() == {"up"})
        for agent in (first, second):
            agent.process.send_signal(signal.SIGSTOP)  # as a firewall that drops everything
        wait_until(lambda: states() == {"unreachable"}, 60)
        assert "host host-1 is down" in claim(conductor, 1).stderr
        kinds = ("agent_unreachable",)
        wait_until(
            lambda: {row["kind"] for row in conductor.ask("warning", "list")} >= set(kinds), 60
        )
        for agent in (first, second):
            agent.process.send_signal(signal.SIGCONT)
        wait_until(lambda: states() == {"up"}, 60)
        first.process.send_signal(signal.SIGSTOP)  # one silent agent is down
        wait_until(lambda: states() == {"up", "down"}, 60)
        first.process.send_signal(signal.SIGCONT)
