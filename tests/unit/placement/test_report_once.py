"""A report by a process that ends after one audit."""

import pytest

from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import PlacementUnavailableError
from nodetracker.placement.reporter import PlacementReporter
from tests.placement_model import NODE, PlacementModel, make_claim, make_node
from tests.settings import make_placement_settings
from tests.unit.placement.scene import Ledger


class Removals:
    """Removals of which nothing but the attempt is known."""

    def __init__(self):
        self.attempts = []

    def audited(self, report):
        pass

    def list_warnings(self):
        return ()

    def work_once(self, timeout_seconds):
        self.attempts.append(timeout_seconds)


@pytest.fixture
def model():
    return PlacementModel()


def report_once(model, **settings):
    """Report a node with a claim; return the removals."""
    removals = Removals()
    reporter = PlacementReporter(
        model, Ledger().has_known, make_placement_settings(**settings), removals=removals
    )
    report = AuditReport(nodes={"node-1": make_node([make_claim(1)], generation=1)})
    reporter.audited(report)
    reporter.report_once()
    return removals


def test_the_nodes_and_removals_are_done_before_it_returns(model, caplog) -> None:
    removals = report_once(model, timeout=30.0)
    assert model.providers[NODE].name == "node-1"
    assert list(model.consumers) == [make_claim(1).workload.uuid]
    assert removals.attempts == [30.0]
    assert caplog.records == []


def test_without_an_answer_it_gives_up_and_says_what_is_left(model, caplog) -> None:
    def fail(method, subject):
        raise PlacementUnavailableError(method, "connection refused")

    model.fail = fail
    removals = report_once(model, timeout=0.1)
    assert removals.attempts == []
    assert "Placement: 1 node not reported" in caplog.text


def test_its_warnings_are_logged(model, caplog) -> None:
    model.create_provider("99999999-9999-4999-8999-999999999999", "node-1")
    report_once(model, timeout=30.0)
    assert "Node node-1: provider 99999999-9999-4999-8999-999999999999" in caplog.text
