"""The health of the fleet in words."""

import dataclasses
from datetime import timedelta

from nodetracker.model.fleet import WarningCount
from nodetracker.model.warning import WarningKind
from nodetracker.views.fleet_health import HealthLevel, summarize_health
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
        add(4, "host-4"),
        services=(SERVICE, late, dataclasses.replace(SERVICE, host="host-4", last_audit={})),
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
    unread = dataclasses.replace(SERVICE, host="host-3", last_audit={})
    nodes = (add(1, memory_mb_used=99_000), add(2, "host-2"), add(3, "host-3"), add(4, "host-3"))
    empty = [dataclasses.replace(SERVICE, host=host) for host in ("host-8", "host-9")]
    found = health_of(*nodes, services=(service, unread, *empty), is_truncated=True)
    assert shown_of(found.problems) == [
        ("1 host down", "/", {"state": "down"}),
        ("2 nodes never read", "/", {"freshness": "never"}),
        ("1 node overcommitted", "/", {"only": "overcommitted"}),
        ("2 hosts without nodes", "", {"only": "empty"}),
    ]
    assert [(found.path, found.hosts) for found in found.causes] == [
        ("/host", ("host-2",)),
        ("/", ("host-3",)),
        (f"/nodes/{NODE.uuid}", ("host-1",)),
        ("", ("host-8", "host-9")),
        ("/host", ("host-1",)),
    ]
    assert shown_of(found.notes) == [
        ("1 node disabled", "/", {"status": "disabled"}),
        ("1 node in maintenance", "/", {"only": "maintenance"}),
    ]


def silent(host, minutes, **changes):
    seen = NOW - timedelta(minutes=minutes)
    return dataclasses.replace(SERVICE, host=host, last_seen_up=seen, **changes)


def texts_of(*services, **rows):
    """Return the causes in a fleet in which each host has a node of 5 guests, and host-1 two."""
    nodes = [add(number, service.host) for number, service in enumerate(services, 2)]
    return [found.text for found in health_of(add(1), *nodes, services=services, **rows).causes]


def test_hosts_that_fail_together_are_one_cause():
    services = (SERVICE, silent("host-10", 23), silent("host-9", 25), silent("host-3", 60))
    nodes = [add(number, f"host-{number}") for number in (3, 9, 10)]
    found = health_of(NODE, *nodes, services=services).causes
    assert [(cause.text, cause.hosts, cause.guests) for cause in found] == [
        ("host-9 and host-10 down for 25 min, no heartbeat, 10 guests", ("host-9", "host-10"), 10),
        ("host-3 down for 1 h, no heartbeat, 5 guests", ("host-3",), 5),
    ]
    assert [(cause.since, cause.path, dict(cause.filters)) for cause in found] == [
        (NOW - timedelta(minutes=25), "/", {"state": "down"}),
        (NOW - timedelta(minutes=60), "/host", {"host": "host-3"}),
    ]


def test_an_agent_that_stopped_and_one_that_hangs_are_different_causes():
    assert texts_of(silent("host-2", 5, epoch=3, ended_epoch=3), silent("host-3", 5)) == [
        "host-2 down for 5 min, agent stopped, 5 guests",
        "host-3 down for 5 min, no heartbeat, 5 guests",
        "host-1 down, no agent, 5 guests",
    ]


def test_of_many_hosts_the_first_are_named_and_of_many_incidents_the_longest():
    services = [silent(f"host-{number}", 20 * number) for number in range(1, 111)]
    assert texts_of(*services) == [
        "host-1, host-2 and 108 more down for up to 1 d 12 h, no heartbeat, 555 guests"
    ]
    (found,) = health_of(services=services).causes
    assert (len(found.hosts), found.hosts[1], found.hosts[-1]) == (100, "host-2", "host-100")


