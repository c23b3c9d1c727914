"""Test which hosts are warned of as down, which warnings are stored, and how both are listed."""

import dataclasses
from collections.abc import Iterable

import pytest

from nodetracker.accounting.liveness import Liveness
from nodetracker.model.service import CONDUCTOR_BINARY
from nodetracker.model.warning import HostWarning, WarningKind, WarningRecord
from nodetracker.views.warnings import (
    HostDown,
    find_hosts_down,
    list_due,
    merge_hosts_down,
    plan_host_down,
)
from tests.builders import NOW, later, make_service

DOWN = 60
WARNING = HostWarning(WarningKind.HOST_DOWN, "", "", "down")
OTHER = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")


def make_record(
    host: str = "h", warning: HostWarning = WARNING, **changes: object
) -> WarningRecord:
    record = WarningRecord(warning, host, later(-900), later(-800), 2, None)
    return dataclasses.replace(record, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"last_seen_up": later(-60)}, None),
        ({"last_seen_up": later(-60), "forced_down": True}, None),
        ({"last_seen_up": later(-61)}, "has sent no heartbeat since 2"),
        ({"last_seen_up": later(-61), "forced_down": True}, "has sent no heartbeat since 2"),
        ({"last_seen_up": None, "created_at": later(-61)}, "has sent no heartbeat since 2"),
        ({"last_seen_up": NOW, "epoch": 2, "ended_epoch": 2}, "was stopped at 2"),
        ({"last_seen_up": NOW, "epoch": 3, "ended_epoch": 2}, None),
        ({"last_seen_up": later(-61), "last_audit": {"by_broker": True}}, None),
        ({"last_seen_up": later(-61), "binary": CONDUCTOR_BINARY}, None),
    ],
    ids=[
        "alive", "forced down but alive", "silent", "silent and forced down", "never seen",
        "stopped", "taken over since", "cut off", "a conductor",
    ],
)  # fmt: skip
def test_a_host_without_a_live_agent_is_down(changes: dict[str, object], found: str | None) -> None:
    down = find_hosts_down([make_service(host="h", **changes)], Liveness(NOW, DOWN, later(-62)))
    assert (down["h"].warning.message.count(found) == 1) if found else down == {}


def down_since(**hosts: float) -> dict[str, HostDown]:
    return {host: HostDown(later(-seconds), WARNING) for host, seconds in hosts.items()}


@pytest.mark.parametrize(
    ("watched", "due"),
    [(3600, {"long"}), (61, {"long"}), (60, set())],
    ids=["always watched", "just long enough", "the database is back"],
)
def test_a_warning_is_stored_once_its_host_stays_down(watched: float, due: Iterable[str]) -> None:
    down = down_since(long=61, short=60)
    assert list_due(down, NOW, later(-watched), DOWN) == due


def test_stored_warnings_follow_the_hosts() -> None:
    stored = [
        make_record("stays"),
        make_record("back"),
        make_record("deleted"),
        make_record("again", resolved_at=later(-10)),
        make_record("other", OTHER),
    ]
    down = down_since(stays=90, new=90, again=90, short=5)
    changes = plan_host_down(down, {"stays", "new", "again"}, stored)
    assert (set(changes.raised), changes.resolved) == ({"again", "new"}, ("back", "deleted"))


def test_a_list_shows_hosts_as_they_are_now() -> None:
    records = [
        make_record("stays"),
        make_record("back", first_seen=later(-700)),
        make_record("again", first_seen=later(-600), resolved_at=later(-10)),
        make_record("past", first_seen=later(-500), resolved_at=later(-9)),
        make_record("other", OTHER, first_seen=later(-400)),
    ]
    merged = merge_hosts_down(records, down_since(stays=90, again=80, new=450), NOW)
    assert [(r.host, r.last_seen, r.count, r.resolved_at, r.earlier) for r in merged] == [
        ("stays", later(-800), 2, None, 0),
        ("back", later(-800), 2, NOW, 0),
        ("past", later(-800), 2, later(-9), 0),
        ("new", later(-450), 1, None, 0),
        ("other", later(-800), 2, None, 0),
        ("again", later(-80), 1, None, 1),
    ]
