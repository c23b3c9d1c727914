import json

import pytest

from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import Inventory, PlacedConsumer, ProviderSummary
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from nodetracker.placement.answers import Answer
from nodetracker.placement.client import PlacementClient

URL = "http://placement.example"
NODE = "11111111-1111-4111-8111-111111111111"
WORKLOAD = "22222222-2222-4222-8222-222222222222"


class FakeSession:
    """Gives one answer and keeps the requests."""

    def __init__(self, status=200, document=None, body=None):
        self.status = status
        self.body = json.dumps(document).encode() if body is None else body
        self.requests = []

    def request(self, method, path, body=None):
        self.requests.append((method, path, body))
        return Answer(self.status, self.body, URL + path)


OUTCOMES = {
    PlacementConflictError: "conflict",
    PlacementNotFoundError: "not_found",
    PlacementTimeoutError: "unavailable",
    PlacementUnavailableError: "unavailable",
}
"""Outcomes of errors in metrics; any other one is refused."""


def make_error(status, code, detail="It failed.\n\n because  so "):
    return FakeSession(status, {"errors": [{"status": status, "code": code, "detail": detail}]})


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (409, "placement.concurrent_update", PlacementConflictError),
        (409, "placement.duplicate_name", PlacementNameError),
        (409, "placement.inventory.inuse", PlacementInUseError),
        (409, "placement.resource_provider.inuse", PlacementInUseError),
        (409, "placement.resource_provider.cannot_delete_parent", PlacementInUseError),
        (409, "placement.undefined_code", PlacementRefusedError),
        (400, "placement.undefined_code", PlacementRefusedError),
        (401, "", PlacementUnavailableError),
        (403, "", PlacementUnavailableError),
        (406, "", PlacementUnavailableError),
        (500, "placement.undefined_code", PlacementUnavailableError),
        (503, "", PlacementUnavailableError),
        (504, "", PlacementTimeoutError),
        (408, "", PlacementTimeoutError),
        (413, "", PlacementTimeoutError),
    ],
)
def test_the_status_and_the_code_decide_what_a_caller_does_next(status, code, expected) -> None:
    client = PlacementClient(make_error(status, code))
    with pytest.raises(expected, match=f"PUT {URL}/traits/CUSTOM_A: ") as caught:
        client.create_trait("CUSTOM_A")
    assert type(caught.value) is expected
    assert client.count_requests() == {("PUT", OUTCOMES.get(expected, "refused")): 1}


def test_requests_are_counted_by_method_and_outcome() -> None:
    client = PlacementClient(FakeSession(200, {"traits": []}))
    client.create_trait("CUSTOM_A")
    client.create_trait("CUSTOM_A")
    client.list_traits(["CUSTOM_A"])
    assert client.count_requests() == {("PUT", "done"): 2, ("GET", "done"): 1}
    missing = PlacementClient(make_error(404, ""))
    with pytest.raises(PlacementNotFoundError):
        missing.delete_provider(NODE)
    assert missing.count_requests() == {("DELETE", "not_found"): 1}


def test_an_error_has_the_reason_without_the_words_about_its_status() -> None:
    with pytest.raises(PlacementRefusedError) as caught:
        PlacementClient(make_error(400, "")).create_trait("X")
    assert str(caught.value) == f"PUT {URL}/traits/X: because so"


def test_an_old_service_is_named_as_such() -> None:
    with pytest.raises(PlacementUnavailableError, match=r"does not support microversion 1\.38"):
        PlacementClient(FakeSession(406, {})).list_providers()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>proxy</html>", "the answer is not valid JSON"),
        (b'{"resource_providers": [{"uu', "the answer is not valid JSON"),
        (b"[" * 100000, "the answer is not valid JSON"),
        (b"\xff\xfe", "the answer is not valid JSON"),
        (b"[]", r"invalid answer: the document is \[\]: expected an object"),
        (b"{}", "invalid answer: resource_providers is null: expected a list"),
        (b'{"resource_providers": [1]}', r"resource_providers\[0\] is 1: expected an object"),
        (
            b'{"resource_providers": [{"uuid": "u", "name": "n", "generation": "7"}]}',
            r"resource_providers\[0\].generation is '7': expected an integer",
        ),
        (
            b'{"resource_providers": [{"uuid": "u", "name": "n", "generation": true}]}',
            r"resource_providers\[0\].generation is true: expected an integer",
        ),
    ],
)
def test_an_answer_that_does_not_parse_names_request_and_value(body, problem) -> None:
    client = PlacementClient(FakeSession(body=body))
    with pytest.raises(
        PlacementUnavailableError, match=f"GET {URL}/resource_providers: .*{problem}"
    ):
        client.list_providers()


