"""An outage of a source neither resolves nor raises again what cannot be evaluated without it."""

import logging

import pytest

from nodetracker.model.warning import WarningKind
from tests.unit.compute.tracked_host import (
    HOST,
    AgentWithClaimants,
    TickingClock,
    TrackedHost,
    guest,
    node,
)

UNREADABLE = node(1, guest(1), {"uuid": "broken"})


class WarnedHost(AgentWithClaimants):
    def find(self, kind):
        """Return the count of each warning of a kind, and whether it is unresolved."""
        return [
            (record.count, record.resolved_at is None)
            for record in self.store.list_warnings(HOST)
            if record.warning.kind is kind
        ]


@pytest.fixture
def host(tmp_path):
    return WarnedHost(TickingClock(), tmp_path)


def test_an_unreadable_node_keeps_the_warnings_of_its_guests(host, caplog):
    caplog.set_level(logging.INFO, "nodetracker.compute.warning_registry")
    host.audit(UNREADABLE)
    host.audit(UNREADABLE, fail={"node-1": "boom"})
    host.audit(UNREADABLE)
    assert host.find(WarningKind.GUEST_UNREADABLE) == [(1, True)]
    host.audit(node(1))
    assert host.find(WarningKind.GUEST_UNREADABLE) == [(1, False)]
    assert len([line for line in caplog.messages if "broken" in line]) == 2


def test_a_guest_that_is_readable_again_is_no_longer_warned_of_beside_another(host):
    host.audit(node(1, {"uuid": "broken"}, {"uuid": "other"}))
    host.audit(node(1, {"uuid": "broken"}))
    assert sorted(host.find(WarningKind.GUEST_UNREADABLE)) == [(1, False), (1, True)]


def test_an_unreadable_list_of_nodes_keeps_the_warnings_of_nodes(host):
    host.audit(node(2, {"uuid": "broken"}), node(1))
    host.claim(1)
    host.audit(node(2, {"uuid": "broken"}))
    host.path.write_text("{")
    assert host.audit().listing_error
    kinds = (WarningKind.GUEST_UNREADABLE, WarningKind.ORPHAN_NODE_KEPT)
    assert [host.find(kind) for kind in kinds] == [[(1, True)], [(1, True)]]
    host.audit(node(1), node(2))
    assert [host.find(kind) for kind in kinds] == [[(1, False)], [(1, False)]]


def test_a_driver_that_lists_no_nodes_is_a_warning_until_it_does(host):
    host.audit(node(1))
    host.path.write_text("{")
    host.audit()
    assert host.find(WarningKind.DRIVER_NOT_READY) == [(1, True)]
    host.audit(node(1))
    assert host.find(WarningKind.DRIVER_NOT_READY) == [(1, False)]


def test_an_agent_that_starts_during_an_outage_keeps_the_warnings_of_the_last_run(host):
    host.audit(UNREADABLE)
    again = TrackedHost(host.store, host.path, host.clock)
    again.audit(UNREADABLE, fail={"node-1": "boom"})
    assert host.find(WarningKind.GUEST_UNREADABLE) == [(1, True)]
    again.audit(node(1))
    assert host.find(WarningKind.GUEST_UNREADABLE) == [(1, False)]


def test_an_unresolved_warning_is_counted_once_per_ten_minutes(host):
    for number in range(12):  # each audit changes another warning, and six are a full load
        host.clock.seconds += 300
        host.audit(UNREADABLE, *([node(2, {"uuid": "other"})] if number % 2 else []))
    ((count, _),) = [
        (record.count, record)
        for record in host.store.list_warnings(HOST)
        if record.warning.kind is WarningKind.GUEST_UNREADABLE
        and record.warning.nodename == "node-1"
    ]
    assert count == 6
