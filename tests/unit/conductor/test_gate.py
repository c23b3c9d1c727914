"""What a conductor reads of calls, and how many it carries out, before it knows who calls."""

import asyncio
import contextlib
import gzip
import http.client
import json
import random
import socket
import threading
import time
import uuid
from datetime import timedelta

import pytest

from nodetracker.conductor.application import ConductorApplication
from nodetracker.conductor.authorization import Authorizer
from nodetracker.conductor.connections import ConductorUrl
from nodetracker.conductor.gate import (
    LANES,
    MAX_WAITING,
    STRANGERS,
    STRANGERS_PER_ADDRESS,
    TURNS,
    Gate,
)
from nodetracker.conductor.http_caller import AgentIdentity, HttpCaller
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.conductor.known_hosts import REMEMBERED_SECONDS, KnownHosts
from nodetracker.model.credential import CREDENTIAL_FILE, hash_secret, make_secret
from nodetracker.model.errors import RpcUnavailableError
from nodetracker.model.service import AuditState
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.clock import DatabaseClock
from nodetracker.web.server import Server
from tests.builders import register
from tests.functional.servers.process import find_free_port
from tests.programs import wait_until
from tests.settings import make_api_settings
from tests.stores import SqliteStore

TOKEN = "a join token"
LARGE = 2 * 2**20


class SlowStore(SqliteStore):
    """A store in which `list_warnings` waits until it may go on."""

    def __init__(self):
        super().__init__()
        self.may_go_on = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.lookups = []

    def list_warnings(self, host=None):
        self.waiting.release()
        assert self.may_go_on.wait(60)
        return super().list_warnings(host)

    def find_hosts(self, secret_hashes):
        self.lookups.append(len(secret_hashes))
        return super().find_hosts(secret_hashes)


class Conductor:
    """A conductor on loopback, and what is sent to it."""

    def __init__(self, store, serves_older=lambda: True):
        self.store = store
        self.serves_older = serves_older
        self.secrets = {}

    @contextlib.contextmanager
    def serving(self):
        authorizer = Authorizer(self.store, AdmissionPolicy(60, 600), 60)
        clock = DatabaseClock()
        self.application = ConductorApplication(
            "c1", self.store, self.store, authorizer, clock, serves_older=self.serves_older
        )
        self.port = find_free_port()

        def make_gate(reader):
            self.gate = Gate(reader, self.application)
            return self.gate

        settings = make_api_settings("c1", port=self.port, threads=8, max_body_bytes=64 * 2**20)
        server = Server(self.application, settings, make_gate, lanes=LANES)
        server.start()
        try:
            yield self
        finally:
            self.store.may_go_on.set()
            assert server.stop(30)

    def join(self, host):
        self.store.create_join_token(hash_secret(TOKEN), None, 1, timedelta(days=1), "admin")
        secret = self.secrets[host] = f"secret of {host}"
        self.store.join_agent(hash_secret(TOKEN), host, str(uuid.uuid4()), hash_secret(secret), "")
        with self.store.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM join_tokens")

    def connect(self, address="127.0.0.1"):
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=30, source_address=(address, 0)
        )
        connection.connect()
        return connection

    def start(self, path, host=None, body=b"", length=None, address="127.0.0.1", **headers):
        """Send a request, of whose body perhaps only the first part; return its connection."""
        connection = self.connect(address)
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(len(body) if length is None else length))
        if host is not None:
            connection.putheader("Authorization", f"Bearer {self.secrets.get(host, host)}")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        connection.send(body)
        return connection

    def call(self, method, host, address="127.0.0.1", **arguments):
        body = json.dumps({"version": CONDUCTOR.version, "arguments": arguments}).encode()
        return self.start(f"/store/{method}", host, body, address=address)

    def post(self, path, host=None, body=b"{}", **options):
        return answer(self.start(path, host, body, **options))


def answer(connection):
    """Return the status and the text of an answer."""
    with contextlib.closing(connection):
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.fixture
def conductor():
    made = Conductor(SlowStore())
    for host in ("h1", "h2"):
        made.join(host)
    with made.serving():
        yield made


