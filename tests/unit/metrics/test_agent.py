import dataclasses
import os
import platform
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from nodetracker.metrics.agent import AgentMetrics
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import Notification
from nodetracker.model.errors import (
    ConflictError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from nodetracker.model.health import AgentStatus
from nodetracker.model.service import AuditState
from nodetracker.model.start import StartOutcome
from nodetracker.model.warning import REPORTED_BY_OTHERS, WarningKind
from nodetracker.rpc.notify import NotificationQueue, NotificationSender
from tests.unit.metrics.fakes import NODE_1, NODE_2, REPORT, STATUS, FakeAgentMetrics

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics.txt"


@pytest.fixture
def agent_metrics():
    return FakeAgentMetrics()


@pytest.fixture
def audited(agent_metrics):
    agent_metrics.audits.audited(REPORT)
    return agent_metrics


def steady(text):
    """Replace values that differ between runs, and omit the metrics of the process."""
    text = text[: text.index("# HELP process_")]
    text = text.replace(f'python="{platform.python_version()}"', 'python="PYTHON"')
    return re.sub(r"(?m)(?<=^nodetracker_agent_threads )\S+", "THREADS", text)


def test_the_metrics_equal_the_golden_file(audited):
    text = steady(generate_latest(audited.metrics.registry).decode())
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_the_questions_of_engines_are_counted():
    class Door:
        def count(self):
            return {("libvirt", StartOutcome.REFUSED): 2}, {"libvirt": 0.5}

    metrics = FakeAgentMetrics(door=Door())
    labels = {"driver": "libvirt", "outcome": "refused"}
    assert metrics.value("nodetracker_admissions_total", **labels) == 2
    assert metrics.value("nodetracker_admission_seconds_total", driver="libvirt") == 0.5


def test_the_process_is_measured(agent_metrics):
    assert agent_metrics.value("process_resident_memory_bytes") > 1e6
    assert agent_metrics.value("process_open_fds") > 0


def test_a_node_that_vanishes_loses_its_series(audited):
    assert (
        audited.value("nodetracker_node_cpu_used", nodename=NODE_2.nodename, resource="vcpus") == 0
    )
    audited.audits.audited(dataclasses.replace(REPORT, nodes={NODE_1.nodename: NODE_1}))
    left = {
        sample.labels["nodename"]
        for family in audited.metrics.registry.collect()
        for sample in family.samples
        if "nodename" in sample.labels
    }
    assert left == {NODE_1.nodename}


def test_an_audit_that_was_not_stored_keeps_the_last_nodes_and_warnings(audited):
    audited.audits.audited(AuditReport(store_error=StoreUnavailableError("away")))
    assert audited.value("nodetracker_node_memory_capacity_bytes", nodename="node-1") == 2**36
    assert audited.value("nodetracker_warnings", kind="fact_held") == 1


def test_warnings_that_the_agent_does_not_see_have_no_series(audited):
    kinds = {
        sample.labels["kind"]
        for family in audited.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "nodetracker_warnings"
    }
    assert kinds == set(WarningKind) - REPORTED_BY_OTHERS


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (AuditReport(), "complete"),
        (AuditReport(errors={"n": "x"}), "incomplete"),
        (AuditReport(listing_error="x"), "incomplete"),
        (AuditReport(store_error=StoreError("x")), "not_stored"),
    ],
    ids=["good", "node", "listing", "database"],
)
def test_audits_are_counted_by_outcome(agent_metrics, report, outcome):
    agent_metrics.audits.audited(report)
    assert agent_metrics.value("nodetracker_audits_total", outcome=outcome) == 1
    assert agent_metrics.value("nodetracker_audit_duration_seconds_count") == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreUnavailableError("x"), "unavailable"),
        (SchemaError("x"), "schema"),
        (ConflictError("x"), "conflict"),
        (StoreError("x"), "refused"),
    ],
)
def test_database_errors_are_counted_by_kind(agent_metrics, error, kind):
    agent_metrics.audits.audited(AuditReport(store_error=error))
    kinds = ("unavailable", "schema", "conflict", "refused")
    counted = {
        each: agent_metrics.value("nodetracker_database_errors_total", kind=each) for each in kinds
    }
    assert counted == dict.fromkeys(kinds, 0) | {kind: 1}


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, "0.01"), (0.01, "0.01"), (0.011, "0.025"), (61, "+Inf")]
)
def test_a_duration_is_counted_in_the_first_bucket_that_contains_it(agent_metrics, seconds, bucket):
    agent_metrics.audits.audited(AuditReport(duration_seconds=seconds))
    (family,) = (
        family
        for family in agent_metrics.metrics.registry.collect()
        if family.name == "nodetracker_audit_duration_seconds"
    )
    first = next(sample for sample in family.samples if sample.value)
    assert first.labels == {"le": bucket}
    assert agent_metrics.value("nodetracker_audit_duration_seconds_sum") == seconds


def test_an_unknown_value_has_no_series(agent_metrics):
    agent_metrics.status = AgentStatus(host="host-1", agent_id="a")
    for name in (
        "agent_epoch",
        "audit_age_seconds",
        "audit_interval_seconds",
        "heartbeat_age_seconds",
        "clock_skew_seconds",
    ):
        assert agent_metrics.value(f"nodetracker_{name}") is None
    assert agent_metrics.value("nodetracker_agent_started") == 0


def test_a_node_that_was_never_read_completely_has_no_age(audited):
    nodes = {NODE_1.nodename: {"age_seconds": None, "error": "x"}}
    audited.status = dataclasses.replace(STATUS, audit=AuditState(12.5, nodes))
    assert audited.value("nodetracker_node_reading_age_seconds", nodename=NODE_1.nodename) is None
    assert audited.value("nodetracker_node_reading_age_seconds", nodename=NODE_2.nodename) == 12.5


def test_database_and_driver_are_down_while_they_fail(agent_metrics):
    assert (
        agent_metrics.value("nodetracker_database_up")
        == agent_metrics.value("nodetracker_driver_up")
        == 1
    )
    agent_metrics.status = dataclasses.replace(
        STATUS, database_error="away", driver_error="not ready"
    )
    assert (
        agent_metrics.value("nodetracker_database_up")
        == agent_metrics.value("nodetracker_driver_up")
        == 0
    )


def test_two_agents_in_one_process_are_independent():
    first, second = FakeAgentMetrics(), FakeAgentMetrics()
    first.audits.audited(REPORT)
    assert second.value("nodetracker_audits_total", outcome="incomplete") == 0


def test_notifications_are_counted_where_a_sender_exists(agent_metrics):
    assert agent_metrics.value("nodetracker_notifications_waiting") is None
    sender = NotificationSender(lambda: None, NotificationQueue(1))
    queue = sender._queue
    for subject in ("a", "b"):
        queue.put(Notification("claim.create", subject, {}))
    metrics = AgentMetrics(
        "1", ["fake"], agent_metrics.audits, lambda: STATUS, agent_metrics, sender
    )
    value = metrics.registry.get_sample_value
    assert value("nodetracker_notifications_waiting") == 1
    assert value("nodetracker_notifications_dropped_total") == 1


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, 1),
        ({"rpc_error": "refused"}, 0),
        ({"notifications_error": "refused"}, 0),
        ({"has_broker": False}, None),
    ],
    ids=str,
)
def test_the_broker_is_up_unless_something_shows_that_it_is_not(agent_metrics, changes, value):
    agent_metrics.status = dataclasses.replace(STATUS, **changes)
    assert agent_metrics.value("nodetracker_broker_up") == value
