"""One audit by ``nodetracker-compute --once``."""

import os
from unittest.mock import Mock

import pytest

from nodetracker.cmd.compute import audit_once
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import DuplicateAgentError, RefusedError
from nodetracker.process.daemon import EXIT_DONE


@pytest.fixture
def agent():
    agent = Mock()
    agent.manager.update_available_resource.return_value = AuditReport()
    return agent


def test_one_audit_is_reported_and_notified(agent):
    assert audit_once(agent) == EXIT_DONE
    assert [name for name, *_ in agent.mock_calls][-5:] == [
        "reporter.report_once",
        "manager.cleanup_host",
        "manager.report_end",
        "store.close",
        "notifier.flush",
    ]


def test_notifications_of_a_refusal_are_sent(agent):
    agent.manager.update_available_resource.side_effect = DuplicateAgentError("another")
    with pytest.raises(RefusedError):
        audit_once(agent)
    agent.notifier.flush.assert_called_once()


def test_without_a_broker_and_placement_nothing_is_sent(agent):
    agent.notifier = agent.reporter = None
    assert audit_once(agent) == EXIT_DONE


def test_a_reader_of_the_lines_that_has_gone_stops_nothing(agent, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        agent.manager.update_available_resource.return_value = AuditReport(
            errors={f"node-{number}": "boom" for number in range(1000)}
        )
        audit_once(agent)
    agent.manager.cleanup_host.assert_called_once()
    agent.reporter.report_once.assert_called_once()
