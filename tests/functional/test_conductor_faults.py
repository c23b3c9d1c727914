"""Faults between agents and conductors: no agent is down but for the fault, nothing is doubled."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nodetracker.accounting.liveness import is_service_up
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.store import SqlStore
from nodetracker.model.change import EventKind
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, ServiceRecord
from nodetracker.model.warning import WarningKind
from tests.bench.fleet.worker import config_file
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.process import require, require_root
from tests.functional.servers.proxy import Proxy
from tests.functional.servers.tls import Authority
from tests.programs import Running, wait_until

BEGINS, ENDS = "The database: ", "The database is back after "
REQUEST = {
    "workload": {"uuid": "6a0e1f6c-5a34-4a64-9d3a-000000000001"},
    "resources": {"VCPU": 1, "MEMORY_MB": 64},
}


def set_vcpus(remote: Remote, vcpus: int) -> None:
    replacement = remote.inventory.with_suffix(".new")
    replacement.write_text(json.dumps({"nodes": [NODE | {"vcpus": vcpus}]}))
    replacement.rename(remote.inventory)


def list_vcpus(store: SqlStore) -> list[int]:
    return [node.values.vcpus for node in store.list_nodes()]


def list_outages(agent: Running) -> list[str]:
    return [line for line in agent.output().splitlines() if BEGINS in line or ENDS in line]


def list_agents(store: SqlStore) -> list[ServiceRecord]:
    return store.list_services(binary=COMPUTE_BINARY)


def test_an_expired_certificate_takes_no_agent_for_dead(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    """It expired, and nobody noticed until the conductor was started again."""
    down_after, authority = 24, Authority(tmp_path)
    conductor = Conductor(tmp_path / "conductor", connection, down_after=down_after)
    conductor.use_tls(*authority.issue(tmp_path, "127.0.0.1"))
    token = conductor.make_token("--uses", "2")
    remotes = [
        Remote(
            tmp_path / host, conductor.endpoint, token, host, down_after=down_after,
            report_interval=4, update_resources_interval=1,
        )
        for host in ("host-1", "host-2")
    ]  # fmt: skip
    for remote in remotes:
        remote.trust(authority.certificate)

    def states() -> set[str]:
        return {row["state"] for row in conductor.ask("node", "list")}

    def count_reports() -> tuple[int, int]:
        (service,) = store.list_services(binary=CONDUCTOR_BINARY)
        return service.epoch, service.report_count

    with conductor.start_conductor() as first, remotes[0].start() as one, remotes[1].start() as two:
        agents = (one, two)
        for agent in agents:
            agent.wait_for("is ready")
        wait_until(lambda: list_vcpus(store) == [16, 16])
        for agent in agents:  # so that all of them find its new certificate at their next call
            agent.process.send_signal(signal.SIGSTOP)
        assert first.stop() == 0
        authority.issue(tmp_path, "127.0.0.1", days=-1)
        before = count_reports()
        with conductor.start_conductor() as second:
            wait_until(lambda: count_reports() > before)  # it says who called
            for agent in agents:
                agent.process.send_signal(signal.SIGCONT)
            seen: list[set[str]] = []
            wait_until(lambda: seen.append(states()) or seen[-1] == {"unreachable"})
            assert "down" not in set().union(*seen)
            for remote in remotes:
                set_vcpus(remote, 32)
            authority.issue(tmp_path, "127.0.0.1")
            second.process.send_signal(signal.SIGHUP)
            wait_until(lambda: list_vcpus(store) == [32, 32])
            wait_until(lambda: states() == {"up"})
            for agent in agents:
                agent.wait_for(ENDS)
                begins, ends = list_outages(agent)
                problem = (
                    f"{conductor.endpoint}: its certificate is refused: certificate has expired"
                )
                assert problem in begins
                assert ENDS in ends
                assert agent.stop() == 0
                assert "Traceback" not in agent.output()
    kinds = [record.warning.kind.value for record in store.list_warnings()]
    assert "host_down" not in kinds


class TestCutAnswer:
    """The network is cut in the middle of a conductor's answer, after it has written."""

    @pytest.fixture
    def proxy(self, conductor: Conductor) -> Iterator[Proxy]:
        proxy = Proxy(conductor.port)
        yield proxy
        proxy.close()

    @pytest.fixture
    def remote(self, tmp_path: Path, conductor: Conductor, proxy: Proxy) -> Remote:
        endpoint, token = f"http://127.0.0.1:{proxy.port}", conductor.make_token()
        return Remote(
            tmp_path / "remote", endpoint, token, report_interval=10, update_resources_interval=1
        )

    @pytest.fixture
    def agent(self, conductor: Conductor, remote: Remote) -> Iterator[Running]:
        with conductor.start_conductor(), remote.start() as agent:
            agent.wait_for("is ready")
            yield agent

    def test_an_audit_is_written_once(
        self, agent: Running, remote: Remote, proxy: Proxy, store: SqlStore
    ) -> None:
        proxy.cut_at(b"/store/apply_changes")
        set_vcpus(remote, 32)
        assert proxy.cut.wait(60)
        assert list_vcpus(store) == [32]
        set_vcpus(remote, 64)
        wait_until(lambda: list_vcpus(store) == [64])
        query = HistoryQuery(kinds=(EventKind.NODE,))
        changes = [entry.diff["vcpus"] for entry in store.list_history_page(query).items]
        assert changes == [[32, 64], [16, 32], [None, 16]]
        wait_until(lambda: len(list_outages(agent)) % 2 == 0)
        assert len(list_outages(agent)) <= 2
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()

    def test_a_claim_is_made_once(
        self, agent: Running, remote: Remote, proxy: Proxy, store: SqlStore
    ) -> None:
        proxy.cut_at(b"/store/create_claim")
        body = remote.directory / "request"
        body.write_text(json.dumps(REQUEST))
        done = remote.manage("claim", "create", str(body), "--host", "host-1", "-f", "json")
        assert done.returncode == 0, done.stderr
        assert proxy.cut.is_set()
        (held,) = store.list_claims()
        assert held.uuid == json.loads(done.stdout)["uuid"]
        (node,) = store.list_nodes()
        assert node.values.vcpus_used == 1
        assert agent.stop() == 0
        assert list_outages(agent) == []


