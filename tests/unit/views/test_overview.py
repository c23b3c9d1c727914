"""The overview of the fleet: amounts, freshness, counts."""

import dataclasses
from datetime import timedelta

import pytest

from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.model.fleet import OverviewRows, UnclaimedSum, WarningCount
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.warning import WarningKind
from nodetracker.views.overview import ResourceUse, Severity
from nodetracker.views.plain_overview import render_overview
from nodetracker.views.problems import view_fleet
from nodetracker.views.services import Freshness, freshness_of
from tests.builders import NOW
from tests.unit.views.overview import NODE, SERVICE, build


def test_amounts_have_placements_limit_and_add_up():
    unclaimed = (
        UnclaimedSum(1, WorkloadKind.INSTANCE, 2, 2500, 1, 4096, 2048),
        UnclaimedSum(1, WorkloadKind.CONTAINER, 1, 500, 0, 1024, 0),
    )
    (line,) = build(NODE, unclaimed=unclaimed).nodes
    assert line.amounts == {
        VCPU: ResourceUse(16000, 2000, 17500, 3000, 58000),
        PCPU: ResourceUse(4, 0, 2, 1, 4),
        MEMORY: ResourceUse(65536, 512, 35128, 5320, 98048),  # two instances' overhead
        DISK: ResourceUse(512000, 1024, 29184, 2048, 512000),
    }
    assert line.amounts[VCPU].free == -6500
    for use in line.amounts.values():
        assert use.total == use.reserved + use.claimed + use.unclaimed + use.free


def test_a_guest_that_the_row_does_not_count_yet_is_not_unclaimed():
    late = (UnclaimedSum(1, WorkloadKind.CONTAINER, 1, 0, 0, 100_000, 0),)
    (line,) = build(NODE, unclaimed=late).nodes
    memory = line.amounts[MEMORY]
    assert (memory.claimed, memory.unclaimed) == (0, 40960 - 512)


@pytest.mark.parametrize(
    ("state", "age", "interval", "expected"),
    [
        ("up", 0.0, 60, Freshness.FRESH),
        ("up", 180.0, 60, Freshness.FRESH),
        ("up", 180.5, 60, Freshness.LATE),
        ("up", 600.0, 60, Freshness.LATE),
        ("up", 600.5, 60, Freshness.STALE),
        ("up", 900.0, 900, Freshness.FRESH),
        ("up", 2701.0, 900, Freshness.STALE),
        ("up", 600.0, None, Freshness.FRESH),
        ("up", 601.0, None, Freshness.STALE),
        ("down", 1.0, 60, Freshness.STALE),
        ("unreachable", 1.0, 60, Freshness.STALE),
        ("up", None, 60, Freshness.NEVER),
        ("down", None, 60, Freshness.NEVER),
    ],
)
def test_freshness_is_a_class(state, age, interval, expected):
    assert freshness_of(state, age, interval, 600) is expected


def test_a_node_without_an_agent_is_down_and_was_never_read():
    (line,) = build(NODE, services=()).nodes
    assert (line.state, line.status, line.freshness) == ("down", "enabled", Freshness.NEVER)


def test_a_host_without_nodes_is_a_line_beside_them():
    empty = dataclasses.replace(SERVICE, host="host-2")
    silent = dataclasses.replace(empty, host="host-3", last_seen_up=NOW - timedelta(hours=2))
    overview = build(NODE, services=[empty, SERVICE, silent])
    assert [(line.node.host, line.state, line.freshness) for line in overview.empty_hosts] == [
        ("host-2", "up", Freshness.NEVER),
        ("host-3", "down", Freshness.NEVER),
    ]
    shown = render_overview(overview)
    assert [(item["host"], item["uuid"]) for item in shown["empty_hosts"]] == [
        ("host-2", ""),
        ("host-3", ""),
    ]
    assert shown["down_since"] == {"host-3": "2026-03-01T10:00:00.250000+00:00"}
    assert (len(shown["nodes"]), shown["states"]["up"]) == (1, 1)


