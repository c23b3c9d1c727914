"""The client against the real placement."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from oslo_config import cfg

from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import Inventory
from nodetracker.bootstrap.clients import build_placement_client
from nodetracker.bootstrap.options.agent import PLACEMENT
from nodetracker.model.errors import (
    ConfigError,
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from tests.functional.servers.faulty_proxy import FaultyProxy
from tests.programs import wait_until


@pytest.fixture
def make_client(tmp_path):
    """Return a function that builds a client from the text of a configuration."""

    def make(text):
        path = tmp_path / "placement.conf"
        path.write_text(text)
        conf = cfg.ConfigOpts()
        conf.register_opts(PLACEMENT.options, group=PLACEMENT.name)
        conf([], default_config_files=[str(path)])
        return build_placement_client(conf)

    return make


def make_uuid():
    return str(uuid.uuid4())


def write(consumer, generation, resources):
    return ConsumerWrite(consumer, generation, "NODETRACKER_INSTANCE", "p", "u", resources)


def test_every_request_is_understood_and_every_refusal_recognized(make_client, placement) -> None:
    client = make_client(placement.configuration())
    assert client.read_version() >= (1, 38)
    node, other, consumer = make_uuid(), make_uuid(), make_uuid()
    assert client.create_provider(node, f"n-{node}") == 0
    with pytest.raises(PlacementNameError):
        client.create_provider(other, f"n-{node}")
    client.rename_provider(node, f"renamed-{node}")
    [summary] = client.list_providers(tree=node)
    assert (summary.name, summary.generation) == (f"renamed-{node}", 0)
    assert client.create_provider(other, f"card-{node}", node) == 0
    assert {found.uuid for found in client.list_providers(tree=node)} == {node, other}
    assert [found.uuid for found in client.list_providers(tree=other)] == [other]
    client.delete_provider(other)
    client.create_trait("CUSTOM_OF_TEST")
    assert client.list_traits(["CUSTOM_OF_TEST", "HW_NONE"]) == {"CUSTOM_OF_TEST"}
    assert client.set_traits(node, 0, ["CUSTOM_OF_TEST"]) == 1
    with pytest.raises(PlacementRefusedError, match="No such trait HW_NONE"):
        client.set_traits(node, 1, ["HW_NONE"])
    inventories = {"VCPU": Inventory(4, 1, 2.5, 1, 4, 1)}
    assert client.set_inventories(node, 1, inventories) == 2
    with pytest.raises(PlacementConflictError):
        client.set_inventories(node, 1, inventories)
    client.write_consumers([write(consumer, None, {node: {"VCPU": 2}})])
    with pytest.raises(PlacementConflictError):
        client.write_consumers([write(consumer, None, {node: {"VCPU": 2}})])
    with pytest.raises(PlacementRefusedError, match="inventory constraints"):
        client.write_consumers([write(make_uuid(), None, {node: {"VCPU": 5}})])
    with pytest.raises(PlacementInUseError):
        client.set_inventories(node, 3, {})
    with pytest.raises(PlacementInUseError):
        client.delete_provider(node)
    assert client.read_inventories(node) == (3, inventories)
    assert client.read_traits(node) == (3, {"CUSTOM_OF_TEST"})
    generation, consumers = client.read_allocations(node)
    assert (generation, consumers[consumer].resources) == (3, {node: {"VCPU": 2}})
    whole = client.read_consumer(consumer)
    assert (whole.type, whole.generation, whole.project_id) == ("NODETRACKER_INSTANCE", 1, "p")
    client.write_consumers([write(consumer, 1, {})])
    assert client.read_consumer(consumer) is None
    client.delete_provider(node)
    with pytest.raises(PlacementNotFoundError):
        client.read_traits(node)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("enabled = true", "auth_type: is not set"),
        ("auth_type = sorcery", "sorcery"),
        ("auth_type = password", "auth_url"),
        ("auth_type = none\nvalid_interfaces = secret", "valid_interfaces"),
        ("auth_type = none\nendpoint = placement:8778", "endpoint: invalid value 'placement:8778'"),
        ("auth_type = none\nendpoint_override = /placement", "endpoint_override: invalid value"),
        (
            "auth_type = none\nendpoint = http://me:secret@h:port",
            "endpoint: invalid value 'h:port'",
        ),
        ("auth_type = none\nendpoint = http:///placement", "invalid value 'http:///placement'"),
    ],
)
def test_what_no_session_can_be_made_of_is_a_configuration_error(
    make_client, text, problem
) -> None:
    with pytest.raises(ConfigError, match=rf"\[placement\].*{problem}"):
        make_client(f"[placement]\n{text}\n")


def test_a_frozen_service_fails_a_request_at_the_timeout(make_client, placement) -> None:
    client = make_client(placement.configuration(timeout=0.3))
    wait_until(lambda: is_answered(client))
    placement.process.freeze()
    try:
        started = time.monotonic()
        with pytest.raises(PlacementTimeoutError, match=f"GET {placement.url}/: no answer in time"):
            client.read_version()
        assert time.monotonic() - started < 30
    finally:
        placement.process.thaw()


def is_answered(client):
    """Return whether placement answers in time, which it does not always on a busy machine."""
    try:
        client.read_version()
    except PlacementTimeoutError:
        return False
    return True


def test_a_service_that_does_not_run_refuses_connections(make_client) -> None:
    client = make_client("[placement]\nauth_type = none\nendpoint = http://me:secret@127.0.0.1:9\n")
    with pytest.raises(
        PlacementUnavailableError, match="GET http://127.0.0.1:9/resource_providers: Connection"
    ):
        client.list_providers()


def test_another_path_of_the_service_is_unavailable(make_client, placement) -> None:
    client = make_client(placement.configuration(endpoint=f"{placement.url}/other"))
    problem = f"GET {placement.url}/other/resource_providers: answered 404: not the endpoint"
    with pytest.raises(PlacementUnavailableError, match=problem):
        client.list_providers()


@pytest.mark.parametrize("is_running", [True, False])
def test_a_keystone_that_issues_no_token_is_named(make_client, placement, is_running) -> None:
    """Placement itself is one that rejects even the discovery of its versions."""
    url = placement.url if is_running else "http://127.0.0.1:9"
    client = make_client(
        f"[placement]\nauth_type = password\nauth_url = {url}/v3\nusername = u\npassword = p\n"
    )
    with ThreadPoolExecutor(1) as threads:
        problem = "answered 401: " if is_running else "Connection refused"
        with pytest.raises(PlacementUnavailableError, match=rf"{url}/v3[a-z/]*: {problem}"):
            threads.submit(client.list_providers).result(60)


@pytest.mark.parametrize("is_by_proxy", [False, True], ids=["direct", "by proxy"])
def test_an_answer_that_does_not_end_in_time_is_given_up(
    make_client, monkeypatch, is_by_proxy
) -> None:
    proxy = FaultyProxy(9)
    proxy.fault = lambda method, path: "trickling" if path.endswith("/") else "trickling headers"
    url = f"http://127.0.0.1:{proxy.port}"
    if is_by_proxy:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "")
        url = "http://placement.invalid"
    client = make_client(f"[placement]\nauth_type = none\nendpoint = {url}\ntimeout = 0.3\n")
    try:
        for call, path in ((client.read_version, "/"), (client.list_providers, "/resource_")):
            with pytest.raises(
                PlacementTimeoutError, match=f"GET {url}{path}.*: no answer in time"
            ):
                call()
    finally:
        proxy.close()