class TestStrangers:
    @pytest.mark.parametrize("host", [None, "nobody"])
    def test_one_is_refused_before_a_byte_of_its_body_is_sent(self, conductor, host):
        status, text = answer(conductor.start("/store/now", host, length=60 * 2**20))
        assert (status, "credential" in text) == (401, True)

    def test_one_that_sends_on_gets_its_answer(self, conductor):
        status, text = conductor.post("/store/apply_changes", "nobody", b" " * 500_000)
        assert (status, "unknown credential" in text) == (401, True)

    @pytest.mark.parametrize("length", [4097, 60 * 2**20])
    def test_a_larger_join_is_refused_before_a_byte_of_it_is_sent(self, conductor, length):
        status, text = answer(conductor.start("/join", length=length))
        assert (status, "4096" in text) == (400, True)

    def test_a_join_in_chunks_or_packed_is_refused_unread(self, conductor):
        packed = conductor.post("/join", body=gzip.compress(b"{}"), Content_Encoding="gzip")
        connection = conductor.connect()
        connection.putrequest("POST", "/join")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        assert [packed[0], answer(connection)[0]] == [400, 400]

    def test_four_an_address_and_32_in_all_are_carried_out(self, conductor):
        addresses = [f"127.0.1.{number}" for number in range(1, 20)]
        held = [
            conductor.start("/join", length=10, address=address)
            for address in addresses[: STRANGERS // STRANGERS_PER_ADDRESS]
            for _ in range(STRANGERS_PER_ADDRESS)
        ]
        for address in (addresses[0], addresses[-1]):
            wait_until(lambda a=address: conductor.post("/join", address=a)[0] == 503)
            assert conductor.post("/store/now", address=address)[0] == 503
        # A known host is answered, from whatever address.
        for address in (addresses[0], addresses[-1]):
            assert answer(conductor.call("now", "h1", address))[0] == 200
        held.pop().close()
        wait_until(lambda: conductor.post("/join", address=addresses[-1])[0] == 400)
        for connection in held:
            connection.close()

    def test_a_hundred_are_looked_up_together(self, conductor):
        store, looking, may_go_on = conductor.store, threading.Event(), threading.Event()
        find_hosts = conductor.application.known._find_hosts

        def find_slowly(secret_hashes):
            looking.set()
            assert may_go_on.wait(60)
            return find_hosts(secret_hashes)

        conductor.application.known._find_hosts = find_slowly
        connections = [conductor.call("now", "stranger 0")]
        assert looking.wait(60)
        connections += [conductor.call("now", f"stranger {number}") for number in range(1, 100)]
        connections.append(conductor.call("now", "h1"))
        wait_until(lambda: len(conductor.application.known._wanted) == 100)
        may_go_on.set()
        statuses = [answer(connection)[0] for connection in connections]
        assert statuses[-1] == 200
        assert {*statuses[:-1]} <= {401, 503}
        assert store.lookups == [1, 100]

    def test_their_refusals_are_some_lines_a_minute_with_the_address(self, conductor, caplog):
        for number in range(1, 31):
            conductor.post("/store/now", address=f"127.0.2.{number}")
            conductor.post("/store/now", address="127.0.2.1")
        lines = [line for line in caplog.messages if line.startswith("Refused ")]
        assert lines[0] == (
            "Refused /store/now from 127.0.2.1: no credential; join by a token first"
        )
        assert len(lines) == 21
        assert lines[-1].startswith("Refused calls without a known credential: more than 20 times")

    def test_a_get_is_answered_without_a_line(self, conductor, caplog):
        connection = conductor.connect()
        connection.request("GET", "/")
        assert answer(connection)[0] == 404
        assert caplog.messages == []


class TestKnownHosts:
    """Those remembered, by a clock that is set."""

    def test_one_is_looked_up_again_when_it_has_not_called_for_a_while(self):
        seconds, lookups = [0.0], []

        def find_hosts(secret_hashes):
            lookups.append([*secret_hashes])
            return dict.fromkeys(secret_hashes, f"h{len(lookups)}")

        known = KnownHosts(find_hosts, lambda: seconds[0])

        def find():
            return asyncio.run(known.find(b"Bearer secret"))

        assert [find(), find(), len(lookups)] == ["h1", "h1", 1]
        seconds[0] = REMEMBERED_SECONDS - 1
        assert find() == "h1"
        known.remember(hash_secret("secret"), "h1")  # by a call
        seconds[0] += REMEMBERED_SECONDS - 1
        assert find() == "h1"
        seconds[0] += 1
        assert find() == "h2"

    def test_those_that_are_over_are_removed_and_others_are_not(self):
        seconds = [0.0]
        known = KnownHosts(lambda hashes: dict.fromkeys(hashes, "h1"), lambda: seconds[0])
        for number in range(3):
            asyncio.run(known.find(b"Bearer old %d" % number))
        seconds[0] = 1.0
        known.remember("younger", "h1")
        seconds[0] = REMEMBERED_SECONDS
        asyncio.run(known.find(b"Bearer new"))
        assert known._known.keys() == {"younger", hash_secret("new")}


class TestHosts:
    def test_one_that_has_just_joined_is_known_at_once(self, conductor):
        assert answer(conductor.call("now", "h3"))[0] == 401
        conductor.join("h3")
        assert answer(conductor.call("now", "h3"))[0] == 200

    def test_one_that_is_revoked_is_refused_at_once_although_it_is_remembered(self, conductor):
        assert answer(conductor.call("now", "h1"))[0] == 200
        conductor.store.revoke_credential("h1")
        for _ in range(2):
            assert answer(conductor.call("now", "h1"))[0] == 401
        assert conductor.store.lookups == [1, 1]  # the first refusal forgot it

    def test_one_is_looked_up_once_and_each_call_renews_that(self, conductor):
        for _ in range(3):
            assert answer(conductor.call("now", "h1"))[0] == 200
        assert conductor.store.lookups == [1]

    def test_one_leaves_no_turns_behind(self, conductor):
        for host in ("h1", "h2"):
            assert answer(conductor.call("now", host))[0] == 200
            assert answer(conductor.call("report_state", host))[0] == 400
        aborted = conductor.start("/store/now", "h1", length=10)
        wait_until(lambda: len(conductor.gate._turns) == 1)
        aborted.close()
        wait_until(lambda: conductor.gate._turns == {})

    def test_a_database_that_does_not_answer_is_said_to_a_host_that_is_not_known(self, conductor):
        def fail(secret_hashes):
            from nodetracker.model.errors import StoreUnavailableError

            raise StoreUnavailableError("the database is away")

        conductor.application.known._find_hosts = fail
        _, text = answer(conductor.call("now", "h1"))
        assert json.loads(text)["error"]["type"] == "StoreUnavailableError"

    def test_three_calls_of_one_are_carried_out_and_its_heartbeats_and_others_do_not_wait(
        self, conductor
    ):
        store = conductor.store
        key = register(store, "h1", store.list_credentials()[0].agent_id)
        held = [conductor.call("list_warnings", "h1") for _ in range(TURNS + 1)]
        for _ in range(TURNS):
            assert store.waiting.acquire(timeout=60)
        arguments = CONDUCTOR.methods["report_state"].encode_arguments(key, 1, AuditState())
        assert answer(conductor.call("report_state", "h1", **arguments))[0] == 200
        assert answer(conductor.call("now", "h2"))[0] == 200
        assert not store.waiting.acquire(timeout=0.2)
        more = [conductor.call("list_warnings", "h1") for _ in range(MAX_WAITING)]
        statuses = []
        wait_until(
            lambda: statuses.append(answer(conductor.call("now", "h1"))[0]) or 503 in statuses
        )
        store.may_go_on.set()
        assert {answer(connection)[0] for connection in held} == {200}
        for connection in more:
            connection.close()

    def test_one_large_body_of_each_is_carried_out(self, conductor, caplog):
        first = conductor.start("/store/now", "h1", length=LARGE)
        wait_until(lambda: conductor.application._large._taken["h1"] == 1)
        second = conductor.start("/store/now", "h1", length=LARGE)
        assert answer(second)[0] == 503
        body = json.dumps({"version": CONDUCTOR.version, "x": " " * LARGE}).encode()
        packed = conductor.post("/store/now", "h1", gzip.compress(body), Content_Encoding="gzip")
        assert (packed[0], "another large body of host h1" in packed[1]) == (503, True)
        assert answer(conductor.call("now", "h1"))[0] == 200
        assert conductor.post("/store/now", "h2", body)[0] == 200
        assert "Refused /store/now from 127.0.0.1, host h1: another large body" in caplog.text
        first.close()
        wait_until(lambda: conductor.post("/store/now", "h1", body)[0] == 200)

    def test_a_packed_body_of_many_values_stops_no_other(self, conductor):
        """60 MiB of ``[],``, which Python parses within half a minute, in 61 kB."""
        body = b'{"version": "4.0", "x": [' + b"[]," * (20 * 2**20) + b"0]}"
        started_at = time.monotonic()
        attack = conductor.start("/store/now", "h1", gzip.compress(body), Content_Encoding="gzip")
        slowest = 0.0
        done = threading.Event()

        def wait_for_it():
            assert answer(attack)[0] == 400
            done.set()

        threading.Thread(target=wait_for_it).start()
        while not done.is_set():
            asked_at = time.monotonic()
            assert answer(conductor.call("now", "h2"))[0] == 200
            slowest = max(slowest, time.monotonic() - asked_at)
        print(f"{time.monotonic() - started_at:.1f} s, slowest other call {slowest:.3f} s")
        assert slowest < 5  # 34 s without a child process


def test_a_revoked_agent_that_sends_a_large_body_gets_the_reason(conductor, tmp_path):
    secret = make_secret()
    (tmp_path / CREDENTIAL_FILE).write_text(secret)
    urls = [ConductorUrl("127.0.0.1", conductor.port, False)]
    identity = AgentIdentity("h1", None, tmp_path, lambda: None)
    caller = HttpCaller(urls, identity, DatabaseClock())
    method, arguments = CONDUCTOR.methods["list_nodes"], {"host": random.randbytes(2**23).hex()}
    with pytest.raises(RpcUnavailableError, match="agent token create --host h1"):
        caller.call(method, arguments, 30)


def test_the_answer_to_a_refused_body_reaches_a_client_that_sends_all_of_it(conductor):
    with socket.create_connection(("127.0.0.1", conductor.port), timeout=30) as client:
        head = "POST /store/now HTTP/1.1\r\nHost: c1\r\nContent-Length: 200000\r\n\r\n"
        client.sendall(head.encode() + b" " * 200_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 401")