def test_since_when_a_host_is_down_is_unknown_where_it_is_forced():
    forced = dataclasses.replace(SERVICE, forced_down=True)
    (line,) = build(NODE, services=[forced]).nodes
    assert (line.state, line.down_since) == ("down", None)


@pytest.mark.parametrize(
    ("reason", "text"), [(None, "forced down"), ("fenced off", "forced down: fenced off")]
)
def test_a_host_that_is_forced_down_says_why(reason, text):
    forced = dataclasses.replace(SERVICE, forced_down=True, forced_down_reason=reason)
    view = view_fleet(OverviewRows(NOW, (forced,), (NODE,)), 60, 600)
    assert text in [found.text for found in view.problems_of(view.overview.nodes[0])]


def test_what_is_set_of_a_host_has_its_own_reason():
    out = dataclasses.replace(
        SERVICE, disabled=True, disabled_reason="disk", maintenance=True, maintenance_reason="fan"
    )
    view = view_fleet(OverviewRows(NOW, (out,), (NODE,)), 60, 600)
    texts = [found.text for found in view.problems_of(view.overview.nodes[0])]
    assert texts == ["in maintenance: fan", "disabled: disk"]


def test_a_host_s_state_and_ages_are_those_at_the_database_s_time():
    disabled = dataclasses.replace(SERVICE, disabled=True, maintenance=True)
    overview = build(NODE, services=[disabled], now=NOW + timedelta(seconds=61))
    (line,), (service,) = overview.nodes, overview.services
    assert (line.state, line.status, line.maintenance) == ("down", "disabled", True)
    assert (line.freshness, line.audit_age_seconds) == (Freshness.STALE, 66.0)
    assert (service.heartbeat_age_seconds, service.audit_age_seconds) == (61.0, 66.0)
    assert service.clock_skew_seconds == -0.25


def test_totals_are_those_of_all_nodes_though_lines_are_cut():
    nodes = [
        dataclasses.replace(NODE, id=number, nodename=f"node-{number}") for number in (3, 2, 1)
    ]
    warnings = (
        WarningCount("host-1", "", WarningKind.CLOCK_SKEW, 1),
        WarningCount("host-1", "node-2", WarningKind.FACT_HELD, 2),
    )
    shown = render_overview(build(*nodes, warnings=warnings), max_nodes=2)
    assert [(item["nodename"], item["warnings"]) for item in shown["nodes"]] == [
        ("node-1", 1),
        ("node-2", 3),
    ]
    assert shown["truncated"]
    assert shown["totals"]["DISK_GB"] == {
        "total": 1500, "reserved": 3, "claimed": 91.5, "unclaimed": 0, "free": 1405.5,
        "limit": 1500,
    }  # fmt: skip
    assert shown["states"] == {"up": 3, "down": 0, "unreachable": 0}
    assert shown["statuses"] == {"enabled": 3, "disabled": 0}
    assert shown["freshness"] == {"fresh": 3, "late": 0, "stale": 0, "never": 0}
    assert shown["guests"] == {"instance": 9, "container": 6}
    assert shown["warnings"] == {"clock_skew": 1, "fact_held": 2}
    assert shown["claims"] == {"held": 0, "confirmed": 0, "released": 0}
    assert shown["summary"] == "3 nodes, 9 instances, 6 containers, 0 claims confirmed, 0 held"