@pytest.mark.parametrize("shift", [3600, -3600])
def test_a_conductor_whose_clock_is_an_hour_off_takes_no_agent_for_dead(
    tmp_path: Path, conductor: Conductor, store: SqlStore, shift: int
) -> None:
    """Ages and late calls are by the database's clock."""
    remote = Remote(
        tmp_path / "remote", conductor.endpoint, conductor.make_token(), report_interval=10,
        update_resources_interval=1,
    )  # fmt: skip
    (tmp_path / "shift").write_text(str(shift))
    module = "tests.functional.runs.shifted_clock"
    command = [sys.executable, "-m", module, str(tmp_path / "shift"), "conductor"]

    def call(seconds: float) -> tuple[int, str]:
        """Call with an expiry so many seconds from now."""
        body = {
            "version": CONDUCTOR.version,
            "expires_at": (store.now() + timedelta(seconds=seconds)).isoformat(),
            "arguments": CONDUCTOR.methods["list_nodes"].encode_arguments("host-1"),
        }
        secret = (remote.directory / "state" / "credential").read_text().strip()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {secret}"}
        url = f"{conductor.endpoint}/store/list_nodes"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    command += [f"--config-file={conductor.path}"]
    with Running(command, conductor.directory) as running, contextlib.ExitStack() as started:
        running.wait_for("is ready")
        agent = started.enter_context(remote.start())
        agent.wait_for("is ready")
        wait_until(lambda: store.list_services("host-1")[0].report_count > 1)
        (service,) = list_agents(store)
        assert is_service_up(service, store.now(), remote.down_after)
        assert service.last_seen_up is not None
        assert abs((store.now() - service.last_seen_up).total_seconds()) < 60
        assert abs(service.clock_skew_ms or 0) < 60_000  # the agent's own, which is right
        for programs in (remote, conductor):
            (row,) = programs.ask("node", "list")
            assert (row["state"], 0 <= row["audit_age_seconds"] < 60) == ("up", True)
        assert store.list_warnings() == []
        status, text = call(-2)
        assert (status, "too late; nothing was done" in text) == (503, True)
        assert call(60)[0] == 200
        assert list_outages(agent) == []
        assert agent.stop() == 0
        assert running.stop() == 0


