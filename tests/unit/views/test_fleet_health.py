"""The health of the fleet in words."""

import dataclasses
from datetime import timedelta

from nodetracker.model.fleet import WarningCount
from nodetracker.model.warning import WarningKind
from nodetracker.views.overview import HealthLevel, summarize_health
from tests.builders import NOW
from tests.unit.views.overview import NODE, SERVICE, build


def health_of(*nodes, is_truncated=False, **rows):
    return summarize_health(build(*nodes, **rows), is_truncated)


def shown_of(findings):
    return [(found.text, found.path, dict(found.filters)) for found in findings]


def add(number, host="host-1", **changes):
    return dataclasses.replace(NODE, id=number, host=host, nodename=f"node-{number}", **changes)


def test_a_fleet_without_problems_is_fine():
    assert health_of(NODE).text == "The node is fine"
    found = health_of(add(1), add(2))
    assert (found.level, found.text) == (HealthLevel.GOOD, "All 2 nodes are fine")


def test_without_a_node_it_is_unknown():
    found = health_of(services=())
    assert (found.level, found.text, found.problems) == (HealthLevel.UNKNOWN, "No node yet", ())


def test_problems_are_in_words_the_worst_first_with_the_filters_of_their_nodes():
    late = dataclasses.replace(
        SERVICE, host="host-2", last_audit={"age_seconds": 400.0, "audit_interval_seconds": 60}
    )
    warnings = (WarningCount("host-1", "", WarningKind.CLOCK_SKEW, 2),)
    found = health_of(
        add(1, memory_mb_used=99_000),
        add(2, "host-2"),
        add(3, "host-3"),
        services=(SERVICE, late),
        warnings=warnings,
    )
    assert found.level is HealthLevel.BAD
    assert shown_of(found.problems) == [
        ("1 host down", "/", {"state": "down"}),
        ("1 node not read recently", "/", {"only": "unread"}),
        ("1 node never read", "/", {"freshness": "never"}),
        ("1 node overcommitted", "/", {"only": "overcommitted"}),
        ("2 warnings", "/warnings", {}),
    ]
    assert found.text.startswith("1 host down, 1 node not read recently, ")


def test_silenced_warnings_are_a_note_and_no_problem():
    warnings = (
        WarningCount("host-1", "", WarningKind.CLOCK_SKEW, 0, 2),
        WarningCount("host-1", "", WarningKind.HOST_DOWN, 0, 1),  # is up again
    )
    found = health_of(NODE, warnings=warnings)
    assert (found.level, found.problems) == (HealthLevel.GOOD, ())
    assert shown_of(found.notes) == [("2 warnings silenced", "/warnings", {"silenced": "true"})]


def test_what_is_reserved_of_a_resource_that_was_never_read_is_not_overcommitted():
    unread = {"memory_mb": 0, "memory_mb_used": 512, "ram_allocation_ratio": 1.5}
    assert health_of(add(1, **unread)).text == "The node is fine"
    assert health_of(add(1, pcpus=0)).text == "1 node overcommitted"


def test_hosts_are_counted_once():
    found = health_of(add(1), add(2), now=NOW + timedelta(seconds=61))
    assert found.problems[0].text == "1 host down"


def test_hosts_without_nodes_count():
    empty = dataclasses.replace(SERVICE, host="host-2")
    silent = dataclasses.replace(empty, host="host-3", last_seen_up=NOW - timedelta(hours=2))
    found = health_of(NODE, services=(SERVICE, empty, silent))
    assert shown_of(found.problems) == [
        ("1 host down", "/", {"state": "down"}),
        ("1 host without nodes", "/", {"only": "empty"}),
        ("1 warning", "/warnings", {}),
    ]
    found = health_of(services=(empty,))
    assert (found.level, found.text) == (HealthLevel.WARNING, "1 host without nodes")


def test_other_services_that_are_down_are_a_problem():
    conductor = dataclasses.replace(SERVICE, binary="nodetracker-conductor", host="control-1")
    silent = dataclasses.replace(conductor, last_seen_up=NOW - timedelta(seconds=61))
    assert health_of(NODE, services=(SERVICE, conductor)).text == "The node is fine"
    found = health_of(NODE, services=(SERVICE, silent))
    assert found.level is HealthLevel.BAD
    assert shown_of(found.problems) == [("1 other service down", "/services", {})]


def test_what_administrators_set_is_no_problem_but_noted():
    service = dataclasses.replace(SERVICE, disabled=True, maintenance=True)
    found = health_of(add(1), add(2), services=(service,))
    assert (found.level, found.text) == (HealthLevel.GOOD, "All 2 nodes are fine")
    assert shown_of(found.notes) == [
        ("2 nodes disabled", "/", {"status": "disabled"}),
        ("2 nodes in maintenance", "/", {"only": "maintenance"}),
    ]


def test_of_a_truncated_fleet_only_what_the_lists_can_filter_is_linked():
    service = dataclasses.replace(SERVICE, disabled=True, maintenance=True)
    nodes = (add(1, memory_mb_used=99_000), add(2, "host-2"))
    found = health_of(*nodes, services=(service,), is_truncated=True)
    assert shown_of(found.problems) == [
        ("1 host down", "/", {"state": "down"}),
        ("1 node never read", "", {}),
        ("1 node overcommitted", "", {}),
    ]
    assert shown_of(found.notes) == [
        ("1 node disabled", "/", {"status": "disabled"}),
        ("1 node in maintenance", "", {}),
    ]
