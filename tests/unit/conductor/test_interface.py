"""The interface of the conductors."""

import pytest

from nodetracker.conductor.client import CONDUCTOR
from nodetracker.ports import Store
from nodetracker.ports.methods import is_repeatable


def test_writes_that_would_report_another_result_are_not_repeated():
    """Agents' writes are compared with an epoch or count; deletions find nothing the second time."""
    not_repeatable = {name for name, item in CONDUCTOR.methods.items() if not item.is_repeatable}
    assert not_repeatable == {
        "accept_node", "adopt_uuid", "apply_changes", "create_call", "delete_node",
        "delete_service", "fail_provider_removal", "purge", "purge_host", "raise_warning", "register_agent",
        "rename_host", "report_state", "resolve_warnings", "set_migration_status", "take_news",
        "take_over_node", "take_provider_removals",
    }  # fmt: skip


def test_a_method_is_marked_where_the_port_declares_it():
    assert is_repeatable(Store.create_claim)
    assert not is_repeatable(Store.report_state)


def test_each_process_closes_its_own_store():
    assert "close" not in CONDUCTOR.methods


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        ({}, {}),
        ({"host": None, "uuid": "u-1"}, {"uuid": "u-1"}),
        ({"host": ""}, {"host": ""}),
    ],
)
def test_arguments_with_their_default_are_not_sent(named, sent):
    assert CONDUCTOR.methods["list_claims"].encode_arguments(**named) == sent
