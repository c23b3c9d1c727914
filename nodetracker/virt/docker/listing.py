"""List all containers of an engine, and inspect only those that may have changed."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodetracker.model.errors import DriverUnavailableError, HostDataError, NotFoundError
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import (
    Container,
    ContainerError,
    is_container_id,
    parse_container,
    parse_health,
)

REFRESH_SECONDS = 600.0
"""Interval after which every container is inspected again, changed or not."""

RETRY_SECONDS = 60.0
"""Interval after which a container is inspected again that the engine did not answer for."""


@dataclass(frozen=True, slots=True)
class ContainerListing:
    """All containers.

    Attributes:
        unread: those that could never be read, with what the list has of them.
        unreadable: a line for each item of the list that is not a container.
        outdated: id -> a line, for those of `unread`, and of `containers` that could not
            be read again and are as last read.
    """

    containers: tuple[Container, ...] = ()
    unread: tuple[Container, ...] = ()
    unreadable: tuple[str, ...] = ()
    outdated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _CachedContainer:
    """A container as last read, and the number of events received before that."""

    container: Container
    event_count: int


@dataclass(frozen=True, slots=True)
class _Silence:
    """When, by the monotonic clock, and why the engine did not answer for a container."""

    reason: str
    at: float


class ContainerReader:
    """Lists containers with one request, and one more for each that may have changed.

    While events arrive, the last description of a container is used until an
    event names the container, its state or health in the list differs, or
    `REFRESH_SECONDS` have passed.

    An engine may hang in the description of one container while it answers
    everything else. Such a container counts as last read. A reading inspects
    at most one of them again.
    """

    def __init__(self, client: EngineClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _CachedContainer] = {}
        self._event_count = 0
        self._changed_at: dict[str, int] = {}
        self._all_changed_at = 0
        self._refreshed_at: float | None = None
        self._silent: dict[str, _Silence] = {}

    def mark_changed(self, container_id: str) -> None:
        with self._lock:
            self._event_count += 1
            self._changed_at[container_id] = self._event_count

    def mark_all_changed(self) -> None:
        with self._lock:
            self._event_count += 1
            self._all_changed_at = self._event_count
            self._changed_at.clear()

    def list_known(self) -> list[Container]:
        """Return the containers as last read; each is the same object until it is read again."""
        with self._lock:
            return [entry.container for entry in self._known.values()]

    def read(self, has_live_events: bool) -> ContainerListing:
        """Return all containers, ordered by id.

        Args:
            has_live_events: events arrive, so that cached containers may be used.
        """
        listed = self._client.list_containers()
        if not isinstance(listed, list):
            raise HostDataError(
                self._client.source, "invalid answer to /containers/json: expected a list"
            )
        if not has_live_events or self._is_refresh_due():
            self._refreshed_at = self._monotonic()
            self.mark_all_changed()
        found: dict[str, Container] = {}
        outdated: dict[str, str] = {}
        unread: list[Container] = []
        unreadable = []
        self._end_longest_silence({item["Id"] for item in listed if _has_id(item)})
        for item in listed:
            if not _has_id(item):
                unreadable.append("a container in the list has no valid id")
                continue
            container_id = item["Id"]
            try:
                found[container_id] = self._read_one(container_id, item)
            except NotFoundError:
                continue  # removed since it was listed
            except (ContainerError, HostDataError) as error:
                listed_only = _parse_item(item)
                reason = error.reason if isinstance(error, HostDataError) else error
                outdated[container_id] = f"container {listed_only.name}: {reason}"
                last = self._known.get(container_id)
                if last is None:
                    unread.append(listed_only)
                else:
                    found[container_id] = replace(last.container, state=listed_only.state)
        self._evict_missing(found)
        containers = tuple(found[container_id] for container_id in sorted(found))
        return ContainerListing(containers, tuple(unread), tuple(unreadable), outdated)

    def _read_one(self, container_id: str, item: Mapping[str, Any]) -> Container:
        with self._lock:
            known = self._known.get(container_id)
            changed_at = max(self._all_changed_at, self._changed_at.get(container_id, 0))
            count = self._event_count
        if (
            known is not None
            and known.event_count >= changed_at
            and known.container.state == item.get("State")
            # No event that is listened to reports it, and not every engine lists it.
            and _list_health(item) in ("", known.container.health)
        ):
            return known.container
        container = parse_container(self._inspect(container_id))
        if container.id != container_id:
            raise ContainerError("the description is that of another container")
        with self._lock:
            self._known[container_id] = _CachedContainer(container, count)
        return container

    def _inspect(self, container_id: str) -> Any:
        """Return the description of a container."""
        silence = self._silent.get(container_id)
        if silence is None:
            try:
                return self._client.inspect_container(container_id)
            except DriverUnavailableError as error:
                self._client.ping()  # raises if the engine answers nothing
                silence = _Silence(error.reason, self._monotonic())
                self._silent[container_id] = silence
        raise HostDataError(self._client.source, silence.reason)

    def _end_longest_silence(self, listed: Collection[str]) -> None:
        """Let one container be inspected again, and forget those that do not exist any more."""
        self._silent = {key: value for key, value in self._silent.items() if key in listed}
        first = min(self._silent, key=lambda key: self._silent[key].at, default=None)
        if first is not None and self._monotonic() - self._silent[first].at >= RETRY_SECONDS:
            del self._silent[first]

    def _is_refresh_due(self) -> bool:
        return (
            self._refreshed_at is None or self._monotonic() - self._refreshed_at >= REFRESH_SECONDS
        )

    def _evict_missing(self, found: Mapping[str, Container]) -> None:
        with self._lock:
            for container_id in self._known.keys() - found.keys():
                del self._known[container_id]
            for container_id in self._changed_at.keys() - found.keys():
                del self._changed_at[container_id]


def _has_id(item: Any) -> bool:
    return isinstance(item, Mapping) and is_container_id(item.get("Id"))


def _list_health(item: Mapping[str, Any]) -> str:
    status = item.get("Status")
    return parse_health(status) if isinstance(status, str) else ""


def _parse_item(item: Mapping[str, Any]) -> Container:
    """Return what the list has of a container."""
    labels = item.get("Labels")
    return Container(
        id=item["Id"],
        name=_get_name(item, item["Id"]),
        created="",
        state=state if isinstance(state := item.get("State"), str) else "",
        labels={
            key: value
            for key, value in (labels.items() if isinstance(labels, Mapping) else ())
            if isinstance(value, str)
        },
    )


def _get_name(item: Mapping[str, Any], container_id: str) -> str:
    """Return a container's own name; names given by links have two parts."""
    names = item.get("Names")
    texts = (
        [name.removeprefix("/") for name in names if isinstance(name, str)]
        if isinstance(names, list)
        else []
    )
    return min(texts, key=lambda text: text.count("/"), default="") or container_id[:12]
