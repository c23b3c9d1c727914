"""Agents call a conductor over HTTP: joining, the credential, refusals, lost answers."""

import contextlib
import gzip
import http.client
import io
import json
import os
import socketserver
import ssl
import stat
import threading
import time
import wsgiref.simple_server
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from nodetracker.conductor.application import ConductorApplication
from nodetracker.conductor.authorization import Authorizer
from nodetracker.conductor.bodies import LARGE_BYTES
from nodetracker.conductor.client import open_conductor_store
from nodetracker.conductor.connections import ConductorUrl, _explain, parse_url
from nodetracker.conductor.credential_file import NEXT_FILE, make_next, read_credential
from nodetracker.conductor.http_caller import (
    AgentIdentity,
    HttpCaller,
)
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.schema import tables
from nodetracker.model.credential import CREDENTIAL_FILE, RENEWAL_AGE, hash_secret, make_secret
from nodetracker.model.errors import (
    AuthenticationError,
    ConfigError,
    FencedError,
    IdentityError,
    NotJoinedError,
    RpcUnavailableError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.service import (
    COMPUTE_BINARY,
    COMPUTE_ID_FILE,
    UNKNOWN_COUNT,
    AgentKey,
    AuditState,
    Incarnation,
)
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.clock import DatabaseClock
from nodetracker.web.admission import STRANGER_BYTES
from tests.builders import create, take_news
from tests.builders import register as register_directly
from tests.stores import SqliteStore

AGENT = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
TOKEN = "a join token"
NOBODY = {"Authorization": "Bearer nobody"}


class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    """A threading server on loopback."""

    daemon_threads = True


@pytest.fixture
def store():
    return SqliteStore()


@pytest.fixture
def endpoint(store):
    authorizer = Authorizer(store, AdmissionPolicy(60, 600), 60)
    return ConductorApplication("conductor c1", store, store, authorizer, DatabaseClock())


@contextlib.contextmanager
def serving(application):
    def adapt(environ, start):
        length = int(environ.get("CONTENT_LENGTH") or 0)
        data = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(data)
        return application(environ, start)

    server = wsgiref.simple_server.make_server(
        "127.0.0.1", 0, adapt, Server, wsgiref.simple_server.WSGIRequestHandler
    )
    server.RequestHandlerClass.log_message = lambda *values: None
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def port(endpoint):
    with serving(endpoint) as port:
        yield port


@pytest.fixture
def state(tmp_path):
    path = tmp_path / "state"
    path.mkdir()
    return path


@pytest.fixture
def call(port, state):
    """Return a maker of this host's caller."""

    def make(host="h1", token=TOKEN, agent_id=AGENT, ports=(port,), monotonic=time.monotonic):
        urls = [ConductorUrl("127.0.0.1", item, False) for item in ports]
        identity = AgentIdentity(host, agent_id, state, lambda: token)
        return HttpCaller(urls, identity, DatabaseClock(), monotonic=monotonic)

    return make


@pytest.fixture
def token(store):
    store.create_join_token(hash_secret(TOKEN), None, 9, timedelta(days=1), "admin")


def register(opened, host="h1", agent_id=AGENT):
    incarnation = Incarnation(agent_id, "boot", 1, 2, 3, 10)
    return opened.register_agent(host, COMPUTE_BINARY, "compute", "1", incarnation, None)


def key_of(service):
    return AgentKey(
        service.host, service.binary, service.incarnation.agent_id, service.epoch, service.uuid
    )


def make_due(store):
    """Let all credentials be older than they may be."""
    issued_at = datetime.now(UTC) - RENEWAL_AGE - timedelta(days=1)
    with store.engine.begin() as connection:
        connection.execute(sa.update(tables.agent_credentials).values(issued_at=issued_at))


def post(port, path, data=b"", **headers):
    """Return the status and the arguments of the error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", path, data, headers)
        response = connection.getresponse()
        return response.status, json.load(response)["error"]["arguments"]


class TestBodies:
    @pytest.mark.parametrize("headers", [{}, NOBODY])
    def test_that_of_an_unknown_caller_is_not_read(self, port, headers):
        status, (message,) = post(port, "/store/apply_changes", b"no JSON", **headers)
        assert (status, "credential" in message) == (401, True)

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_a_heartbeat_is_small(self, port, pack):
        headers = NOBODY if pack is bytes else NOBODY | {"Content-Encoding": "gzip"}
        data = pack(b" " * (LARGE_BYTES + 1))
        too_large = ["body", f"larger than {LARGE_BYTES} bytes"]
        assert post(port, "/store/report_state", data, **headers) == (400, too_large)

    def test_a_join_is_smaller_and_not_packed(self, port):
        too_large = ["body", f"larger than {STRANGER_BYTES} bytes"]
        assert post(port, "/join", b" " * (STRANGER_BYTES + 1)) == (400, too_large)
        packed = gzip.compress(b"{}")
        status, (argument, _) = post(port, "/join", packed, **{"Content-Encoding": "gzip"})
        assert (status, argument) == (400, "body")

    @pytest.mark.parametrize(
        "changed",
        [{"host": "a b"}, {"host": "h\x1b"}, {"agent_id": "agent-1"}, {"secret_hash": "0" * 63}],
    )
    def test_a_join_of_what_is_none_is_refused(self, port, token, changed, store):
        body = {
            "token": TOKEN,
            "host": "h1",
            "agent_id": AGENT,
            "secret_hash": hash_secret("secret"),
        } | changed
        status, (argument, _) = post(port, "/join", json.dumps(body).encode())
        assert (status, [argument]) == (400, list(changed))
        assert store.list_credentials() == []


class TestJoining:
    def test_a_host_joins_once_and_keeps_a_secret_file(self, call, token, store, state):
        opened = open_conductor_store(call())
        assert opened.now() is not None
        (known,) = store.list_credentials()
        assert (known.host, known.agent_id) == ("h1", AGENT)
        path = state / CREDENTIAL_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not (state / NEXT_FILE).exists()
        assert open_conductor_store(call(token=None)).now() is not None

    def test_without_a_token_the_error_says_what_to_do(self, call, token):
        opened = open_conductor_store(call(token=None))
        with pytest.raises(StoreUnavailableError, match="agent token create --host h1"):
            opened.now()

    def test_a_token_that_cannot_be_read_is_named(self, call, state):
        def fail():
            raise AuthenticationError("[conductor] join_token_file: /token: Permission denied")

        caller = call()
        caller._identity = AgentIdentity("h1", AGENT, state, fail)
        with pytest.raises(StoreUnavailableError, match="cannot join: .*/token: Permission denied"):
            open_conductor_store(caller).now()

    def test_calls_at_the_same_time_join_once(self, call, store):
        for name, host in (("first", None), ("second", "h1")):
            store.create_join_token(hash_secret(name), host, 1, timedelta(days=1), "admin")
            opened = open_conductor_store(call(token=name))
            with ThreadPoolExecutor(3) as pool:
                assert None not in pool.map(lambda _, opened=opened: opened.now(), range(3))
            store.revoke_credential("h1")

    def test_a_host_that_was_refused_asks_again_after_a_while_only(self, call, endpoint):
        caller = call()
        opened = open_conductor_store(caller)
        with pytest.raises(StoreUnavailableError, match="used up"):
            opened.now()
        endpoint.is_stopping = True  # a second request would be answered otherwise
        with pytest.raises(StoreUnavailableError, match="used up"):
            opened.now()

    def test_it_asks_soon_at_first_as_a_dump_may_be_loading(self, call, store, token):
        seconds = [0.0]
        opened = open_conductor_store(call(token=None, monotonic=lambda: seconds[0]))

        def answers_after(wait):
            seconds[0] += wait
            with contextlib.suppress(StoreUnavailableError):
                return opened.now() is not None
            return False

        open_conductor_store(call()).now()
        assert answers_after(0)
        for waits in ((5, 10, 20, 40, 60, 60), (5,)):
            store.revoke_credential("h1")
            assert not answers_after(0)
            for wait in waits[:-1]:
                assert not answers_after(wait - 1)
                assert not answers_after(1)
            own = f"own-{len(waits)}"
            store.create_join_token(hash_secret(own), "h1", 1, timedelta(days=1), "admin")
            open_conductor_store(call(token=own)).now()
            assert not answers_after(waits[-1] - 1)
            assert answers_after(1)

    def test_it_asks_every_minute_however_often_it_was_refused(self, call, store):
        seconds = [0.0]
        opened = open_conductor_store(call(token=None, monotonic=lambda: seconds[0]))
        for _ in range(1100):
            with pytest.raises(StoreUnavailableError):
                opened.now()
            seconds[0] += 60

    def test_a_lost_compute_id_beside_a_credential_needs_a_token_for_the_host(
        self, call, token, store
    ):
        open_conductor_store(call()).now()
        new = "b8a5c6d2-6f5c-4a35-9a56-3f2ba5fd6c7e"
        refused = f"that of agent {AGENT}, and this is agent {new}.*--host h1"
        with pytest.raises(StoreUnavailableError, match=refused):
            register(open_conductor_store(call(agent_id=new, token=None)), agent_id=new)
        store.create_join_token(hash_secret("own"), "h1", 1, timedelta(days=1), "admin")
        register(open_conductor_store(call(agent_id=new, token="own")), agent_id=new)
        (known,) = store.list_credentials()
        assert (known.host, known.agent_id) == ("h1", new)

    def test_an_interrupted_join_is_completed(self, call, token, store, state):
        open_conductor_store(call()).now()
        (state / CREDENTIAL_FILE).rename(state / NEXT_FILE)  # killed before it was renamed
        open_conductor_store(call()).now()
        assert (state / CREDENTIAL_FILE).exists()


class TestCommands:
    """Processes beside the agent: they have no id, and write nothing unless they are asked to."""

    @pytest.fixture
    def command(self, call):
        return call(agent_id=None)

    def test_one_never_joins(self, command, token, store, state):
        for attempt in (open_conductor_store(command).list_nodes, lambda: command.renew(5)):
            with pytest.raises(NotJoinedError, match="the agent joins at its first start"):
                attempt()
        assert [*state.iterdir()] == store.list_credentials() == []

    def test_one_of_a_revoked_host_says_what_to_do_and_does_not_join_again(
        self, call, command, token, store, state
    ):
        open_conductor_store(call()).now()
        store.revoke_credential("h1")
        before = read_credential(state)
        with pytest.raises(StoreUnavailableError, match="agent token create --host h1"):
            open_conductor_store(command).list_nodes()
        assert read_credential(state) == before
        assert [path.name for path in state.iterdir()] == [CREDENTIAL_FILE]

    def test_one_renews_only_when_it_is_asked_to(self, call, command, token, store, state):
        open_conductor_store(call()).now()
        before = read_credential(state)
        make_due(store)
        open_conductor_store(command).now()
        open_conductor_store(command).now()
        assert read_credential(state) == before
        command.renew(5)
        assert read_credential(state) != before


class TestFiles:
    @pytest.mark.parametrize("torn", ["", "0123abc\n", "\x00" * 65, "0" * 63 + "\N{BULLET}"])
    def test_a_torn_credential_is_replaced(self, call, token, state, torn):
        (state / NEXT_FILE).write_text(torn)
        (state / CREDENTIAL_FILE).write_text(torn)
        open_conductor_store(call()).now()
        assert len(read_credential(state)) == 64
        assert [path.name for path in state.iterdir()] == [CREDENTIAL_FILE]

    def test_a_link_in_its_place_is_replaced_and_not_followed(self, call, token, state, tmp_path):
        target = tmp_path / "target"
        (state / NEXT_FILE).symlink_to(target)
        open_conductor_store(call()).now()
        assert not target.exists()
        assert not (state / CREDENTIAL_FILE).is_symlink()

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
    @pytest.mark.parametrize("has_id", [True, False])
    def test_what_root_writes_belongs_to_the_agents_user(self, call, token, state, has_id):
        os.chown(state, 1234, 2345)
        owner = (1234, 2345)
        if has_id:
            owner = (3456, 4567)
            (state / COMPUTE_ID_FILE).touch()
            os.chown(state / COMPUTE_ID_FILE, *owner)
        caller = call()
        open_conductor_store(caller).now()
        made = [(state / CREDENTIAL_FILE).stat()]
        make_next(state)
        made.append((state / NEXT_FILE).stat())
        caller.renew(5)
        made.append((state / CREDENTIAL_FILE).stat())
        found = {(item.st_uid, item.st_gid, stat.S_IMODE(item.st_mode)) for item in made}
        assert found == {(*owner, 0o600)}

    def test_one_that_cannot_be_written_leaves_nothing(self, state, monkeypatch):
        def fail(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(IdentityError, match="credential.next cannot be written: No space"):
            make_next(state)
        assert [*state.iterdir()] == []


class TestCalls:
    def test_a_heartbeat_is_written_with_this_hosts_time(self, call, token, store):
        opened = open_conductor_store(call())
        service = register(opened)
        opened.report_state(key_of(service), 1, AuditState())
        (row,) = store.list_services("h1")
        assert row.report_count == 1

    def test_another_host_is_refused_and_logged(self, call, token, store, caplog):
        opened = open_conductor_store(call())
        with pytest.raises(StoreError, match="credential is that of host h1, not of host h2"):
            register(opened, host="h2")
        assert store.list_services("h2") == []
        assert "Refused /store/register_agent" in caplog.text

    def test_who_joined_and_registered_is_logged(self, call, token, caplog):
        with caplog.at_level("INFO"):
            register(open_conductor_store(call()))
        changes = [line for line in caplog.messages if line.startswith("Change ")]
        assert changes == [
            f"Change -: agent {AGENT}, join, target host h1 from 127.0.0.1: done",
            "Change -: agent of host h1, register_agent, target host h1 from 127.0.0.1: done",
        ]

    def test_heartbeats_and_reads_are_not_logged(self, call, token, caplog):
        opened = open_conductor_store(call())
        service = register(opened)
        with caplog.at_level("INFO"):
            opened.report_state(key_of(service), 1, AuditState())
            opened.list_nodes()
        assert caplog.messages == []

    def test_a_host_that_was_renamed_after_a_dump_has_its_name_again(self, call, token, store):
        key = key_of(register(open_conductor_store(call())))
        dump = store.save()
        (service,) = store.list_services("h1")
        store.rename_host("h1", "h2", COMPUTE_BINARY, service)
        opened = open_conductor_store(call(host="h2"))
        (service,) = opened.list_services("h2")
        again = replace(service.incarnation, pid=9)
        key = key_of(opened.register_agent("h2", COMPUTE_BINARY, "compute", "1", again, service))
        store.restore(dump)
        with pytest.raises(FencedError, match="not of host h2"):
            opened.report_state(key, 1, AuditState(), known_calls=UNKNOWN_COUNT)
        (service,) = opened.list_services("h2")
        assert (service.uuid, service.epoch) == (key.service_uuid, key.epoch - 1)

    @pytest.mark.parametrize("calls", [{}, {"known_calls": UNKNOWN_COUNT}])
    def test_a_heartbeat_is_remembered_for_the_name(self, call, token, store, calls):
        service = register(open_conductor_store(call()))
        dump = store.save()
        store.rename_host("h1", "h2", COMPUTE_BINARY, service)
        (service,) = store.list_services("h2")
        again = replace(service.incarnation, pid=9)  # it registers by another conductor
        key = key_of(store.register_agent("h2", COMPUTE_BINARY, "compute", "1", again, service))
        opened = open_conductor_store(call(host="h2"))
        opened.report_state(key, 1, AuditState(), **calls)
        store.restore(dump)
        with pytest.raises(FencedError, match="not of host h2"):
            opened.report_state(key, 2, AuditState(), known_calls=UNKNOWN_COUNT)
        assert [service.host for service in store.list_services()] == ["h2"]

    def test_a_move_is_refused_with_what_to_do(self, call, token):
        with pytest.raises(StoreError, match="REST API"):
            open_conductor_store(call()).confirm_migration("u")

    def test_a_late_call_is_refused(self, call, token, endpoint, store):
        caller = call()
        service = register(open_conductor_store(caller))
        caller.clock.set(store.now() - timedelta(hours=1))
        with pytest.raises(StoreUnavailableError, match="too late"):
            open_conductor_store(caller).report_state(key_of(service), 1, AuditState())
        assert store.list_services("h1")[0].report_count == 0

    def test_a_heartbeat_that_is_late_when_it_is_written_is_refused(
        self, call, token, endpoint, store, caplog
    ):
        """The conductor may have been stopped after it read the call."""
        caller = call()
        service = register(open_conductor_store(caller))
        endpoint._clock.set(store.now() - timedelta(hours=2))
        caller.clock.set(store.now() - timedelta(hours=1))
        with pytest.raises(StoreUnavailableError, match="3[56]\\d\\d.* s too late"):
            open_conductor_store(caller).report_state(
                key_of(service), 1, AuditState(), known_calls=UNKNOWN_COUNT
            )
        (after,) = store.list_services("h1")
        assert (after.report_count, after.last_seen_up) == (0, service.last_seen_up)
        assert "no longer held" not in caplog.text

    @pytest.mark.parametrize("path", ["/store/now", "/store/report_state"])
    @pytest.mark.parametrize("version", ["9.0", "4.99"])
    def test_one_of_a_version_that_is_not_served_is_refused(
        self, port, token, store, path, version
    ):
        store.join_agent(hash_secret(TOKEN), "h1", AGENT, hash_secret("secret"), "")
        body = json.dumps({"version": version, "arguments": {}}).encode()
        _, (message,) = post(port, path, body, Authorization="Bearer secret")
        assert version in message

    def test_the_answer_to_a_heartbeat_has_what_waits_for_the_host(self, call, token, store):
        opened = open_conductor_store(call())
        key = key_of(register(opened))
        register_directly(store, "h2")
        store.apply_changes(key, [create(key, "n1")], 60)
        for host in ("h1", "h2"):
            store.create_call(host, "host_power_action", {}, "api:c1", timedelta(minutes=1))
        heard = opened.report_state(key, 1, AuditState(), known_calls=UNKNOWN_COUNT)
        assert heard.generations == {"n1": store.list_nodes("h1")[0].generation}
        (waiting,) = heard.calls
        assert (waiting.method, heard.call_count) == ("host_power_action", 1)
        opened.answer_call("h1", waiting.id, {"value": None})
        assert store.find_answer("h1", waiting.id) == {"value": None}
        with pytest.raises(StoreError, match="not of host h2"):
            opened.answer_call("h2", 2, {"value": None})

    def test_a_woken_agent_reads_the_news_of_its_host(self, call, token, store):
        opened = open_conductor_store(call())
        key = key_of(register(opened))
        store.create_call("h1", "host_power_action", {}, "api:c1", timedelta(minutes=1))
        assert len(opened.take_news(key).calls) == 1
        assert opened.take_news(key).calls == ()
        with pytest.raises(StoreError, match="not of host h2"):
            opened.take_news(replace(key, host="h2"))

    @pytest.mark.parametrize("is_last", [False, True])
    def test_a_heartbeat_of_an_agent_that_takes_no_calls_has_none(
        self, call, token, store, is_last
    ):
        opened = open_conductor_store(call())
        key = key_of(register(opened))
        waiting = store.create_call("h1", "host_power_action", {}, "api:c1", timedelta(minutes=1))
        assert opened.report_state(key, 1, AuditState(), is_last=is_last) is None
        assert [item.id for item in take_news(store, "h1").calls] == [waiting]

    def test_a_command_on_a_host_calls_its_own_agent_alone(self, call, token, store):
        opened = open_conductor_store(call())
        key = key_of(register(opened))
        register_directly(store, "h2")
        made = opened.create_call("h1", "host_power_action", {}, "admin", timedelta(days=9))
        (waiting,) = store.take_news(key).calls
        assert (waiting.id, waiting.sender) == (made, "manage:h1")
        assert waiting.expires_at - store.now() < timedelta(minutes=11)
        store.answer_call("h1", made, {"value": None})
        assert opened.find_answer("h1", made) == {"value": None}
        with pytest.raises(StoreError, match="calls its own agent only: use the REST API"):
            opened.create_call("h2", "host_power_action", {}, "admin", timedelta(seconds=30))
        with pytest.raises(StoreError, match="not of host h2"):
            opened.find_answer("h2", made)

    def test_a_revoked_agent_is_refused_at_once(self, call, token, store):
        opened = open_conductor_store(call())
        opened.now()
        store.revoke_credential("h1")
        with pytest.raises(
            StoreUnavailableError, match="agent token create --host h1|it cannot join"
        ):
            opened.list_nodes("h1")

    def test_a_renewed_credential_replaces_the_one_before(self, call, token, store, state):
        caller = call()
        open_conductor_store(caller).now()
        before = read_credential(state)
        caller.renew(5)
        assert read_credential(state) != before
        open_conductor_store(caller).now()
        open_conductor_store(call(token=None)).now()

    def test_a_credential_of_a_month_is_renewed_by_the_next_call(self, call, token, store, state):
        caller = call()
        open_conductor_store(caller).now()
        before = read_credential(state)
        make_due(store)
        open_conductor_store(caller).now()
        assert read_credential(state) != before
        open_conductor_store(caller).now()
        (known,) = store.list_credentials()
        assert not known.is_due

    def test_a_process_reads_a_credential_that_another_one_renewed(self, call, token, store):
        first, second = call(), call()
        open_conductor_store(first).now()
        open_conductor_store(second).now()
        second.renew(5)
        open_conductor_store(second).now()
        open_conductor_store(first).now()

    def test_large_bodies_and_answers_are_compressed(self, call, token, store):
        opened = open_conductor_store(call())
        uuids = [f"{number:036d}" for number in range(2000)]
        assert opened.list_expired_claims("h1", uuids) == []


def test_an_endpoint_knows_how_many_hosts_called_and_when_the_last_did(store, token):
    seconds = [10.0]
    authorizer = Authorizer(store, AdmissionPolicy(60, 600), 60)
    endpoint = ConductorApplication(
        "c1", store, store, authorizer, DatabaseClock(), lambda: seconds[0]
    )
    assert (endpoint.called_hosts, endpoint.silent_seconds) == (0, None)
    for host in ("h1", "h2"):
        store.join_agent(hash_secret(TOKEN), host, host, hash_secret(host), "")
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/store/now",
            "HTTP_AUTHORIZATION": f"Bearer {host}",
            "wsgi.input": io.BytesIO(json.dumps({"version": CONDUCTOR.version}).encode()),
        }
        (answer,) = endpoint(environ, lambda status, headers: None)
        assert "value" in json.loads(answer)
        seconds[0] += 5
    assert (endpoint.called_hosts, endpoint.silent_seconds) == (2, 5.0)


def test_a_conductor_at_a_limit_is_unavailable_and_says_so_once(
    call, token, endpoint, monkeypatch, caplog
):
    caplog.set_level("INFO", logger="nodetracker.conductor")
    opened = open_conductor_store(call())
    opened.now()
    with monkeypatch.context() as patch:
        patch.setattr(endpoint._authorizer, "authorize", raise_memory_error)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError, match="conductor c1: no memory is left"):
                opened.list_nodes("h1")
    endpoint.limits._settle_seconds = 0.0
    opened.now()
    said = [text for text in caplog.messages if "Conductor c1" in text]
    assert said == [
        "Conductor c1: no memory is left: the limit of memory is reached",
        "Conductor c1 is back after 0 s",
    ]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ssl.SSLEOFError(8, "EOF occurred (_ssl.c:1006)"), "it closed the TLS connection"),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1)"),
            "TLS failed: wrong version number",
        ),
        (TimeoutError(), "timed out"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
    ],
)
def test_why_a_conductor_is_not_reached_is_in_words(error, text):
    assert _explain(error) == text


def raise_memory_error(*positional, **named):
    raise MemoryError


class TestConductors:
    def test_each_is_asked_without_a_credential_whether_it_answers(
        self, call, port, token, endpoint, store, state
    ):
        with serving(endpoint) as gone:
            pass
        with serving(lambda environ, start: start("200 OK", []) or [b"{}"]) as other:
            found = call(ports=(gone, port, other), agent_id=None).connections.find_problems(5)
        assert [*found.values()][:2] == ["Connection refused", None]
        assert "not a conductor's answer" in found[f"http://127.0.0.1:{other}"]
        endpoint.is_stopping = True
        assert (
            "is ending"
            in call(agent_id=None).connections.find_problems(5)[f"http://127.0.0.1:{port}"]
        )
        assert [*state.iterdir()] == store.list_credentials() == []

    def test_the_next_one_is_tried_where_one_is_not_reached(self, call, token, endpoint):
        with serving(endpoint) as gone:
            pass
        opened = open_conductor_store(call(ports=(gone, gone)))
        with pytest.raises(StoreUnavailableError, match="no conductor can be reached"):
            opened.now()

    def test_one_that_answers_is_found_whatever_the_first_is(self, port, call, token, endpoint):
        with serving(endpoint) as gone:
            pass
        for ports in ((gone, port), (port, gone)):
            assert open_conductor_store(call(ports=ports)).now() is not None

    def test_what_is_no_conductor_is_named(self, call, token):
        def other(environ, start):
            start("200 OK", [("Content-Length", "2")])
            return [b"hi"]

        with serving(other) as port, pytest.raises(StoreUnavailableError, match="not a conductor"):
            open_conductor_store(call(ports=(port,))).now()


class TestTimeouts:
    """Of a call as a whole, however its conductors are slow."""

    @pytest.fixture
    def serve_slowly(self):
        """Return a maker of the port of a server that sends `first`, then a byte a while."""
        is_over = threading.Event()

        class Dripping(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError):
                    self.request.sendall(self.server.first)
                    while self.server.first and not is_over.wait(0.05):
                        self.request.sendall(b"x")
                is_over.wait(60)

        with contextlib.ExitStack() as stack:

            def serve(first):
                server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping)
                server.daemon_threads, server.block_on_close = True, False
                server.first = first
                stack.callback(server.server_close)
                stack.callback(server.shutdown)
                threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
                return server.server_address[1]

            yield serve
            is_over.set()

    @pytest.mark.parametrize(
        "first",
        [b"", b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
        ids=["silent", "head", "body"],
    )
    def test_one_conductor_that_is_slow(self, call, state, serve_slowly, first):
        (state / CREDENTIAL_FILE).write_text(make_secret())
        caller = call(ports=(serve_slowly(first),))
        started_at = time.monotonic()
        with pytest.raises(RpcUnavailableError, match="no conductor answered|timed out"):
            caller.call(CONDUCTOR.methods["now"], {}, 0.5)
        assert time.monotonic() - started_at < 5

    def test_the_connections_to_several_share_it(self, state, serve_slowly):
        """Each accepts a connection and says nothing of TLS."""
        (state / CREDENTIAL_FILE).write_text(make_secret())
        urls = [ConductorUrl("127.0.0.1", serve_slowly(b""), True) for _ in range(3)]
        identity = AgentIdentity("h1", AGENT, state, lambda: None)
        caller = HttpCaller(urls, identity, DatabaseClock(), ssl.create_default_context())
        started_at = time.monotonic()
        with pytest.raises(
            RpcUnavailableError, match=r"no conductor can be reached: (.*timed out){3}"
        ):
            caller.call(CONDUCTOR.methods["now"], {}, 0.5)
        assert time.monotonic() - started_at < 3


class TestRequests:
    @pytest.mark.parametrize(
        ("path", "body", "headers", "status"),
        [
            ("/store/now", b"{}", {}, 401),
            ("/store/now", b"{}", {"Authorization": "Bearer nobody"}, 401),
            ("/store/report_state", b'{"arguments": {"agent": 1}}', {}, 401),
            ("/store/report_state", b'{"arguments": {"agent": 1}}', NOBODY, 401),
            ("/store/report_state", b'{"expires_at": "2026-01-01T00:00:00"}', NOBODY, 400),
            ("/store/report_state", b"[" * 3000, NOBODY, 400),
            ("/store/report_state", b'{"count": NaN}', NOBODY, 400),
            ("/store/report_state", b'{"count": 1e400}', NOBODY, 400),
            ("/store/report_state", b"\xff", NOBODY, 400),
            ("/store/report_state", b"x", NOBODY | {"Content-Encoding": "gzip"}, 400),
            ("/join", b"{}", {}, 400),
            *(
                (
                    "/join",
                    b'{"token": "%s", "host": "h", "agent_id": "%s", "secret_hash": "%s"}'
                    % (text, AGENT.encode(), b"0" * 64),
                    {},
                    400,
                )
                for text in (b"\\ud800", b"\xed\xa0\x80", b"\\udc00\\ud800")
            ),
            ("/join", b'{"token": 1, "host": "h", "agent_id": "a", "secret_hash": "s"}', {}, 400),
        ],
    )
    def test_bad_ones_are_answered(self, port, path, body, headers, status):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        assert response.status == status
        assert "error" in json.loads(response.read())


@pytest.mark.parametrize(
    "text", ["control", "ftp://c:1", "https://", "https://c:99999", "https://u@c", "https://c/x"]
)
def test_an_endpoint_that_is_no_url_is_named(text):
    with pytest.raises(ConfigError, match=r"\[conductor\] endpoint"):
        parse_url(text)


def test_http_to_another_machine_needs_an_option():
    with pytest.raises(ConfigError, match="allow_http"):
        parse_url("http://control:8775")
    assert str(parse_url("http://control", allows_http=True)) == "http://control:8775"
    for host in ("127.0.0.1:1", "localhost.:1", "[::ffff:127.0.0.1]:1"):
        assert str(parse_url(f"http://{host}")) == f"http://{host}"
    assert str(parse_url("https://[::1]")) == "https://[::1]:8775"
