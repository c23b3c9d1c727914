"""warning list."""

import argparse
from typing import Any

from nodetracker.cmd.commands.base import ListCommand, argument, flag
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.listing import WarningQuery
from nodetracker.model.warning import WarningKind, WarningRecord
from nodetracker.usecases.reads import read_hosts_down, read_items
from nodetracker.views.warnings import merge_hosts_down, render_warning


class ListWarnings(ListCommand):
    """List active warnings; they resolve when their cause ends.

    "since" and "count" are those of the present one; "earlier" is how often it was
    raised and resolved before.
    """

    example = "warning list --all"

    columns = (
        "host", "kind", "nodename", "item", "message", "first_seen", "last_seen", "count",
        "resolved_at", "earlier",
    )  # fmt: skip
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, 2, same_as="host"),
        Column("kind", ("kind",)),
        Column("item", ("item",), Kind.TEXT, 4),
        Column("message", ("message",), Kind.FLEXIBLE, least=36),
        Column("since", ("first_seen",), Kind.MOMENT, 3),
        Column("last", ("last_seen",), Kind.MOMENT, 5),
        Column("count", ("count",), Kind.NUMBER, 6),
        Column("earlier", ("earlier",), Kind.NUMBER, 4),
        Column("resolved", ("resolved_at",), Kind.MOMENT, 1),
    )

    arguments = (
        argument("--host", help="Only warnings of this host."),
        flag("--all", "Also resolved warnings."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        found = self._list_warnings(args.host, args.all)
        return [render_warning(item) for item in found if args.all or item.resolved_at is None]

    def _list_warnings(self, host: str | None, with_resolved: bool) -> list[WarningRecord]:
        """Return the stored warnings, with ``host_down`` of each host as its service is now."""
        # A resolved one may be active again before a conductor stores that.
        kinds = tuple(kind for kind in WarningKind if kind is not WarningKind.HOST_DOWN)
        queries = (
            WarningQuery(host=host, kinds=kinds, is_resolved=None if with_resolved else False),
            WarningQuery(host=host, kinds=(WarningKind.HOST_DOWN,)),
        )
        stored = [
            record
            for query in queries
            for record in read_items(self.reader.list_warning_page, query)
        ]
        now = self.reader.now()
        down = read_hosts_down(self.reader, now, self.service_down_time, host)
        return merge_hosts_down(stored, down, now)
