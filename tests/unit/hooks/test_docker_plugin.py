"""Docker's plugin, run as systemd runs it, against a stand-in for the agent."""

import time
from pathlib import Path

import pytest

from nodetracker.hooks.docker import DockerPlugin
from tests.docker_plugin import Client, PluginService, describe, encode
from tests.door import ADMITTED, REASON, REFUSED, Door, listen_without_accepting

BODY = {"Image": "bb", "HostConfig": {"Memory": 2**30}}
MERGED = b'{"HostConfig": {"Memory": 9}, "HostConfig": {"NanoCpus": 9}}'
"""Docker takes both."""

ID = "0123456789ab" * 5 + "cdef"
REQUEST, RESPONSE = "/AuthZPlugin.AuthZReq", "/AuthZPlugin.AuthZRes"
ALLOWED = {"Allow": True}
DENIED = {"Allow": False, "Msg": REASON}
UNANSWERED = {
    "Allow": False,
    "Msg": "no answer from nodetracker's agent, and without one no container starts",
}
PASSES = [
    ("GET", "/v1.41/containers/json"),
    ("GET", "/containers/create"),
    ("POST", f"/v1.41/containers/{ID}/stop"),
    ("POST", f"/v1.41/containers/{ID}/kill?signal=9"),
    ("POST", f"/v1.41/containers/{ID}/wait"),
    ("POST", "/v1.41/images/create?fromImage=bb"),
    ("POST", "/v1.41/volumes/create"),
    ("POST", "/v1.41/containers/prune?name=/containers/create"),
    ("DELETE", f"/v1.41/containers/{ID}"),
]
ASKED = [
    ("/containers/create", {"ask": "create", "name": "", "document": BODY}),
    ("/v1.41/containers/create?name=w%20b", {"ask": "create", "name": "w b", "document": BODY}),
    ("/v1.41/containers/%63reate", {"ask": "create", "name": "", "document": BODY}),
    ("/v1.41%2Fcontainers/create", {"ask": "create", "name": "", "document": BODY}),
    ("http://docker/v1.41/containers/create", {"ask": "create", "name": "", "document": BODY}),
    (f"/containers/{ID}/start", {"ask": "start", "id": ID}),
    ("/v1.41/containers/w%65b/st%61rt?x=1", {"ask": "start", "id": "web"}),
    ("/v1.41/containers/a/b/start", {"ask": "start", "id": "a/b"}),
    (f"/v1.41/containers/{ID}/restart?t=5", {"ask": "start", "id": ID}),
    ("/v1.41/containers/web/update", {"ask": "update", "id": "web", "document": BODY}),
]

WAITED = 1.9
"""Less than the seconds for which the plugin waits for an answer; on a busy machine all take long."""


class Plugin:
    """The plugin, installed below a root of its own and running."""

    def __init__(self, root: Path, when_unavailable: str) -> None:
        self.door = root / "a.sock"
        self.is_allowing = when_unavailable == "allow"
        for file in DockerPlugin(root).list_files(self.door, when_unavailable):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            file.path.write_text(file.text)
        unit = root / "etc/systemd/system/nodetracker-docker.service"
        self.service = PluginService(unit, root / "p.sock")

    def __call__(self, method, request=None):
        client = Client(self.service.path)
        began = time.monotonic()
        try:
            return client.call(method, request)
        finally:
            self.seconds = time.monotonic() - began
            client.close()


@pytest.fixture(params=["allow", "refuse"])
def plugin(request, tmp_path):
    plugin = Plugin(tmp_path, request.param)
    yield plugin
    plugin.service.stop()


def assert_unavailable(plugin):
    """Check that it was as without an answer."""
    answer = plugin(REQUEST, describe("/containers/web/start"))
    assert answer == (ALLOWED if plugin.is_allowing else UNANSWERED)
    assert plugin.seconds < 30


def test_it_is_an_authorization_plugin(plugin):
    assert plugin("/Plugin.Activate") == {"Implements": ["authz"]}


def test_only_what_starts_or_changes_a_container_is_asked_about(plugin):
    with Door(plugin.door, REFUSED) as door:
        for target, question in ASKED:
            assert plugin(REQUEST, describe(target, BODY)) == DENIED
            assert door.questions.pop() == {"driver": "docker", **question}
        for method, target in PASSES:
            assert plugin(REQUEST, describe(target, BODY, method)) == ALLOWED
            assert plugin(RESPONSE, describe(target, BODY, method)) == ALLOWED
    assert door.questions == []


def test_what_passes_waits_for_nobody(plugin):
    with Door(plugin.door, None):
        for method, target in PASSES:
            assert plugin(REQUEST, describe(target, BODY, method)) == ALLOWED
            assert plugin.seconds < WAITED


@pytest.mark.parametrize("outcome", ["admitted", "warned", "off"])
def test_only_a_refusal_stops_a_container(plugin, outcome):
    with Door(plugin.door, {"outcome": outcome, "reason": "memory"}):
        assert plugin(REQUEST, describe("/containers/web/start")) == ALLOWED


