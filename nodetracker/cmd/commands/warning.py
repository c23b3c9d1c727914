"""warning list, silence."""

import argparse
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodetracker.cmd.commands.agent import parse_lifetime
from nodetracker.cmd.commands.base import ListCommand, ShowCommand, argument, flag, parse_limit
from nodetracker.cmd.commands.service import read_operator
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.listing import WarningQuery
from nodetracker.model.serializer import list_names
from nodetracker.model.warning import WarningKind, WarningRecord
from nodetracker.usecases.reads import read_hosts_down, read_items
from nodetracker.views.warnings import WARNING, is_listed, merge_hosts_down, render_warning

_NAMES = list_names(WARNING)


class ListWarnings(ListCommand):
    details = """
    Columns "since" and "count" are those of the present one; "earlier" is how often it was
    raised and resolved before.
    """
    example = "warning list --all"

    columns = (*_NAMES[:10], "id", *_NAMES[10:])
    layout = (
        Column("id", ("id",), Kind.NUMBER, 1),
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, 2, same_as="host"),
        Column("kind", ("kind",)),
        Column("item", ("item",), Kind.TEXT, 4),
        Column("message", ("message",), Kind.FLEXIBLE, least=36),
        Column("since", ("first_seen",), Kind.MOMENT, 3),
        Column("last", ("last_seen",), Kind.MOMENT, 5),
        Column("count", ("count",), Kind.COUNT, 6),
        Column("earlier", ("earlier",), Kind.COUNT, 4),
        Column("resolved", ("resolved_at",), Kind.MOMENT, 1),
        Column("silenced until", ("silenced_until",), Kind.MOMENT, 2),
        Column("because", ("silenced_reason",), Kind.FLEXIBLE, 3),
        Column("by", ("silenced_by",), Kind.TEXT, 6),
    )

    arguments = (
        argument("--host", help="Only warnings of this host."),
        flag("--all", "Also resolved and silenced warnings."),
        flag("--silenced", "Only silenced warnings."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        now = self.reader.now()
        found = self._list_warnings(args.host, args.all, now)
        return [
            {"id": item.id or None, **render_warning(item)}
            for item in found
            if is_listed(item, now, is_silenced=args.silenced, with_all=args.all)
        ]

    def _list_warnings(
        self, host: str | None, with_resolved: bool, now: datetime
    ) -> list[WarningRecord]:
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
        down = read_hosts_down(self.reader, now, self.service_down_time, host)
        return merge_hosts_down(stored, down, now)


class SilenceWarning(ShowCommand):
    details = "It is listed with warning list --silenced. Once the time is over, it counts again."
    example = 'warning silence 17 --reason "spare disk is ordered" --for 4h'
    arguments = (
        argument("id", type=parse_limit, help="As warning list shows it."),
        argument("--reason", required=True, help="Why; it is shown with the warning."),
        argument(
            "--for", dest="lifetime", required=True, type=parse_lifetime, metavar="TIME",
            help="How long, such as 90m, 24h or 7d.",
        ),
    )  # fmt: skip

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, ("id", *_NAMES))
        seconds = round(args.lifetime.total_seconds())
        record = self.store.silence_warning(args.id, args.reason, seconds, read_operator())
        return {"id": record.id, **render_warning(record)}
