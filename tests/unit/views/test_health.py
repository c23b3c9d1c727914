import dataclasses

import pytest

from nodetracker.model.health import AgentStatus, PlacementStatus
from nodetracker.model.service import AuditState
from nodetracker.views.health import evaluate_health

FINE = AgentStatus(
    host="host-1",
    agent_id="22222222-2222-4222-8222-222222222222",
    epoch=1,
    has_started=True,
    audit=AuditState(age_seconds=12.3456),
    audit_interval=60,
    fine_nodes=2,
    heartbeat_age_seconds=4,
    service_down_time=60,
    report_count=9,
    clock_skew_seconds=0.01,
)
HELD = {"node-2": {"age_seconds": 90.0, "error": "memory: /proc/meminfo: no such file"}}


def evaluate(**changes):
    return evaluate_health(dataclasses.replace(FINE, **changes))


def test_a_healthy_agent_passes_and_shows_its_ages():
    assert evaluate().as_json() == {
        "status": "pass",
        "checks": {
            "audit": {"status": "pass", "age_seconds": 12.346, "interval_seconds": 60},
            "database": {"status": "pass"},
            "driver": {"status": "pass"},
            "heartbeat": {"status": "pass", "age_seconds": 4},
            "nodes": {"status": "pass", "fine": 2, "nodes": {}},
            "clock": {"status": "pass", "skew_seconds": 0.01},
            "rpc": {"status": "pass"},
            "notifications": {"status": "pass"},
            "placement": {"status": "pass", "output": "not configured"},
        },
    }


def test_placement_warns_and_never_fails():
    assert evaluate(placement=PlacementStatus(waiting_nodes=2)).checks["placement"].as_json() == {
        "status": "pass", "waiting_nodes": 2, "age_seconds": 0.0, "name_conflicts": 0
    }  # fmt: skip
    for status in (PlacementStatus("Connection refused"), PlacementStatus(name_conflicts=1)):
        assert evaluate(placement=status).state.value == "warn"


def test_without_a_broker_its_checks_pass_as_not_configured():
    health = evaluate(has_broker=False).as_json()
    assert health["status"] == "pass"
    for check in ("rpc", "notifications"):
        assert health["checks"][check] == {"status": "pass", "output": "not configured"}


@pytest.mark.parametrize(
    ("state", "check", "output", "changes"),
    [
        ("fail", "audit", "no audit has been attempted yet", {"has_started": False}),
        ("fail", "audit", "no audit has been stored", {"audit": AuditState()}),
        ("fail", "audit", "stored 181 s ago", {"audit": AuditState(181)}),
        ("fail", "database", "connection refused", {"database_error": "connection refused"}),
        ("fail", "driver", "is not ready", {"driver_error": "is not ready", "fine_nodes": 0}),
        (
            "fail",
            "driver",
            "qemu: no",
            {"driver_error": "qemu: no", "fine_nodes": 0, "audit": AuditState(1, HELD)},
        ),
        ("warn", "driver", "qemu: no", {"driver_error": "qemu: no", "fine_nodes": 1}),
        ("fail", "heartbeat", "no heartbeat has been written", {"heartbeat_age_seconds": None}),
        ("fail", "heartbeat", "written 61 s ago", {"heartbeat_age_seconds": 61}),
        ("warn", "nodes", "1 of 2 nodes failing", {"audit": AuditState(1, HELD), "fine_nodes": 1}),
        ("warn", "nodes", "1 of 1 node failing", {"audit": AuditState(1, HELD), "fine_nodes": 0}),
        ("warn", "rpc", "refused", {"rpc_error": "login was refused"}),
        ("warn", "notifications", "refused", {"notifications_error": "login was refused"}),
        ("warn", "clock", "5.1 s ahead of the database's", {"clock_skew_seconds": 5.1}),
        ("warn", "clock", "3600.0 s behind the database's", {"clock_skew_seconds": -3600}),
    ],
)  # fmt: skip
def test_a_problem_has_its_state_and_output(state, check, output, changes):
    health = evaluate(**changes)
    assert health.state.value == state
    assert health.checks[check].state.value == state
    assert output in health.checks[check].output


@pytest.mark.parametrize(
    "changes",
    [
        {"audit": AuditState(180)},
        {"audit": AuditState(86400), "audit_interval": None},
        {"heartbeat_age_seconds": 60},
        {"clock_skew_seconds": 5},
        {"clock_skew_seconds": None},
        {"fine_nodes": 0},
    ],
    ids=[
        "three intervals",
        "audits on demand",
        "a late heartbeat",
        "five seconds",
        "no clock",
        "no node",
    ],
)
def test_tolerated_values_pass(changes):
    assert evaluate(**changes).as_json()["status"] == "pass"


def test_of_many_failing_nodes_some_are_named_with_their_errors():
    held = {f"n{number}": {"age_seconds": 1, "error": "no"} for number in range(1, 6)}
    check = evaluate(audit=AuditState(1, held), fine_nodes=0).checks["nodes"]
    assert check.output == "5 of 5 nodes failing: n1: no; n2: no; n3: no; and 2 more"


def test_a_failing_node_is_listed_with_its_age_and_error():
    nodes = evaluate(audit=AuditState(1, HELD), fine_nodes=1).as_json()["checks"]["nodes"]
    assert nodes == {
        "status": "warn",
        "fine": 1,
        "nodes": {"node-2": {"age_seconds": 90.0, "output": "memory: /proc/meminfo: no such file"}},
        "output": "1 of 2 nodes failing: node-2: memory: /proc/meminfo: no such file",
    }


def test_the_worst_check_decides():
    health = evaluate(clock_skew_seconds=9, database_error="away")
    assert health.state.value == "fail"
    assert health.checks["clock"].state.value == "warn"
