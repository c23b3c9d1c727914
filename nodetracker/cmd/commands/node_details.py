"""Commands that explain nodes: describe, diff and history.

They are apart from `node`, as lists need neither the ledger nor placement.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.liveness import Liveness
from nodetracker.cmd.commands.base import (
    NODE,
    DrawnCommand,
    ListCommand,
    ShowCommand,
)
from nodetracker.cmd.screen.lines import BLANK, Line, make_line
from nodetracker.cmd.screen.node_details import (
    MAX_CHANGES,
    draw_description,
)
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal, safe_text, wrap_text
from nodetracker.model.change import EventKind
from nodetracker.model.errors import PlacementError
from nodetracker.model.listing import HistoryQuery, WarningQuery
from nodetracker.usecases.reads import (
    find_agent,
    find_node,
    name_guests,
    read_consistently,
    read_items,
)
from nodetracker.views.description import (
    NodeDescription,
    describe_node,
    render_description,
)
from nodetracker.views.drift import DRIFT_COLUMNS, compare_usage, explain_usage
from nodetracker.views.history import Names

if TYPE_CHECKING:
    from nodetracker.accounting.placement.comparison import ClassUsage
    from nodetracker.ports import ReadingStore


class DescribeNode(DrawnCommand, ShowCommand):
    example = "node describe compute-1"
    arguments = NODE

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        return render_description(
            _describe(self.reader, self.read_liveness(), args.host, args.nodename)
        )

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        described, names = read_description(
            self.reader, self.read_liveness(), args.host, args.nodename
        )
        return draw_description(described, names, terminal)


def read_description(
    reader: "ReadingStore", liveness: Liveness, host: str, nodename: str | None
) -> tuple[NodeDescription, Names]:
    """Return a node as ``node describe`` has it, and the names of guests in its changes."""
    described = _describe(reader, liveness, host, nodename)
    query = HistoryQuery(host=host, nodename=described.record.nodename)
    return described, name_guests(reader, query, described.changes[::-1])


def _describe(
    reader: "ReadingStore", liveness: Liveness, host: str, nodename: str | None
) -> NodeDescription:
    record = read_consistently(reader, find_node(reader, host, nodename))
    warnings = read_items(
        reader.list_warning_page, WarningQuery(host=host, is_resolved=False, is_silenced=False)
    )
    kinds = (EventKind.NODE,)  # claims and warnings have sections of their own
    query = HistoryQuery(host=host, nodename=record.nodename, kinds=kinds, limit=MAX_CHANGES)
    changes = reader.list_history_page(query).items
    loss = next(iter(reader.list_tolerances(host)), None)
    return describe_node(record, find_agent(reader, host), liveness, warnings, changes, loss)


class DiffNode(ListCommand):
    example = "node diff compute-1"
    arguments = NODE

    columns = (*DRIFT_COLUMNS[:4], "placement", *DRIFT_COLUMNS[4:])
    layout = (
        Column("resource", ("resource",)),
        Column("row", ("row_used", "resource"), Kind.RESOURCE),
        Column("claims and guests", ("ledger", "resource"), Kind.RESOURCE),
        Column("hypervisor", ("hypervisor", "resource"), Kind.RESOURCE),
        Column("placement", ("placement", "resource"), Kind.RESOURCE, 1),
        Column("difference", ("difference", "resource"), Kind.RESOURCE),
    )
    _sentences: Sequence[str] = ()

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        record = read_consistently(self.reader, find_node(self.reader, args.host, args.nodename))
        usage = read_usage(self.app, record.uuid)
        lines = compare_usage(record)
        self._sentences = explain_usage(record, lines)
        rows = [line.as_row() | {"placement": None} for line in lines]
        for row in rows:
            entry = usage.get(row["resource"])
            if entry is not None:
                others = [f"{key} in placement +{held}" for key, held in entry.others.items()]
                causes = ", ".join(filter(None, (row["workloads"], *others)))
                row |= {"placement": entry.own, "workloads": causes}
        return rows

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Explain the differences below the table."""
        code = super().run(parsed_args)
        if parsed_args.formatter == "table":
            terminal = detect_terminal(self.app.stdout)
            Screen(self.app.stdout, terminal).show(_draw_advice(self._sentences, terminal))
        return code


def _draw_advice(sentences: Sequence[str], terminal: Terminal) -> list[Line]:
    """Return a blank line and the sentences, each as a paragraph; nothing without sentences."""
    lines: list[Line] = [BLANK] if sentences else []
    for sentence in sentences:
        texts = wrap_text(safe_text(sentence, terminal.has_unicode), terminal.width - 2)
        lines += (
            make_line("- " if number == 0 else "  ", text) for number, text in enumerate(texts)
        )
    return lines


def read_usage(app: Any, uuid: str) -> "dict[str, ClassUsage]":
    """Return the usage of each class; nothing if placement is not used or cannot be read."""
    if not app.conf.placement.enabled:
        return {}
    from nodetracker.accounting.placement.comparison import sum_usage
    from nodetracker.bootstrap.clients import build_placement_client
    from nodetracker.placement.client import read_tree

    client = build_placement_client(app.conf)
    try:
        return sum_usage(read_tree(client, uuid), uuid)
    except PlacementError as error:
        app.stderr.write(f"placement is not compared: {error}\n")
        return {}
