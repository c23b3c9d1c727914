import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.accounting.liveness import Liveness, is_service_up
from nodetracker.model.guest import PowerState, WorkloadKind
from nodetracker.model.listing import UsageSum
from nodetracker.model.settings import Policy
from nodetracker.views.nodes import count_running_vms, render_node_state
from nodetracker.views.services import audit_age_seconds
from nodetracker.views.usages import describe_host
from tests.builders import NOW, later, make_guest, make_record, make_service, make_snapshot


@pytest.mark.parametrize(
    ("changes", "age", "is_up"),
    [
        ({}, 60, True),
        ({}, 61, False),
        ({"forced_down": True}, 0, False),
        ({"last_seen_up": None, "created_at": NOW}, 30, True),
        ({"last_seen_up": None, "created_at": NOW}, 61, False),
        ({"last_seen_up": later(3600)}, 0, True),
    ],
    ids=[
        "heard of within the time",
        "silent for longer",
        "forced down",
        "new and not heard of yet",
        "new and never heard of",
        "the database's clock was set back",
    ],
)
def test_a_service_is_up_with_recent_heartbeats_unless_forced_down(changes, age, is_up):
    assert is_service_up(make_service(**changes), later(age), 60) is is_up


@pytest.mark.parametrize(
    ("last_audit", "expected"),
    [
        ({}, None),
        ({"age_seconds": None, "nodes": {}}, None),
        ({"age_seconds": 12.5, "nodes": {}}, 17.5),
        ({"age_seconds": 12.5, "nodes": {"node-1": {"age_seconds": 400.0}}}, 405.0),
        ({"age_seconds": 12.5, "nodes": {"node-1": {"age_seconds": None}}}, None),
        ({"age_seconds": 12.5, "nodes": {"node-2": {"age_seconds": 400.0}}}, 17.5),
    ],
    ids=["no audit yet", "never", "fine", "not fine", "never fine", "another is not fine"],
)
def test_audit_age_is_the_heartbeat_s_age_plus_the_time_since(last_audit, expected):
    assert audit_age_seconds(make_service(last_audit=last_audit), "node-1", later(5)) == expected


def test_audit_age_is_never_less_than_the_heartbeat_s():
    service = make_service(last_audit={"age_seconds": 3.0, "nodes": {}})
    assert audit_age_seconds(service, "node-1", later(-3600)) == 3.0


def stored(*guests, **changes):
    view = account(make_snapshot("node-1", *guests), None, Policy(), NOW)
    return make_record(view.values, guests=view.guests, **changes)


def test_state_is_liveness_and_status_is_set_by_the_administrator():
    shown = render_node_state(make_service(disabled=True), Liveness(later(90), 60))
    assert (shown["state"], shown["status"]) == ("down", "disabled")


def test_a_node_without_a_service_is_down():
    assert render_node_state(None, Liveness(NOW, 60))["state"] == "down"


def test_instances_that_run_are_counted_beside_all():
    guests = [
        make_guest(1, power_state=PowerState.RUNNING),
        make_guest(2, power_state=PowerState.SHUTDOWN),
        make_guest(3, power_state=PowerState.PAUSED),
        make_guest(4, power_state=PowerState.RUNNING, kind=WorkloadKind.CONTAINER),
    ]
    values = account(make_snapshot("n", *guests), None, Policy(), NOW).values
    assert (values.running_vms, count_running_vms(values)) == (3, 1)


def test_a_host_is_described_by_total_used_and_project():
    kind = WorkloadKind.INSTANCE
    usage = [
        UsageSum("", kind, False, 1, 1500, 0, 1024, 10240),
        UsageSum("p1", kind, False, 1, 500, 0, 1024, 10241),
        UsageSum("p1", kind, True, 1, 2000, 0, 2048, 20480),
    ]
    values = stored(make_guest(1), make_guest(2)).values
    rows = describe_host("host-1", [values], usage)
    assert [(row.project, row.cpu, row.memory_mb, row.disk_gb) for row in rows] == [
        ("(total)", 16, 65536, 500),
        ("(used_now)", 4, 4608, 40),
        ("(used_max)", 4, 4096, 41),
        ("(unclaimed)", 2, 2048, 21),
        ("p1", 3, 3072, 31),
    ]