@pytest.mark.parametrize(
    ("changes", "warned", "severity"),
    [
        ({}, None, Severity.FINE),
        ({"disabled": True}, None, Severity.SET),
        ({"maintenance": True}, None, Severity.SET),
        ({"disabled": True}, "", Severity.WARNED),
        ({}, "", Severity.WARNED),
        ({}, "node-1", Severity.WARNED),
        ({}, "node-2", Severity.FINE),
        ({"last_audit": {}}, "node-1", Severity.UNREAD),
        ({"last_audit": {}, "forced_down": True}, "node-1", Severity.LOST),
    ],
)
def test_severity_is_that_of_the_worst_problem(changes, warned, severity):
    service = dataclasses.replace(SERVICE, **changes)
    found = [] if warned is None else [WarningCount("host-1", warned, WarningKind.CLOCK_SKEW, 1)]
    gone = WarningCount("host-1", "", WarningKind.HOST_DOWN, 1)  # is up again
    rows = OverviewRows(NOW, (service,), (NODE,), warnings=(*found, gone))
    view = view_fleet(rows, 60, 600)
    (line,) = view.overview.nodes
    assert render_overview(view.overview)["nodes"][0]["severity"] == line.severity == severity
    worst = max((found.severity for found in view.problems_of(line)), default=Severity.FINE)
    assert worst == severity


def test_an_empty_fleet_has_totals_of_zero():
    shown = render_overview(build(services=()))
    assert (shown["nodes"], shown["truncated"]) == ([], False)
    assert set(shown["totals"]) == {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}
    assert shown["totals"]["VCPU"] == dict.fromkeys(shown["totals"]["VCPU"], 0)


METRICS = {"cpu_percent": 25, "memory_used_mb": 16384, "disk_used_mb": 51200}
MEASURING = dataclasses.replace(NODE, metrics=METRICS)


class TestMeasured:
    """What machines use, summed over those that measure it and were read recently."""

    def test_shares_are_of_the_physical_amounts(self):
        shown = render_overview(build(MEASURING))["measured"]
        assert shown == {
            VCPU: {"percent": 25, "nodes": 1, "text": "25 % in use"},
            MEMORY: {"percent": 25, "nodes": 1, "text": "25 % in use"},
            DISK: {"percent": 10, "nodes": 1, "text": "10 % in use"},
        }

    def test_what_no_node_measures_is_not_zero(self):
        assert build(NODE).measured == {}

    def test_nodes_that_do_not_measure_are_not_in_the_share(self):
        other = dataclasses.replace(NODE, id=2, nodename="node-2", metrics={"memory_used_mb": 0})
        shown = render_overview(build(MEASURING, other))["measured"]
        assert shown[VCPU]["text"] == "25 % in use on 1 of 2 nodes"
        assert shown[MEMORY]["text"] == "12 % in use"

    def test_what_guests_use_is_said_beside_it(self):
        guests = {
            "instances_cpu_used_milli": 500, "instances_memory_used_mb": 4096,
            "containers_cpu_used_milli": 300, "containers_memory_used_mb": 4096,
        }  # fmt: skip
        used = dataclasses.replace(MEASURING, metrics=METRICS | guests)
        shown = render_overview(build(used))["measured"]
        assert shown[VCPU]["text"] == "25 % in use, 4 % by guests"
        assert shown[MEMORY]["text"] == "25 % in use, 12 % by guests"
        assert shown[DISK]["text"] == "10 % in use"
        without = dataclasses.replace(
            MEASURING, id=2, nodename="node-2", running_vms=0, total_containers=0
        )
        shown = render_overview(build(used, without))["measured"]
        assert shown[MEMORY]["text"] == "25 % in use, 6 % by guests"
        unknown = dataclasses.replace(MEASURING, id=2, nodename="node-2")
        shown = render_overview(build(used, unknown))["measured"]
        assert shown[MEMORY]["text"] == "25 % in use, 12 % by guests on 1"
        assert build(without).used_by_guests == {}

    def test_a_node_that_is_not_read_any_more_does_not_measure(self):
        assert build(MEASURING, now=NOW + timedelta(hours=1)).measured == {}


def build_apart(*hosts):
    """Return the overview of hosts with a node like NODE each, by their services."""
    services = [dataclasses.replace(SERVICE, **{"host": f"host-{n}"} | each) for n, each in hosts]
    nodes = [
        dataclasses.replace(NODE, id=n, host=f"host-{n}", nodename=f"node-{n}") for n, _ in hosts
    ]
    return build(*nodes, services=services)


