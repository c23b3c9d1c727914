"""Old rows are deleted in parts with pauses, by one process, and only if asked."""

import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest

from nodetracker.model.service import API_BINARY, CONDUCTOR_BINARY
from nodetracker.usecases import watch
from nodetracker.usecases.watch import RowPurge, Watcher
from tests.builders import NOW, later, make_service


class Rows:
    """A store with old rows in tables; a part of a purge deletes at most two of each."""

    def __init__(self, services=(), **tables):
        self.tables, self.services, self.asked = tables, services, []

    def now(self):
        return NOW

    def list_outage_services(self, service_down_time):
        return self.services

    def purge(self, before, tables, is_part):
        assert is_part
        self.asked.append((tables, NOW - before))
        part = {name: min(2, self.tables.get(name, 0)) for name in tables}
        self.tables = {name: n - part.get(name, 0) for name, n in self.tables.items()}
        return part


def test_parts_follow_each_other_with_a_pause_until_nothing_is_left(caplog):
    store, pauses = Rows(claims=5, migrations=1, history=3), []
    with caplog.at_level(logging.INFO):
        RowPurge(store, 30, 90, pause=pauses.append).purge_rows()
    assert set(store.tables.values()) == {0}
    assert len(pauses) == 3 + 2
    assert {age for tables, age in store.asked if "claims" in tables} == {timedelta(days=30)}
    assert {age for tables, age in store.asked if "history" in tables} == {timedelta(days=90)}
    (line,) = caplog.messages
    assert line == "Deleted old rows: 1 of migrations, 5 of claims, 3 of history"
    caplog.clear()
    RowPurge(store, 30, 90, pause=pauses.append).purge_rows()
    assert caplog.messages == []


def test_a_pause_is_as_long_as_the_part_before_it(monkeypatch):
    times = iter([100.0, 100.25, 101.0, 104.0, 110.0])
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: next(times)))
    store, pauses = Rows(history=3), []
    parts = list(watch.purge_in_parts(store, NOW, ["history"], pauses.append))
    assert (parts, pauses) == ([{"history": 2}, {"history": 1}, {"history": 0}], [0.25, 3.0])


@pytest.mark.parametrize(("days", "left"), [((0, 0), (1, 1)), ((30, 0), (0, 1)), ((0, 90), (1, 0))])
def test_an_age_of_zero_is_never(days, left):
    store = Rows(claims=1, history=1)
    RowPurge(store, *days, pause=lambda seconds: None).purge_rows()
    assert (store.tables["claims"], store.tables["history"]) == left


def test_only_the_first_of_the_services_that_are_up_purges():
    services = [
        make_service(host="a", binary=CONDUCTOR_BINARY, last_seen_up=later(-3600)),
        make_service(host="b", binary=API_BINARY),
        make_service(host="c", binary=CONDUCTOR_BINARY),
    ]
    store = Rows(services, claims=1)
    for host, binary in (("a", CONDUCTOR_BINARY), ("c", CONDUCTOR_BINARY)):
        RowPurge(store, 30, 90, Watcher(host, binary, 60), pause=lambda seconds: None).purge_rows()
    assert store.asked == []
    RowPurge(store, 30, 90, Watcher("b", API_BINARY, 60), pause=lambda seconds: None).purge_rows()
    assert store.tables["claims"] == 0
