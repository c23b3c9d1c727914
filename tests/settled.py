"""Compute also what an audit need not: the view of a settled node must be what it remembers."""

from typing import Any

from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.compute.row_writer import AuditRun, RowWriter
from nodetracker.model.node import NodeView


class CheckedWriter(RowWriter):
    """Takes the long way for every node, and compares what the short one would have had."""

    remembered: dict[str, NodeView]
    settled_views = 0

    def _find_settled(self, reading: Any, policy: Any) -> None:
        found = super()._find_settled(reading, policy)
        if found is not None:
            self.remembered[reading.nodename] = found

    def _write_once(self, run: AuditRun, *arguments: Any) -> Any:
        self.remembered, before = {}, len(self._unreported)
        views, conflicts = super()._write_once(run, *arguments)
        written = {change.nodename for change in self._unreported[before:]} | conflicts
        for name, found in self.remembered.items():
            view = views[name]
            assert name not in written
            assert (view.uuid, view.missing, view.unread) == (found.uuid, (), found.unread)
            assert view.warnings == found.warnings
            assert view.values.facts == found.values.facts
            CheckedWriter.settled_views += 1
        return views, conflicts


def check_settled(tracker: ResourceTracker) -> None:
    """Have a tracker compute and compare everything from now on."""
    tracker._writer.__class__ = CheckedWriter
