"""The agent through every outage of its database: two lines, and it goes on by itself."""

import itertools
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from oslo_db.exception import DBDeadlock
from sqlalchemy.engine import make_url

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.connection.sessions import KEPT_CONNECTIONS
from nodetracker.db.schema import revisions, tables
from nodetracker.db.store import SqlStore, open_store
from nodetracker.process.outage import SETTLE_SECONDS
from tests.functional.servers import mariadb, postgresql
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.functional.servers.process import add_options
from tests.functional.servers.small_disk import SmallDisk
from tests.functional.servers.tls import Authority
from tests.programs import Programs, Running, wait_until

SERVERS: dict[str, Callable[..., Any]] = {"mariadb": MariaDB, "postgresql": PostgreSQL}
SECRETS = (mariadb.PASSWORD, postgresql.PASSWORD)
BEGINS, ENDS = "The database: ", "The database is back after "
POOLED = 2  # connections that the agent keeps
SOCKETS = POOLED + 1  # the agent listens on agent.sock
# main, audits, events, heartbeats, wake-socket, two that read each of two nodes, and the last
# threads for events, news and calls
THREADS = 12

_numbers = itertools.count(1)


class RunningAgent:
    """The real agent with the fake driver on one database, and what is seen of it."""

    def __init__(self, directory: Path, url: str, **options: int) -> None:
        self.programs = Programs(directory, url, **({"update_resources_interval": 1} | options))
        self.store: SqlStore = open_store(DatabaseSettings(url))
        self.running: Running | None = None
        self._memory = 1000
        self._lines_before = self._files_before = 0
        self.change()

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.process.pid

    def start(self, line: str = "is ready") -> None:
        """Start the agent and wait for a line of its log."""
        self.running = self.programs.start()
        self.running.wait_for(line)

    def settle(self) -> None:
        """Wait until the rows are right, and note what is compared later."""
        wait_until(self.is_right)
        self._lines_before = len(self.lines())
        self._files_before = max(self.count_files() for _ in every_tenth_second(5))

    def change(self, guests: int = 0) -> None:
        """Change the machine: from now on the rows are wrong until the agent writes them."""
        self._memory += 1000
        node = {
            "vcpus": 16,
            "memory_mb": self._memory,
            "disk_gb": 500,
        }
        guest = {"name": "x" * 200, "vcpus": 0, "memory_mb": 0, "disk_gb": 0}
        many = [{"uuid": str(uuid.uuid4()), **guest} for _ in range(guests)]
        nodes = [
            {"nodename": "node-1", "guests": many, **node},
            {"nodename": "node-2", "guests": [], **node},
        ]
        replacement = self.programs.inventory.with_suffix(".new")
        replacement.write_text(yaml.safe_dump({"nodes": nodes}))
        replacement.rename(self.programs.inventory)

    def is_right(self) -> bool:
        return self.list_memory_mb() == [self._memory] * 2

    def list_memory_mb(self) -> list[int]:
        """Return what the rows say."""
        return [node.values.memory_mb for node in self.store.list_nodes("host-1")]

    def last_seen(self) -> Any:
        """Return something that every heartbeat changes."""
        (service,) = self.store.list_services("host-1")
        return service.report_count

    def wait_for_heartbeat(self) -> None:
        seen = self.last_seen()
        wait_until(lambda: self.last_seen() != seen)

    def lines(self) -> list[str]:
        """Return what the agent has logged, without times."""
        assert self.running is not None
        return [
            re.sub(r"^.*?nodetracker[\w.]* ", "", x) for x in self.running.output().splitlines()
        ]

    def new_lines(self) -> list[str]:
        """Return what it has logged since it was settled."""
        return self.lines()[self._lines_before :]

    def wait_for_outage(self) -> None:
        wait_until(lambda: any(BEGINS in line for line in self.new_lines()))

    def count_files(self) -> int:
        """Count the open files; connections to the database are not among them."""
        return len([name for name in list_files(self.pid) if not name.startswith("socket:")])

    def count_sockets(self) -> int:
        return len([name for name in list_files(self.pid) if name.startswith("socket:")])

    def assert_at_work_again(self) -> None:
        """Make sure that rows and heartbeats are right, and threads and files as before."""
        wait_until(self.is_right)
        self.wait_for_heartbeat()
        wait_until(lambda: count_threads(self.pid) <= THREADS)
        wait_until(lambda: self.count_files() <= self._files_before)
        wait_until(lambda: self.count_sockets() <= SOCKETS)

    def assert_said_twice(self) -> None:
        """Make sure that the log has a line for the beginning, one for the end and no more."""
        self.wait_for_end()
        lines = self.new_lines()
        assert len(lines) == 2, lines
        assert BEGINS in lines[0]
        assert ENDS in lines[1]

    def wait_for_end(self) -> None:
        """Wait until each outage that was logged has its second line, which follows the rows."""
        with suppress(AssertionError):  # the lines say more
            wait_until(self.is_said_to_be_back)

    def is_said_to_be_back(self) -> bool:
        lines = self.new_lines()
        return sum(BEGINS in line for line in lines) == sum(ENDS in line for line in lines)

    def assert_said_in_pairs(self) -> None:
        """Make sure that each outage that was noticed, if any, has its two lines."""
        self.wait_for_end()
        lines = self.new_lines()
        for begins, ends in zip(lines[::2], lines[1::2], strict=True):
            assert BEGINS in begins
            assert ENDS in ends

    def stop(self) -> None:
        """End it and make sure that its log is fit to be read."""
        self.store.close()
        if self.running is None:
            return
        with self.running:
            code = self.running.stop()
        text = self.running.output()
        assert code == 0, text
        assert "Traceback" not in text
        assert not any(secret in text for secret in SECRETS)


