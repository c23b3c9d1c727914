"""claim create, list, show, confirm, abort, renew."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import require_active, require_amounts
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.reports.claims import render_admission, render_claim
from nodetracker.accounting.validator import parse_json
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    columns_of,
    uuid_argument,
)
from nodetracker.cmd.commands.dry_run import show_admission
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_node, read_items
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest, ClaimState
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.text import render_file_error
from nodetracker.process.daemon import EXIT_FAILED

COLUMNS = (
    "uuid", "workload_uuid", "kind", "state", "host", "nodename", "vcpus", "memory_mb", "disk_gb",
    "expires_at", "reason", "pcpus", "resources", "devices",
)  # fmt: skip


_MOST_CHARACTERS = 1024 * 1024
"""Limit of a request's file."""


class CreateClaim(ShowCommand):
    """Claim a workload's resources on a node, or show why the claim is refused."""

    example = "claim create request.json --host compute-1 --dry-run"

    _is_refused = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the request, the host and the node."""
        parser = super().get_parser(prog_name)
        add_request(parser, "the best candidate's")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="Write nothing; show the amounts of each resource and whether the claim fits.",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Create the claim and show it, or show the result of a dry run."""
        request = parse_claim_request(read_json(parsed_args.file))
        request = with_target(request, parsed_args)
        require_amounts(request)
        if request.host is None:
            return self._schedule(request, parsed_args.dry_run)
        record = find_node(self.store, request.host, request.nodename)
        host, nodename = record.host, record.nodename
        if not parsed_args.dry_run:
            return show(
                require_active(self.store.create_claim(request, host, nodename, self.policy))
            )
        return self._show_answer(
            host, nodename, self.store.try_claim(request, host, nodename, self.policy)
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; a dry run that does not fit has the exit code of a refusal."""
        code = int(super().run(parsed_args))
        return EXIT_FAILED if self._is_refused else code

    def _schedule(self, request: ClaimRequest, is_dry_run: bool) -> tuple[Any, Any]:
        """Claim on the best candidate, or show the result of a dry run on it."""
        scheduler = self.scheduler
        if not is_dry_run:
            return show(require_active(scheduler.create_claim(request)))
        candidate, answer = scheduler.try_claim(request)
        return self._show_answer(candidate.host, candidate.nodename, answer)

    def _show_answer(self, host: str, nodename: str, answer: Admission) -> tuple[Any, Any]:
        self._is_refused = bool(answer.reasons)
        return show_admission(render_admission(host, nodename, answer))


class ListClaims(ListCommand):
    """List active claims, oldest first."""

    example = "claim list --host compute-1"

    layout = (
        Column("uuid", ("uuid",)),
        Column("state", ("state",), Kind.STATE),
        Column("kind", ("kind",), Kind.TEXT, 7),
        Column("workload", ("workload_uuid",), Kind.TEXT, 4),
        Column("host", ("host",), Kind.FLEXIBLE),
        Column("node", ("nodename",), Kind.FLEXIBLE, 3, same_as="host"),
        Column("cpu", ("vcpus",), Kind.NUMBER, 1),
        Column("pcpu", ("pcpus",), Kind.COUNT, 1),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("further", ("resources", "devices"), Kind.FURTHER, 2, least=12),
        Column("disk", ("disk_gb",), Kind.GIB, 5),
        Column("expires", ("expires_at",), Kind.MOMENT, 2, is_deadline=True),
        Column("reason", ("reason",), Kind.TEXT, 6),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the filters."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only claims on this host.")
        parser.add_argument(
            "--state",
            choices=[state.value for state in ClaimState],
            help="Only claims in this state.",
        )
        parser.add_argument("--all", action="store_true", help="Also released claims.")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the claims."""
        states: tuple[ClaimState, ...] = () if parsed_args.all else ACTIVE_STATES
        if parsed_args.state:
            states = (ClaimState(parsed_args.state),)
        query = ClaimQuery(host=parsed_args.host, states=states)
        claims = read_items(self.reader.list_claim_page, query)
        return columns_of([render_claim(claim) for claim in claims], COLUMNS)


class OneClaim(ShowCommand):
    """Base of commands on one claim."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the claim's uuid."""
        parser = super().get_parser(prog_name)
        parser.add_argument("uuid", metavar="UUID", type=uuid_argument)
        return parser


class ShowClaim(OneClaim):
    """Show one claim."""

    example = "claim show 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the claim."""
        found = self.reader.list_claim_page(ClaimQuery(uuid=parsed_args.uuid)).items
        if not found:
            raise NotFoundError(f"no such claim: {parsed_args.uuid}")
        return show(found[0])


class ConfirmClaim(OneClaim):
    """Confirm a claim: its guest exists."""

    example = "claim confirm 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Confirm the claim."""
        return show(self.store.confirm_claim(parsed_args.uuid))


class AbortClaim(OneClaim):
    """Release a claim; a claim that is released already is not changed."""

    example = "claim abort 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Release the claim."""
        return show(self.store.abort_claim(parsed_args.uuid))


class RenewClaim(OneClaim):
    """Renew a held claim: it expires [compute] claim_timeout seconds from now."""

    example = "claim renew 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Renew the claim."""
        return show(self.store.renew_claim(parsed_args.uuid, self.policy))


def add_request(parser: argparse.ArgumentParser, default_host: str) -> None:
    """Add a request, the host and the node to a command's arguments."""
    parser.add_argument("file", metavar="FILE", help="The request as JSON; - reads stdin.")
    parser.add_argument(
        "--host", help=f"Host instead of the request's; if neither names one, {default_host}."
    )
    parser.add_argument(
        "--node", metavar="N", help="Nodename; required if the host has several nodes."
    )


def with_target(request: ClaimRequest, parsed_args: argparse.Namespace) -> ClaimRequest:
    """Return a request with the command line's host and node, if any."""
    return replace(
        request,
        host=parsed_args.host or request.host,
        nodename=parsed_args.node or request.nodename,
    )


def read_json(name: str) -> object:
    """Read a JSON file, or standard input for ``-``.

    Raises:
        RequestError: it cannot be read, is too long or not valid JSON.
    """
    try:
        if name == "-":
            text = sys.stdin.read(_MOST_CHARACTERS + 1)
        else:
            with Path(name).open(encoding="utf-8") as file:
                text = file.read(_MOST_CHARACTERS + 1)
    except (OSError, UnicodeError) as error:
        raise RequestError(name, f"cannot be read: {render_file_error(error)}") from error
    if len(text) > _MOST_CHARACTERS:
        raise RequestError(name, f"has more than {_MOST_CHARACTERS} characters")
    return parse_json(text, name)


def show(claim: Claim) -> tuple[Any, Any]:
    """Return one claim in cliff's format."""
    row = render_claim(claim)
    return tuple(row), tuple(row.values())
