"""Listings of containers while an engine does not answer for one of them."""

import pytest

from nodetracker.model.errors import DriverUnavailableError, NotFoundError
from nodetracker.virt.docker.listing import RETRY_SECONDS, ContainerReader
from tests.engine_stub import describe_container


class Engine:
    """An engine of some containers; those in `silent` cannot be inspected."""

    source = "unix:///engine.sock"

    def __init__(self, *numbers):
        self.now = 0.0
        self.containers = {f"{number:064x}": describe_container(number) for number in numbers}
        self.silent = set()
        self.is_up = True
        self.inspected = []
        self.reader = ContainerReader(self, lambda: self.now)

    def list_containers(self):
        return [
            {"Id": key, "Names": [item["Name"]], "State": item["State"]["Status"]}
            for key, item in self.containers.items()
        ]

    def inspect_container(self, container_id):
        number = int(container_id, 16)
        self.inspected.append(number)
        if container_id not in self.containers:
            raise NotFoundError("no such container")
        if number in self.silent:
            raise DriverUnavailableError(self.source, "no answer within 10 s")
        return self.containers[container_id]

    def ping(self):
        if not self.is_up:
            raise DriverUnavailableError(self.source, "no answer within 10 s")

    def read(self):
        self.inspected = []
        return self.reader.read(has_live_events=False)


def names_of(listing):
    return [container.name for container in listing.containers]


def test_a_container_that_cannot_be_inspected_does_not_affect_others():
    engine = Engine(1, 2, 3)
    engine.silent = {2}
    listing = engine.read()
    assert names_of(listing) == ["web-1", "web-3"]
    assert [container.name for container in listing.unread] == ["web-2"]
    assert listing.outdated == {f"{2:064x}": "container web-2: no answer within 10 s"}


def test_a_container_that_cannot_be_inspected_again_counts_as_last_read():
    engine = Engine(1, 2)
    engine.read()
    engine.silent = {2}
    engine.containers[f"{2:064x}"]["State"]["Status"] = "exited"
    listing = engine.read()
    assert names_of(listing) == ["web-1", "web-2"]
    assert listing.containers[1].state == "exited"
    assert listing.outdated == {f"{2:064x}": "container web-2: no answer within 10 s"}
    assert listing.unread == ()


def test_one_such_container_at_a_time_is_inspected_again():
    engine = Engine(1, 2, 3)
    engine.silent = {2, 3}
    engine.read()
    assert engine.inspected == [1, 2, 3]
    engine.read()
    assert engine.inspected == [1]
    retried = []
    for _ in range(3):
        engine.now += RETRY_SECONDS
        engine.read()
        retried.append(engine.inspected)
    assert retried == [[1, 2], [1, 3], [1, 2]]
    engine.silent = set()
    engine.now += RETRY_SECONDS
    assert names_of(engine.read()) == ["web-1", "web-3"]
    del engine.containers[f"{2:064x}"]
    assert engine.read().unread == ()


def test_an_engine_that_answers_nothing_fails_the_listing():
    engine = Engine(1, 2)
    engine.silent = {1}
    engine.is_up = False
    with pytest.raises(DriverUnavailableError):
        engine.read()
    engine.silent = set()
    engine.is_up = True
    assert names_of(engine.read()) == ["web-1", "web-2"]
