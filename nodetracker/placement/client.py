"""Call placement's API: one request a method, counted, answers parsed into types."""

import enum
import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import (
    Inventory,
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    ProviderSummary,
    Resources,
    keep_below,
)
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
    PlacementUnavailableError,
)
from nodetracker.placement.answers import MICROVERSION, Answer, Reader

_CODES: Mapping[str, type[PlacementError]] = {
    "placement.concurrent_update": PlacementConflictError,
    "placement.duplicate_name": PlacementNameError,
    "placement.inventory.inuse": PlacementInUseError,
    "placement.resource_provider.inuse": PlacementInUseError,
    "placement.resource_provider.cannot_delete_parent": PlacementInUseError,
}
_RETRIED = frozenset({401, 403, 406, 408, 413, 429})
_SMALLER = frozenset({408, 413, 504})
"""Of proxies whose server did not answer in time, or that take no request of this size."""

_MAX_REASON_LENGTH = 500
_PROVIDER = "/resource_providers/"


class Session(Protocol):
    """Sends requests; see `nodetracker.placement.session.PlacementSession`."""

    def request(self, method: str, path: str, body: object | None = None) -> Answer:
        """Send a request and return its answer, whatever its status."""


class PlacementClient:
    """Placement's API at microversion 1.38; safe for several threads.

    Every method sends one request and raises PlacementUnavailableError without
    a usable answer, PlacementNotFoundError for a provider that does not exist,
    and PlacementRefusedError when placement refuses it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def count_requests(self) -> Mapping[tuple[str, str], int]:
        """Return (method, outcome) -> number of requests since the start."""
        with self._lock:
            return dict(self._counts)

    def read_version(self) -> tuple[int, int]:
        """Return the highest microversion of the service."""
        answer = self._read("/")
        versions = answer.list("versions")
        if not versions:
            raise answer.invalid("versions is empty")
        text = versions[0].text("max_version")
        try:
            major, minor = map(int, text.split("."))
        except ValueError:
            raise answer.invalid(f"max_version {text!r} is not a version") from None
        return major, minor

    def list_providers(
        self, uuid: str | None = None, name: str | None = None, tree: str | None = None
    ) -> list[ProviderSummary]:
        """Return providers: all, those with a uuid or a name, or one with those below it.

        Args:
            tree: uuid of the latter. Placement itself returns the whole tree, with what is
                above that provider and beside it.
        """
        filters = {"uuid": uuid, "name": name, "in_tree": tree}
        query = urlencode({key: value for key, value in filters.items() if value is not None})
        answer = self._read(f"/resource_providers{'?' if query else ''}{query}")
        found = [read_summary(entry) for entry in answer.list("resource_providers")]
        return found if tree is None else keep_below(found, tree)

    def create_provider(self, uuid: str, name: str, parent_uuid: str | None = None) -> int:
        """Create a provider; return its generation.

        Raises:
            PlacementNameError: a provider has this name or this uuid.
        """
        parent = {} if parent_uuid is None else {"parent_provider_uuid": parent_uuid}
        answer = self._send("POST", "/resource_providers", {"uuid": uuid, "name": name, **parent})
        return answer.integer("generation")

    def rename_provider(self, uuid: str, name: str) -> None:
        """Give a provider another name, which leaves its generation alone.

        Raises:
            PlacementNameError: another provider has the name.
        """
        self._send("PUT", _provider(uuid), {"name": name})

    def delete_provider(self, uuid: str) -> None:
        """Delete a provider without children.

        Raises:
            PlacementInUseError: it has allocations or children.
        """
        self._send("DELETE", _provider(uuid))

    def read_inventories(self, uuid: str) -> tuple[int, dict[str, Inventory]]:
        """Return a provider's generation and its inventories by resource class."""
        answer = self._read(f"{_provider(uuid)}/inventories")
        entries = answer.mapping("inventories")
        return answer.integer("resource_provider_generation"), {
            name: read_inventory(entry) for name, entry in entries.items()
        }

    def set_inventories(
        self, uuid: str, generation: int, inventories: Mapping[str, Inventory]
    ) -> int:
        """Replace a provider's inventories; return its new generation.

        Raises:
            PlacementConflictError: its generation is another one.
            PlacementInUseError: consumers use a class that is removed.
        """
        body = {
            "resource_provider_generation": generation,
            "inventories": {name: asdict(entry) for name, entry in inventories.items()},
        }
        answer = self._send("PUT", f"{_provider(uuid)}/inventories", body)
        return answer.integer("resource_provider_generation")

    def read_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """Return a provider's generation and traits."""
        answer = self._read(f"{_provider(uuid)}/traits")
        return answer.integer("resource_provider_generation"), frozenset(answer.texts("traits"))

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace a provider's traits; return its new generation.

        Raises:
            PlacementConflictError: its generation is another one.
        """
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        answer = self._send("PUT", f"{_provider(uuid)}/traits", body)
        return answer.integer("resource_provider_generation")

    def read_allocations(self, uuid: str) -> tuple[int, dict[str, PlacedConsumer]]:
        """Return a provider's generation, and each consumer with its part on this provider."""
        answer = self._read(f"{_provider(uuid)}/allocations")
        entries = answer.mapping("allocations")
        return answer.integer("resource_provider_generation"), {
            consumer: PlacedConsumer(
                consumer,
                entry.integer("consumer_generation"),
                {uuid: entry.integers("resources")},
            )
            for consumer, entry in entries.items()
        }

    def read_consumer(self, uuid: str) -> PlacedConsumer | None:
        """Return a consumer with all it has, None if it has nothing."""
        answer = self._read(f"/allocations/{quote(uuid)}")
        entries = answer.mapping("allocations")
        if not entries:
            return None
        resources: dict[str, Resources] = {
            provider: entry.integers("resources") for provider, entry in entries.items()
        }
        return PlacedConsumer(
            uuid, answer.integer("consumer_generation"), resources, True,
            answer.text("consumer_type"), answer.text("project_id"), answer.text("user_id"),
        )  # fmt: skip

    def write_consumers(self, writes: Sequence[ConsumerWrite]) -> None:
        """Replace all that some consumers have, all of them or none.

        Raises:
            PlacementConflictError: a consumer's generation is another one.
            PlacementRefusedError: the capacity does not suffice, or a provider lacks a class.
        """
        self._send("POST", "/allocations", {write.uuid: write_consumer(write) for write in writes})

    def list_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of some traits that placement knows."""
        query = urlencode({"name": f"in:{','.join(sorted(names))}"})
        return frozenset(self._read(f"/traits?{query}").texts("traits"))

    def create_trait(self, name: str) -> None:
        """Create a custom trait unless it exists."""
        self._send("PUT", f"/traits/{quote(name)}")

    def create_resource_class(self, name: str) -> None:
        """Create a custom resource class unless it exists."""
        self._send("PUT", f"/resource_classes/{quote(name)}")

    def _read(self, path: str) -> Reader:
        return self._send("GET", path)

    def _send(self, method: str, path: str, body: object | None = None) -> Reader:
        error: PlacementError | None = None
        try:
            answer = self._session.request(method, path, body)
            return _parse(f"{method} {answer.url}", answer, path.startswith(_PROVIDER))
        except PlacementError as failure:
            error = failure
            raise
        finally:
            with self._lock:
                self._counts[method, outcome_of(error).value] += 1


def _parse(request: str, answer: Answer, may_be_missing: bool) -> Reader:
    """Return an answer's document, or raise the error that it reports.

    What is refused without a reason is not refused by placement.

    Args:
        may_be_missing: a 404 means a provider; otherwise it means the path of the endpoint.
    """
    if answer.status < 300:
        return Reader(request, _load(request, answer.body) if answer.body else {})
    code, reason = _read_error(answer.body)
    if answer.status >= 500 or answer.status in _RETRIED:
        text = f"answered {answer.status}{': ' if reason else ''}{reason}"
        if answer.status == 406:
            text = f"does not support microversion {MICROVERSION}"
        kind = PlacementTimeoutError if answer.status in _SMALLER else PlacementUnavailableError
        raise kind(request, text)
    if not reason or (answer.status == 404 and not may_be_missing):
        text = f"answered {answer.status}: not the endpoint of placement"
        raise PlacementUnavailableError(request, text)
    if answer.status == 404:
        raise PlacementNotFoundError(request, reason)
    if answer.status == 409 and code in _CODES:
        raise _CODES[code](request, reason)
    raise PlacementRefusedError(request, reason)


def _load(request: str, body: bytes) -> object:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        raise PlacementUnavailableError(request, "the answer is not valid JSON") from None
    return value


def _read_error(body: bytes) -> tuple[str, str]:
    """Return code and reason of an error's document, "" for what it lacks.

    Before the reason is a sentence about the status, as a paragraph of its own.
    """
    try:
        entry = json.loads(body)["errors"][0]
        code, detail = str(entry.get("code", "")), str(entry.get("detail", ""))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return "", ""
    return code, " ".join(detail.partition("\n\n")[2].split() or detail.split())[
        :_MAX_REASON_LENGTH
    ]


def _provider(uuid: str) -> str:
    return f"{_PROVIDER}{quote(uuid)}"


def read_summary(entry: Reader) -> ProviderSummary:
    parent = entry.optional_text("parent_provider_uuid")
    return ProviderSummary(
        entry.text("uuid"), entry.text("name"), entry.integer("generation"),
        entry.text("root_provider_uuid"), parent,
    )  # fmt: skip


def read_inventory(entry: Reader) -> Inventory:
    integers = ("total", "reserved", "min_unit", "max_unit", "step_size")
    return Inventory(
        allocation_ratio=entry.number("allocation_ratio"),
        **{name: entry.integer(name) for name in integers},
    )


def write_consumer(write: ConsumerWrite) -> dict[str, Any]:
    return {
        "allocations": {
            provider: {"resources": dict(amounts)} for provider, amounts in write.resources.items()
        },
        "project_id": write.project_id,
        "user_id": write.user_id,
        "consumer_type": write.type,
        "consumer_generation": write.generation,
    }


class RequestOutcome(enum.StrEnum):
    """The outcome of a request, in metrics."""

    DONE = "done"
    CONFLICT = "conflict"  # another writer was first
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"  # no usable answer


def outcome_of(error: PlacementError | None) -> RequestOutcome:
    match error:
        case None:
            return RequestOutcome.DONE
        case PlacementConflictError():
            return RequestOutcome.CONFLICT
        case PlacementNotFoundError():
            return RequestOutcome.NOT_FOUND
        case PlacementUnavailableError():
            return RequestOutcome.UNAVAILABLE
    return RequestOutcome.REFUSED


def read_tree(client: PlacementClient, uuid: str) -> PlacedTree:
    """Return the providers of a tree and the consumers on them, each with all it has."""
    tree = read_providers(client, client.list_providers(tree=uuid))
    whole = {consumer: client.read_consumer(consumer) for consumer in sorted(tree.consumers)}
    return replace(
        tree, consumers={uuid: found for uuid, found in whole.items() if found is not None}
    )


def read_providers(client: PlacementClient, summaries: Sequence[ProviderSummary]) -> PlacedTree:
    """Return providers, three requests each, and the parts that consumers have on them.

    Raises:
        PlacementNotFoundError: a provider was deleted meanwhile.
        PlacementUnavailableError: no usable answer.
    """
    providers, consumers = {}, dict[str, PlacedConsumer]()
    for summary in summaries:
        inventories = client.read_inventories(summary.uuid)
        traits = client.read_traits(summary.uuid)
        generation, found = client.read_allocations(summary.uuid)
        # The earliest of several generations: a write of this state is then a conflict.
        providers[summary.uuid] = PlacedProvider(
            summary.uuid, summary.name, min(inventories[0], traits[0], generation),
            summary.parent_uuid, inventories[1], traits[1],
        )  # fmt: skip
        for consumer in found.values():
            consumers[consumer.uuid] = _merge(consumers.get(consumer.uuid), consumer)
    return PlacedTree(providers, consumers)


def _merge(known: PlacedConsumer | None, found: PlacedConsumer) -> PlacedConsumer:
    """Return a consumer with its parts on two of the node's providers."""
    if known is None:
        return found
    return replace(found, resources={**known.resources, **found.resources})