class TestClone:
    """A disk that was cloned, with its credential and the agent's id, and runs elsewhere."""

    @pytest.fixture
    def remote(self, tmp_path: Path, conductor: Conductor) -> Remote:
        token = conductor.make_token()
        return self.make(tmp_path / "remote", conductor.endpoint, token)

    def make(self, directory: Path, endpoint: str, token: str, host: str = "host-1") -> Remote:
        """Return a host that is watched for ten seconds before another takes it over."""
        options = {"report_interval": 5, "update_resources_interval": 1}
        return Remote(directory, endpoint, token, host, **options)

    def clone(self, remote: Remote, host: str) -> Remote:
        endpoint = next(
            line.partition(" = ")[2]
            for line in remote.path.read_text().splitlines()
            if line.startswith("endpoint")
        )
        directory = remote.directory.parent / "clone"
        cloned = self.make(directory, endpoint, "", host)
        (directory / "token").unlink()
        set_vcpus(cloned, 4)
        ignored = shutil.ignore_patterns("agent.sock")
        shutil.copytree(remote.directory / "state", directory / "state", ignore=ignored)
        return cloned

    @pytest.mark.parametrize("host", ["host-1", "host-2"])
    def test_it_is_refused_and_the_first_goes_on(
        self, conductor: Conductor, remote: Remote, store: SqlStore, host: str
    ) -> None:
        require_root("make a pid namespace")
        require("unshare")
        elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with conductor.start_conductor(), remote.start() as first:
            first.wait_for("is ready")
            (before,) = list_agents(store)
            cloned = self.clone(remote, host)
            with cloned.start(before=elsewhere) as second:
                assert second.process.wait(60) == 78, second.output()
                last = second.output().splitlines()[-1]
            agent_id = before.incarnation.agent_id
            assert "is alive" in last
            assert last.count(f"agent {agent_id} (process ") == 2  # both are named
            state = cloned.directory / "state"
            assert f"delete {state / 'compute_id'} and {state / 'credential'}" in last
            set_vcpus(remote, 32)
            wait_until(lambda: list_vcpus(store) == [32])
            (after,) = list_agents(store)
            assert after.incarnation == before.incarnation
            (warned,) = store.list_warnings("host-1")
            assert warned.warning.kind is WarningKind.DUPLICATE_REFUSED
            assert f"{agent_id} (process 1," in warned.warning.message
            assert list_outages(first) == []
            for name in ("compute_id", "credential"):
                (state / name).unlink()
            (cloned.directory / "token").write_text(conductor.make_token())
            if host == "host-2":
                with cloned.start() as second:
                    second.wait_for("is ready")
                    assert sorted(list_vcpus(store)) == [4, 32]
            assert first.stop() == 0


def test_sixty_agents_that_connect_at_once_are_all_up_and_written_once(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    """Both conductors are killed and started again."""
    agents, down_after = 60, 60
    conductors = [Conductor(tmp_path / name, connection, name) for name in ("c-1", "c-2")]
    token = conductors[0].make_token("--uses", str(agents))
    endpoints = ", ".join(item.endpoint for item in conductors)
    for number in range(agents):
        options = {"down_after": down_after, "report_interval": 5, "update_resources_interval": 5}
        remote = Remote(tmp_path / f"r{number}", endpoints, token, f"host-{number}", **options)
        config_file(tmp_path, f"agent-{number}").write_text(remote.path.read_text())
    command = [sys.executable, "-m", "tests.bench.fleet.worker", str(tmp_path), "0", str(agents)]
    lost: set[str] = set()

    def counts() -> dict[str, int]:
        services, now = list_agents(store), store.now()
        lost.update(item.host for item in services if not is_service_up(item, now, down_after))
        return {item.host: item.report_count for item in services}

    with contextlib.ExitStack() as started:
        running = [started.enter_context(item.start_conductor()) for item in conductors]
        log = started.enter_context((tmp_path / "worker.log").open("w"))
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        started.callback(worker.wait)
        started.callback(worker.kill)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "started\n", (tmp_path / "worker.log").read_text()
        for process in running:
            process.process.kill()
        before = counts()
        again = [started.enter_context(item.start_conductor()) for item in conductors]
        wait_until(lambda: all(count > before[host] for host, count in counts().items()), 180)
        assert all("Traceback" not in process.output() for process in again)
    hosts = {f"host-{number}" for number in range(agents)}
    assert (lost, before.keys()) == (set(), hosts)
    assert Counter(node.host for node in store.list_nodes()) == Counter(hosts)
    query = HistoryQuery(kinds=(EventKind.NODE,))
    made = [entry.host for entry in store.list_history_page(query).items]
    assert Counter(made) == Counter(hosts)
    assert {item.epoch for item in list_agents(store)} == {1}
    log_text = (tmp_path / "worker.log").read_text()
    assert "Traceback" not in log_text