DOWN = {"last_seen_up": NOW - timedelta(hours=2)}


def test_left_is_what_can_be_claimed_now():
    overview = build_apart(
        (1, {}),
        (2, DOWN),
        (3, DOWN | {"disabled": True, "maintenance": True}),
        (4, {"maintenance": True, "disabled": True}),
        (5, {"disabled": True}),
    )
    shown = render_overview(overview)
    assert shown["left"][MEMORY] == (
        "55.7 GiB left and 111 GiB on 2 hosts that are down, "
        "55.7 GiB on 1 host that is in maintenance, 55.7 GiB on 1 host that is disabled"
    )
    assert shown["left"][VCPU].startswith("35.5 left and 71 on 2 hosts that are down, ")
    assert shown["totals"][MEMORY]["limit"] == 5 * 98048  # which is of all hosts


def test_a_host_that_no_conductor_hears_is_named_by_its_state():
    lines = build_apart((1, {})).nodes
    lost = dataclasses.replace(lines[0], state="unreachable", maintenance=True)
    assert [line.why_unclaimable for line in (*lines, lost)] == ["", "unreachable"]


def test_nothing_is_named_where_all_hosts_take_claims():
    assert render_overview(build_apart((1, {}), (2, {})))["left"] == {
        VCPU: "71 left",
        PCPU: "2 left",
        MEMORY: "111 GiB left",
        DISK: "937 GiB left",
    }


def test_hosts_on_which_nothing_is_left_are_not_named():
    full = dataclasses.replace(NODE, id=2, host="host-2", nodename="node-2", memory_mb_used=98304)
    services = [SERVICE, dataclasses.replace(SERVICE, host="host-2", **DOWN)]
    left = render_overview(build(NODE, full, services=services))["left"]
    assert left[MEMORY] == "55.7 GiB left"
    assert left[PCPU] == "1 left and 1 on 1 host that is down"


def test_a_host_with_several_nodes_is_one_host():
    other = dataclasses.replace(NODE, id=2, nodename="node-2")
    left = render_overview(build(NODE, other, services=[dataclasses.replace(SERVICE, **DOWN)]))
    assert left["left"][MEMORY] == "0 left and 111 GiB on 1 host that is down"


def test_an_overcommitted_node_takes_nothing_from_what_others_have_left():
    over = dataclasses.replace(NODE, id=2, nodename="node-2", memory_mb_used=98304 + 8192)
    assert render_overview(build(NODE, over))["left"][MEMORY] == "55.7 GiB left"
    assert render_overview(build(over))["left"][MEMORY] == "8.3 GiB over"


@pytest.mark.parametrize(
    ("least", "text"),
    [
        (None, "468 GiB left"),
        (800, "468 GiB left"),
        (468, "468 GiB left"),  # the same, rounded
        (73, "468 GiB left, 73 GiB on disk"),
        (-5, "468 GiB left, 0 on disk"),
    ],
)
def test_what_the_disk_has_is_shown_where_it_is_less(least, text):
    node = dataclasses.replace(NODE, disk_available_least=least)
    shown = render_overview(build(node))["left"]
    assert shown[DISK] == text
    assert "on disk" not in shown[MEMORY]


def test_each_node_has_its_own_disk():
    """What one has more than the ledger is of no use to a claim on another."""
    small = dataclasses.replace(NODE, disk_available_least=100)
    large = dataclasses.replace(NODE, id=2, nodename="node-2", disk_available_least=4000)
    off = dataclasses.replace(small, id=3, host="host-2", nodename="node-3")
    services = [SERVICE, dataclasses.replace(SERVICE, host="host-2", disabled=True)]
    left = render_overview(build(small, large, off, services=services))["left"]
    assert left[DISK] == "937 GiB left, 568 GiB on disk and 468 GiB on 1 host that is disabled"