@pytest.mark.parametrize("body", [None, b"no JSON", b"[" * 100_000, MERGED])
def test_a_body_that_cannot_be_read_is_the_agent_s_to_decide(plugin, body):
    """Docker passes on none of more than 1 MiB."""
    with Door(plugin.door) as door:
        plugin(REQUEST, describe("/containers/create", body))
    assert door.questions[0]["document"] is None


def test_a_created_container_is_reported_first(plugin):
    """The agent knows it when Docker's client does, which starts the container next."""
    response = {"ResponseStatusCode": 201, "ResponseBody": encode({"Id": ID, "Warnings": []})}
    request = describe("/v1.41/containers/create?name=web", BODY, **response)
    with Door(plugin.door) as door:
        assert plugin(RESPONSE, request) == ALLOWED
        created = {"ask": "created", "id": ID, "name": "web", "document": BODY}
        assert door.questions == [{"driver": "docker", **created}]


def test_an_updated_container_is_reported_first(plugin):
    """It may be off, so that nobody asked."""
    response = {"ResponseStatusCode": 200, "ResponseBody": encode({"Warnings": []})}
    request = describe("/v1.41/containers/web/update", BODY, **response)
    with Door(plugin.door) as door:
        assert plugin(RESPONSE, request) == ALLOWED
        updated = {"ask": "updated", "id": "web", "document": BODY}
        assert door.questions == [{"driver": "docker", **updated}]


@pytest.mark.parametrize(
    "response",
    [
        {"ResponseStatusCode": 409, "ResponseBody": encode({"message": "name in use"})},
        {"ResponseStatusCode": 201, "ResponseBody": encode(b"no JSON")},
        {},
    ],
)
def test_what_was_not_created_is_not_reported(plugin, response):
    with Door(plugin.door) as door:
        assert plugin(RESPONSE, describe("/containers/create", BODY, **response)) == ALLOWED
    assert door.questions == []


def test_the_answer_to_a_created_container_needs_no_agent(plugin):
    response = {"ResponseStatusCode": 201, "ResponseBody": encode({"Id": ID})}
    request = describe("/containers/create", BODY, **response)
    assert plugin(RESPONSE, request) == ALLOWED
    with Door(plugin.door, None):
        assert plugin(RESPONSE, request) == ALLOWED
        assert plugin.seconds < WAITED


def test_an_agent_that_does_not_answer_is_unavailable(plugin):
    assert_unavailable(plugin)
    with Door(plugin.door, None):
        assert_unavailable(plugin)
        assert plugin.seconds > WAITED
    for answer in ("", "no JSON\n", "[]\n", "{}\n", {"outcome": "unavailable", "reason": "x"}):
        with Door(plugin.door, answer):
            assert_unavailable(plugin)
            assert plugin.seconds < WAITED
    sockets = listen_without_accepting(plugin.door)
    assert_unavailable(plugin)
    assert plugin.seconds < WAITED
    for each in sockets:
        each.close()


@pytest.mark.parametrize("body", ["", "no JSON", "[]"])
def test_a_request_that_is_not_described_is_unavailable(plugin, body):
    """dockerd 20.10 repeats a call that failed without its body."""
    client = Client(plugin.service.path)
    with Door(plugin.door):
        assert client.call(REQUEST, body) == (ALLOWED if plugin.is_allowing else UNANSWERED)
        assert client.call(RESPONSE, body) == ALLOWED
    client.close()


def test_one_connection_carries_many_calls(plugin):
    client = Client(plugin.service.path)
    with Door(plugin.door, ADMITTED):
        for _ in range(3):
            assert client.call(REQUEST, describe("/containers/web/start")) == ALLOWED
            assert client.call(RESPONSE, describe("/containers/web/start")) == ALLOWED
    client.close()


def test_a_process_that_ends_or_hangs_is_replaced(plugin):
    for act, limit in ((plugin.service.kill, 3), (plugin.service.freeze, 7)):
        assert plugin(REQUEST, describe("/_ping", method="GET")) == ALLOWED
        act()
        deadline = time.monotonic() + limit
        while True:
            try:
                assert plugin(REQUEST, describe("/_ping", method="GET")) == ALLOWED
                break
            except OSError:  # the connection was the old process's
                assert time.monotonic() < deadline
        print(f"{act.__name__}: {plugin.seconds:.2f} s, {plugin.service.memory_mb:.0f} MiB")


def test_the_cost_of_a_call(plugin):
    """Printed; Docker makes two calls for each request."""
    client = Client(plugin.service.path)
    request = describe("/v1.41/containers/json", method="GET", ResponseBody=encode(b"x" * 300_000))
    for method in (REQUEST, RESPONSE):
        times = []
        for _ in range(100):
            began = time.monotonic()
            client.call(method, request)
            times.append(time.monotonic() - began)
        print(f"{method}: {sorted(times)[50] * 1000:.2f} ms")
    client.close()
