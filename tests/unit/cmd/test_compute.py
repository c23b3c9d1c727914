"""One audit by ``nodetracker-compute --once``."""

from unittest.mock import Mock

import pytest

from nodetracker.cmd.compute import audit_once
from nodetracker.daemon import EXIT_DONE
from nodetracker.errors import DuplicateAgentError, RefusedError
from nodetracker.model.audit import AuditReport


@pytest.fixture
def agent():
    agent = Mock()
    agent.manager.update_available_resource.return_value = AuditReport()
    return agent


def test_one_audit_is_reported_and_notified(agent):
    assert audit_once(agent) == EXIT_DONE
    assert [name for name, *_ in agent.mock_calls][-3:] == [
        "reporter.report_once",
        "manager.cleanup_host",
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