def test_an_error_that_is_no_document_is_one() -> None:
    client = PlacementClient(FakeSession(502, body=b"<html>Bad Gateway</html>"))
    with pytest.raises(PlacementUnavailableError, match=f"GET {URL}/traits.*: answered 502$"):
        client.list_traits(["A"])


def test_a_provider_does_not_exist_only_if_placement_reports_so() -> None:
    missing = make_error(404, "placement.undefined_code", "No resource provider")
    with pytest.raises(PlacementNotFoundError, match="No resource provider"):
        PlacementClient(missing).read_traits(NODE)
    for session, call in (
        (missing, lambda client: client.list_providers()),
        (missing, lambda client: client.list_traits(["A"])),
        (FakeSession(404, body=b"<html>Not Found</html>"), lambda client: client.read_traits(NODE)),
    ):
        with pytest.raises(PlacementUnavailableError, match="answered 404: not the endpoint of"):
            call(PlacementClient(session))


@pytest.mark.parametrize("status", [300, 302, 400, 405, 409])
def test_a_refusal_without_a_reason_is_not_placements(status) -> None:
    """As of a web server that gets HTTP on its TLS port, or of another service."""
    client = PlacementClient(FakeSession(status, body=b"<html>Bad Request</html>"))
    with pytest.raises(PlacementUnavailableError, match=f"answered {status}: not the endpoint"):
        client.list_traits(["A"])


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ([], "versions is empty"),
        ([{"id": "v2.1"}], r"versions\[0\].max_version is null: expected a string"),
        ([{"max_version": "latest"}], "max_version 'latest' is not a version"),
    ],
)
def test_the_root_of_another_service_is_not_a_version(versions, problem) -> None:
    client = PlacementClient(FakeSession(document={"versions": versions}))
    with pytest.raises(PlacementUnavailableError, match=f"invalid answer: {problem}"):
        client.read_version()


def test_providers_are_listed_by_what_selects_them() -> None:
    entry = {
        "uuid": NODE,
        "name": "a b",
        "generation": 3,
        "parent_provider_uuid": None,
        "root_provider_uuid": NODE,
    }
    session = FakeSession(document={"resource_providers": [entry]})
    client = PlacementClient(session)
    assert client.list_providers(name="a b") == [ProviderSummary(NODE, "a b", 3, NODE)]
    client.list_providers(tree=NODE)
    assert [path for _, path, _ in session.requests] == [
        "/resource_providers?name=a+b", f"/resource_providers?in_tree={NODE}"
    ]  # fmt: skip


def test_allocations_are_read_as_a_provider_has_them() -> None:
    document = {
        "resource_provider_generation": 4,
        "allocations": {WORKLOAD: {"resources": {"VCPU": 2}, "consumer_generation": 1}},
    }
    answer = PlacementClient(FakeSession(document=document)).read_allocations(NODE)
    assert answer == (4, {WORKLOAD: PlacedConsumer(WORKLOAD, 1, {NODE: {"VCPU": 2}})})


def test_a_consumer_without_allocations_does_not_exist() -> None:
    client = PlacementClient(FakeSession(document={"allocations": {}}))
    assert client.read_consumer(WORKLOAD) is None


def test_consumers_are_written_together() -> None:
    session = FakeSession(204, body=b"")
    write = ConsumerWrite(WORKLOAD, None, "NODETRACKER_INSTANCE", "p", "u", {NODE: {"VCPU": 2}})
    PlacementClient(session).write_consumers([write])
    assert session.requests == [
        (
            "POST",
            "/allocations",
            {
                WORKLOAD: {
                    "allocations": {NODE: {"resources": {"VCPU": 2}}},
                    "project_id": "p",
                    "user_id": "u",
                    "consumer_type": "NODETRACKER_INSTANCE",
                    "consumer_generation": None,
                }
            },
        )
    ]


def test_inventories_are_read_and_written_alike() -> None:
    inventory = Inventory(16, 2, 4.0, 1, 16, 1)
    session = FakeSession(document={"resource_provider_generation": 8, "inventories": {}})
    assert PlacementClient(session).set_inventories(NODE, 7, {"VCPU": inventory}) == 8
    sent = session.requests[0][2]
    assert sent["resource_provider_generation"] == 7
    answer = PlacementClient(FakeSession(document=sent)).read_inventories(NODE)
    assert answer == (7, {"VCPU": inventory})
