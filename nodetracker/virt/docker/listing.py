"""All containers of an engine, of which only those that changed are asked for in full."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.errors import HostDataError, NotFoundError
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container, ContainerError, parse_container

REFRESH_SECONDS = 600.0
"""Every container is asked for in full this often, changed or not."""


@dataclass(frozen=True, slots=True)
class ContainerListing:
    """All containers.

    Attributes:
        unreadable: a line for each that could not be read.
    """

    containers: tuple[Container, ...] = ()
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """A container as it was read, and how many events had been told before that."""

    container: Container
    event_count: int


class ContainerReader:
    """Lists containers by one request, and one more for each that may be another.

    What is known is believed while events are told: until an event names the
    container, its state is another in the list, or the time is up.

    Args:
        monotonic: seconds that never go back.
    """

    def __init__(self, client: EngineClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._event_count = 0
        self._touched: dict[str, int] = {}
        self._all_touched = 0
        self._refreshed_at: float | None = None

    def mark_changed(self, container_id: str) -> None:
        """Note that a container changed."""
        with self._lock:
            self._event_count += 1
            self._touched[container_id] = self._event_count

    def mark_all_changed(self) -> None:
        """Note that any container may have changed."""
        with self._lock:
            self._event_count += 1
            self._all_touched = self._event_count
            self._touched.clear()

    def read(self, is_watched: bool) -> ContainerListing:
        """Return all containers in order of their ids.

        Args:
            is_watched: whether events are told, so that what is known may be believed.

        Raises:
            DriverUnavailableError: the engine does not answer.
            HostDataError: it answers what is no list.
        """
        listed = self._client.list_containers()
        if not isinstance(listed, list):
            raise HostDataError(self._client.source, "answered what is no list of containers")
        if not is_watched or self._is_refresh_due():
            self._refreshed_at = self._monotonic()
            self.mark_all_changed()
        found: dict[str, Container] = {}
        unreadable = []
        for item in listed:
            container_id = item.get("Id") if isinstance(item, Mapping) else None
            if not isinstance(container_id, str) or not container_id:
                unreadable.append("a container in the list has no id")
                continue
            try:
                found[container_id] = self._read_one(container_id, item)
            except NotFoundError:
                continue  # it was removed since the list was made
            except ContainerError as error:
                unreadable.append(f"container {_name_of(item, container_id)}: {error}")
            except HostDataError as error:
                unreadable.append(f"container {_name_of(item, container_id)}: {error.reason}")
        self._forget_all_but(found)
        return ContainerListing(
            tuple(found[container_id] for container_id in sorted(found)), tuple(unreadable)
        )

    def _read_one(self, container_id: str, item: Mapping[str, Any]) -> Container:
        with self._lock:
            known = self._known.get(container_id)
            changed_at = max(self._all_touched, self._touched.get(container_id, 0))
            count = self._event_count
        if (
            known is not None
            and known.event_count >= changed_at
            and known.container.state == item.get("State")
        ):
            return known.container
        container = parse_container(self._client.inspect_container(container_id))
        with self._lock:
            self._known[container_id] = _Known(container, count)
        return container

    def _is_refresh_due(self) -> bool:
        return (
            self._refreshed_at is None or self._monotonic() - self._refreshed_at >= REFRESH_SECONDS
        )

    def _forget_all_but(self, found: Mapping[str, Container]) -> None:
        with self._lock:
            for gone in self._known.keys() - found.keys():
                del self._known[gone]
            for gone in self._touched.keys() - found.keys():
                del self._touched[gone]


def _name_of(item: Mapping[str, Any], container_id: str) -> str:
    """Return a container's own name; those by which links call it have two parts."""
    names = item.get("Names")
    texts = (
        [name.removeprefix("/") for name in names if isinstance(name, str)]
        if isinstance(names, list)
        else []
    )
    return min(texts, key=lambda text: text.count("/"), default="") or container_id[:12]
