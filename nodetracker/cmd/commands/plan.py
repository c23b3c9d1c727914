"""host plan."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodetracker.accounting.ledger.departures import HostPlan
from nodetracker.cmd.commands.base import ListCommand, argument, flag
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import safe_text
from nodetracker.model.claim import MigrationType
from nodetracker.model.errors import ConflictError, RequestError
from nodetracker.model.text import count_noun
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED
from nodetracker.views.plans import describe_plan, is_requestable, list_guests, render_moves

_TYPES = [MigrationType.MIGRATION.value, MigrationType.EVACUATION.value]


class PlanHosts(ListCommand):
    details = """
    The ledger's rule decides for all guests of the hosts together, on copies: nothing is claimed.
    Exit code 1: something fits nowhere, or cannot be planned. --file writes the moves of guests
    with a claim as a list for 'migration create', which claims their destinations.
    """
    example = "host plan compute-5 --file plan.json"

    columns = (
        "workload_uuid", "workload_name", "kind", "from_host", "from_nodename", "to_host",
        "to_nodename", "reason", "claim_uuid", "is_derived",
    )  # fmt: skip
    layout = (
        Column("workload", ("workload_name",), Kind.NAME, least=10),
        Column("kind", ("kind",), Kind.TEXT, 4),
        Column("from", ("from_host",), Kind.NAME, 3, least=13),
        Column("node", ("from_nodename",), Kind.NAME, 5, same_as="from"),
        Column("to", ("to_host",), Kind.NAME, 2, least=10),
        Column("node", ("to_nodename",), Kind.NAME, 5, same_as="to"),
        Column("reason", ("reason",), Kind.FLEXIBLE, 1, least=16),
    )
    arguments = (
        argument("hosts", metavar="HOST", nargs="+", help="Host that is to be empty."),
        argument(
            "--type",
            choices=_TYPES,
            default=_TYPES[0],
            help="Type of the moves; only an evacuation uses spare hosts.",
        ),
        argument("--file", type=Path, help="File to write the moves to, as JSON."),
        flag("--force", "Replace an existing file."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        from nodetracker.bootstrap.settings import build_scheduler_settings
        from nodetracker.usecases.plans import HostPlanner

        settings = build_scheduler_settings(self.app.conf)
        planner = HostPlanner(self.app.store, self.policy, settings)
        plan = planner.plan(args.hosts, migration_type=MigrationType(args.type))
        self.exit_code = EXIT_DONE if plan.fits else EXIT_FAILED
        if args.file:
            self._write(args, plan)
        self.app.stderr.write(f"{describe_plan(plan)}\n")
        return [_name(row) for row in list_guests(plan)]

    def _write(self, args: argparse.Namespace, plan: HostPlan) -> None:
        moves = render_moves(plan, MigrationType(args.type))
        try:
            with args.file.open("w" if args.force else "x") as file:
                file.write(json.dumps(moves, indent=1) + "\n")
        except FileExistsError:
            raise ConflictError(f"{args.file} exists; --force replaces it") from None
        except OSError as error:
            raise RequestError(str(args.file), f"cannot be written: {error.strerror}") from error
        left_out = [move.departure for move in plan.moves if not is_requestable(move)]
        self.app.stderr.write(f"{args.file}: {count_noun(len(moves), 'move')}\n")
        for departure in left_out:
            workload = departure.request.workload
            why = "adopt it first" if departure.claim_uuid is None else "no alias names its devices"
            name = (
                f"{safe_text(workload.name)} ({workload.uuid})" if workload.name else workload.uuid
            )
            self.app.stderr.write(f"left out: {name}: {why}\n")


def _name(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "workload_name": row["workload_name"] or row["workload_uuid"]}
