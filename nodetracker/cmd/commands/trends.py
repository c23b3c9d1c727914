"""The command trends."""

import argparse
from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta
from typing import Any

from nodetracker.cmd.commands.base import ListCommand, argument, parse_limit
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.trend import Step, TrendQuery
from nodetracker.usecases.reads import find_node
from nodetracker.views.trends import ROW_COLUMNS, list_rows

_DEFAULT_LIMIT = 24


class ListTrends(ListCommand):
    """List what the fleet or a node had, allocated and used, by the hour or day, newest last.

    Hours are kept for 14 days; days, with the means of their hours, for two years. Of the
    fleet, what is measured is the sum over the nodes of which it is known.
    """

    example = "trends compute-1 --step day"

    columns = ROW_COLUMNS
    layout = (
        Column("at", ("at",), Kind.MOMENT),
        Column("cpu", ("vcpus_allocated", "vcpus_limit"), Kind.SHARE),
        Column("measured", ("vcpus_measured",), Kind.NUMBER, 1),
        Column("memory", ("memory_mb_allocated", "memory_mb_limit"), Kind.SHARE_MIB),
        Column("measured", ("memory_mb_measured",), Kind.MIB, 1),
        Column("disk", ("disk_gb_allocated", "disk_gb_limit"), Kind.SHARE_GIB),
        Column("measured", ("disk_gb_measured",), Kind.GIB, 1),
    )
    arguments = (
        argument("host", nargs="?", help="As node list shows it. Default: the fleet."),
        argument("nodename", nargs="?", help="Required if the host has several nodes."),
        argument(
            "--step",
            choices=[found.value for found in Step],
            default=Step.HOUR.value,
            help="Length of the time that a line is for. Default: hour.",
        ),
        argument(
            "--limit",
            type=parse_limit,
            metavar="N",
            default=_DEFAULT_LIMIT,
            help=f"Maximum number of lines, by default {_DEFAULT_LIMIT}; the newest are shown.",
        ),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        host = args.host
        node_id = None if host is None else find_node(self.reader, host, args.nodename).id
        step = Step(args.step)
        query = TrendQuery(step=step, node_id=node_id, limit=args.limit)
        samples = self.reader.read_trend(query)
        if not samples:
            now = self.reader.now()
            first = step.start_of(now) + timedelta(seconds=step.seconds)
            whose = "the fleet" if host is None else f"host {host}"
            self.app.stderr.write(
                f"no sample of {whose} yet: the next is taken at "
                f"{first.astimezone(UTC):%Y-%m-%d %H:%MZ} while nodetracker-api "
                "or a conductor runs\n"
            )
        return list_rows(samples)