def every_tenth_second(times: int) -> Iterator[None]:
    """Come again that often."""
    for _ in range(times):
        yield
        time.sleep(0.1)


def count_threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def list_files(pid: int) -> list[str]:
    """Return what the descriptors of a process stand for."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    return names


def make_agent(server: Any, directory: Path) -> RunningAgent:
    """Prepare an agent on a new database of a server."""
    url = server.create_database(f"nt_agent_{next(_numbers)}")
    agent = RunningAgent(directory, add_options(url, connect_timeout=6, read_timeout=8))
    revisions.sync(agent.store.engine)
    return agent


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this module's own, as its tests stop it."""
    made = SERVERS[request.param]()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def lasting_agent(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    """One agent that goes through all outages of its server, one after another."""
    made = make_agent(server, tmp_path_factory.mktemp("agent"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def agent(lasting_agent: RunningAgent) -> RunningAgent:
    """The agent, at work and with right rows."""
    lasting_agent.settle()
    return lasting_agent


def test_a_server_that_is_away_at_the_start_is_said_once_and_served_later(
    server: Any, tmp_path: Path
) -> None:
    agent = make_agent(server, tmp_path)
    server.stop()
    try:
        agent.start("once the database is back")
        time.sleep(2)
        before = agent.lines()
    finally:
        server.start()
    try:
        wait_until(agent.is_said_to_be_back)
        agent.settle()
        assert len([line for line in before if BEGINS in line]) == 1, before
        after = agent.lines()[len(before) :]
        assert len(after) == 1, after
        assert ENDS in after[0]
        agent.assert_at_work_again()
    finally:
        agent.stop()


def test_a_server_that_was_stopped_is_caught_up_with_and_said_twice(
    server: Any, agent: RunningAgent
) -> None:
    server.stop()
    agent.change()
    agent.wait_for_outage()
    time.sleep(2)
    server.start()
    agent.assert_at_work_again()
    agent.assert_said_twice()


def test_a_restart_of_the_server_loses_no_change(server: Any, agent: RunningAgent) -> None:
    agent.change()
    server.stop()
    server.start()
    agent.assert_at_work_again()
    agent.assert_said_in_pairs()  # it may have been away between two questions


def test_a_frozen_server_is_given_up_and_caught_up_with(server: Any, agent: RunningAgent) -> None:
    server.process.freeze()
    try:
        agent.change()
        agent.wait_for_outage()
        time.sleep(2)
    finally:
        server.process.thaw()
    agent.assert_at_work_again()
    agent.assert_said_twice()


def test_a_server_frozen_for_less_than_its_timeout_loses_no_change(
    server: Any, agent: RunningAgent
) -> None:
    server.process.freeze()
    agent.change()
    time.sleep(1.5)
    server.process.thaw()
    agent.assert_at_work_again()
    agent.assert_said_in_pairs()  # none but where a connection was cut while it was in use


def test_a_read_only_server_is_an_outage_that_ends(server: Any, agent: RunningAgent) -> None:
    """Reading works all the while, and an audit that finds nothing to write succeeds."""
    server.set_read_only(True)
    try:
        agent.wait_for_outage()
        time.sleep(2)
        agent.change()
        time.sleep(2)
    finally:
        server.set_read_only(False)
    agent.assert_at_work_again()
    agent.assert_said_twice()


def test_connections_that_are_cut_again_and_again_are_one_outage(
    server: Any, agent: RunningAgent
) -> None:
    began = time.monotonic()
    for number in range(40):
        if number % 8 == 0:
            agent.change()
        server.kill_connections()
        time.sleep(0.15)
    # On a busy machine these take long, and the agent may work for a while between two of them.
    outages = 1 + int((time.monotonic() - began) / SETTLE_SECONDS)
    agent.assert_at_work_again()
    agent.assert_said_in_pairs()
    assert len(agent.new_lines()) <= 2 * outages


def test_an_expired_certificate_is_an_outage_in_words(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue(tmp_path, "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    options = [f"--ssl-cert={served}/{files[0].name}", f"--ssl-key={served}/{files[1].name}"]

    def issue(server: MariaDB | None, days: int) -> None:
        for path in authority.issue(tmp_path, "127.0.0.1", days=days):
            shutil.copy(path, served / path.name)
            if server is not None and server.process.user is not None:
                shutil.chown(served / path.name, server.process.user)
        if server is not None:
            server.execute("FLUSH SSL")

    issue(None, 2)
    server = MariaDB(options=options)
    try:
        url = make_url(server.create_database("nt_expired")).difference_update_query(
            ["ssl_disabled"]
        )
        trusted = url.update_query_dict({"ssl_ca": str(authority.certificate)})
        # It only beats, so that no connection is in use when they are cut.
        agent = RunningAgent(
            tmp_path / "agent", trusted.render_as_string(hide_password=False),
            report_interval=4, update_resources_interval=-1,
        )  # fmt: skip
        try:
            revisions.sync(agent.store.engine)
            agent.start()
            agent.settle()
            issue(server, -1)
            agent.wait_for_heartbeat()
            server.kill_connections()
            agent.wait_for_outage()
            time.sleep(2)
            issue(server, 2)
            wait_until(agent.is_said_to_be_back)
            begins, ends = agent.new_lines()
            assert "certificate verify failed: certificate has expired" in begins
            assert "_ssl.c" not in begins
            assert ENDS in ends
        finally:
            agent.stop()
    finally:
        server.remove()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_without_room_is_an_outage_that_ends(kind: str, tmp_path: Path) -> None:
    """What needs no room can be written all the while: heartbeats are, for some time."""
    server = SERVERS[kind](disk_mb=128)
    try:
        agent = make_agent(server, tmp_path)
        try:
            agent.start()
            fill_and_free(agent, server.process.disk, guests=2000)
        finally:
            agent.stop()
    finally:
        server.remove()


def fill_and_free(agent: RunningAgent, disk: SmallDisk, guests: int) -> None:
    """Let the disk be full while the agent has much to write."""
    agent.settle()
    disk.fill()
    agent.change(guests)
    agent.wait_for_outage()
    time.sleep(2)
    disk.free()
    agent.assert_at_work_again()
    agent.assert_said_twice()


def test_cut_connections_lose_no_change(server: Any, agent: RunningAgent) -> None:
    for _ in range(4):
        server.kill_connections()
        agent.change()
        time.sleep(0.7)
    agent.assert_at_work_again()
    agent.assert_said_in_pairs()  # none but where a connection was cut while it was in use


def test_a_connection_cut_in_a_transaction_loses_no_change(
    server: Any, agent: RunningAgent
) -> None:
    other = agent.store.engine.connect()
    other.execute(sa.select(tables.compute_nodes.c.id).with_for_update())
    agent.change()
    wait_until(lambda: server.count_waiting() > 0)
    server.kill_connections()
    other.invalidate()
    other.close()
    agent.assert_at_work_again()
    agent.assert_said_in_pairs()  # none when the lock was let go before its connection was cut


def test_a_deadlock_costs_no_change_and_no_line(server: Any, agent: RunningAgent) -> None:
    """Another client locks the agent's rows the other way round; one of the two gives way."""
    before = server.count_deadlocks()
    nodes = tables.compute_nodes.c
    first, second = sorted(node.id for node in agent.store.list_nodes("host-1"))
    for _ in range(3):
        with agent.store.engine.connect() as other:
            try:
                lock = sa.select(nodes.id).with_for_update()
                other.execute(lock.where(nodes.id == second))
                agent.change()
                wait_until(lambda: server.count_waiting() > 0)
                other.execute(lock.where(nodes.id == first))
            except DBDeadlock:
                pass  # the other client gave way
    agent.assert_at_work_again()
    wait_until(lambda: server.count_deadlocks() > before)
    assert agent.new_lines() == []


class AgentOnSmallDisk(RunningAgent):
    """An agent that alone sees the disk with its SQLite file."""

    def count_files(self) -> int:
        """Count the open files but those of connections that are kept, one or two by now."""
        own = sum("/db.sqlite" in name for name in list_files(self.pid))
        kept = 2 * KEPT_CONNECTIONS + 1  # the file and its log, and the log's index
        return super().count_files() - min(own, kept)

    def list_memory_mb(self) -> list[int]:
        """Return what the rows say."""
        return [row["memory_mb"] for row in self.programs.ask("node", "list")]

    def last_seen(self) -> Any:
        """Return something that every heartbeat changes."""
        return self.programs.ask("service", "list")[0]["updated_at"]


def test_a_full_disk_under_sqlite_is_an_outage_that_ends(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", 4)
    agent = AgentOnSmallDisk(tmp_path, f"sqlite:///{tmp_path}/disk/db.sqlite")
    agent.programs.mount_namespace = disk.mount_namespace
    try:
        agent.programs.manage("db", "sync")
        agent.start()
        fill_and_free(agent, disk, guests=200)
    finally:
        agent.stop()
        disk.remove()