def test_what_administrators_decided_has_their_reason():
    at = NOW - timedelta(minutes=30)
    taken_out = {"disabled": True, "disabled_reason": "new disk", "disabled_at": at}
    services = (
        dataclasses.replace(SERVICE, maintenance=True, **taken_out),
        silent("host-2", 20, **taken_out),
        dataclasses.replace(
            SERVICE, host="host-3", forced_down=True, forced_down_reason="fire", forced_down_at=at
        ),
        dataclasses.replace(SERVICE, host="host-4", maintenance=True),
        dataclasses.replace(
            SERVICE, host="host-5", maintenance=True, maintenance_reason="fan", maintenance_at=at
        ),
    )
    assert texts_of(*services) == [
        "host-3 forced down for 30 min, 5 guests: fire",
        "host-2 down for 20 min, no heartbeat, disabled, 5 guests: new disk",
        "host-1 disabled and in maintenance for 30 min, 10 guests: new disk",
        "host-5 in maintenance for 30 min, 5 guests: fan",
        "host-4 in maintenance, 5 guests",
    ]
    nodes = [add(number, service.host) for number, service in enumerate(services)]
    levels = [found.level for found in health_of(*nodes, services=services).causes]
    assert levels == ["bad", "bad", "good", "good", "good"]


def test_equal_reasons_of_both_settings_are_given_once():
    both = {"disabled": True, "maintenance": True, "disabled_reason": "fan"}
    for reason, shown in (("fan", "fan"), ("roof", "fan; roof")):
        service = dataclasses.replace(SERVICE, **both, maintenance_reason=reason)
        assert texts_of(service) == [f"host-1 disabled and in maintenance, 10 guests: {shown}"]


def test_a_long_reason_is_cut():
    (text,) = texts_of(dataclasses.replace(SERVICE, disabled=True, disabled_reason="x" * 5000))
    assert (len(text), text[-2:]) == (148, "x…")


def test_nodes_that_are_not_read_or_overcommitted_are_causes():
    late = dataclasses.replace(
        SERVICE, host="host-2", last_audit={"age_seconds": 400.0, "audit_interval_seconds": 60}
    )
    empty = dataclasses.replace(SERVICE, host="host-3")
    nodes = (add(1), add(2, memory_mb_used=99_000, disk_used=900.0), add(3, "host-2"))
    found = health_of(*nodes, services=(SERVICE, late, empty)).causes
    assert [(cause.text, cause.path, dict(cause.filters)) for cause in found] == [
        ("node-3 not read for 6 min, 5 guests", f"/nodes/{NODE.uuid}", {}),
        ("node-2 overcommitted in memory and disk, 5 guests", f"/nodes/{NODE.uuid}", {}),
        ("host-3 without nodes", "/host", {"host": "host-3"}),
    ]


def test_other_services_that_are_down_are_causes():
    conductor = silent("control-1", 5, binary="nodetracker-conductor")
    (found,) = health_of(NODE, services=(SERVICE, conductor)).causes
    assert found.text == "nodetracker-conductor on control-1 down for 5 min"
    assert (found.level, found.path) == ("bad", "/services")


def test_warnings_are_causes_by_kind_but_those_of_a_trouble_that_is_named_already():
    warnings = (
        WarningCount("host-1", "node-1", WarningKind.DRIFT, 1),
        WarningCount("host-1", "", WarningKind.CLOCK_SKEW, 3),
        WarningCount("host-2", "", WarningKind.CLOCK_SKEW, 0, 1),
        WarningCount("host-2", "", WarningKind.HOST_DOWN, 1),
        WarningCount("host-1", "node-9", WarningKind.NODE_OVERCOMMITTED, 1),
    )
    over = add(9, memory_mb_used=99_000)
    services = (SERVICE, silent("host-2", 5))
    found = health_of(add(1), over, services=services, warnings=warnings)
    assert [(cause.text, dict(cause.filters)) for cause in found.causes] == [
        ("host-2 down for 5 min, no heartbeat", {"host": "host-2"}),
        ("clock skew on host-1, 3 warnings, 10 guests", {"kind": "clock_skew"}),
        ("drift on node-1, 5 guests", {"kind": "drift"}),
        ("node-9 overcommitted in memory, 5 guests", {}),
    ]
    assert found.text == "1 host down, 1 node overcommitted, 4 other warnings"


def test_so_many_causes_are_listed_and_the_others_counted():
    services = [
        dataclasses.replace(SERVICE, host=f"h{number}", disabled=True, disabled_reason=f"{number}")
        for number in range(25)
    ]
    found = texts_of(*services, now=NOW)
    assert (len(found), found[-1]) == (21, "6 further causes")
