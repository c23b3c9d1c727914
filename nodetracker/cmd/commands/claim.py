"""Commands on claims: create, list, show, confirm, abort and renew them, and list candidates."""

import argparse
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.accounting.ledger.claims import require_active, require_amounts
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.reports.claims import render_admission, render_candidate, render_claim
from nodetracker.accounting.reports.values import render_gib, render_mib
from nodetracker.accounting.validator import parse_json
from nodetracker.cmd.commands.base import (
    MOST_DIGITS,
    ListCommand,
    ShowCommand,
    columns_of,
    parse_limit,
    uuid_argument,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.bars import draw_candidates
from nodetracker.cmd.screen.lines import plain_text
from nodetracker.cmd.screen.table import Column, Kind, draw_table
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.fleet.reads import find_node, read_items
from nodetracker.fleet.scheduler import refuse
from nodetracker.model.claim import ACTIVE_STATES, DISK, MEMORY, Claim, ClaimRequest, ClaimState
from nodetracker.model.errors import NotFoundError, RequestError
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.text import render_file_error, render_value
from nodetracker.model.units import render_amount
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


def show_admission(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a dry run in cliff's format: JSON for programs, a line per item for people.

    Args:
        row: from `render_admission`.
    """
    cells = [] if row["numa"] is None else row["numa"]["cells"]
    shown = dict(row) | {
        "reasons": Lines(row["reasons"]),
        "numa": Lines(row["numa"], map(_render_line, cells)),
        "numa_reasons": Lines(row["numa_reasons"]),
        "resources": Lines(row["resources"], _draw_verdicts(row["resources"])),
        "pci": Lines(row["pci"], map(_render_line, row["pci"])),
    }
    return tuple(shown), tuple(shown.values())


def _draw_verdicts(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of what the claim requests: requested and free amounts, and whether they fit.

    >>> amounts = {"resource": "VCPU", "requested": 9.0, "free": 8.0, "limit": 8.0, "excess": None}
    >>> _draw_verdicts([amounts | {"fits": False}])[1]
    'VCPU          9     8      8  lacks 1'
    """
    rows = [_row_of_verdict(verdict) for verdict in verdicts if verdict["requested"]]
    columns = [
        Column("resource", ("resource",)),
        *(Column(name, (name,), Kind.NUMBER) for name in ("asked", "free", "limit")),
        Column("verdict", ("verdict",)),
    ]
    return plain_text(draw_table(columns, rows, Terminal(), None, is_complete=True)).splitlines()


def _row_of_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    resource, asked, free = verdict["resource"], verdict["requested"], verdict["free"]
    lacking = 0.0 if free is None else asked - free
    if verdict["fits"]:
        text = "fits"
    elif lacking > 0:
        text = f"lacks {_render_size(resource, lacking)}"
    else:
        text = f"larger than one claim may be, by {_render_size(resource, verdict['excess'])}"
    return {
        "resource": resource,
        "asked": _render_size(resource, asked),
        "free": _render_size(resource, free),
        "limit": _render_size(resource, verdict["limit"]),
        "verdict": text,
    }


def _render_size(resource: str, amount: float | None) -> str:
    if amount is None:
        return "unlimited"
    if resource in (MEMORY, DISK):
        return render_mib(amount) if resource == MEMORY else render_gib(amount)
    return render_amount(amount)


def _render_line(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {_render_value(value)}"
        for name, value in values.items()
        if value not in (None, [], {})
    )


def _render_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{_render_value(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(_render_value, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return render_amount(value) if isinstance(value, float) else str(value)


CANDIDATE_COLUMNS = ("host", "nodename", "weight", "free_vcpus", "free_memory_mb", "free_disk_gb")


class ListCandidates(ListCommand):
    """List the nodes that fit an instance with these resources, best first."""

    example = "candidate list --resource VCPU=2 --resource MEMORY_MB=4096"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the requested resources and traits."""
        self._parser = super().get_parser(prog_name)
        self._parser.add_argument(
            "--resource",
            action="append",
            default=[],
            type=parse_resource,
            metavar="CLASS=AMOUNT",
            help="Requested amount, such as VCPU=2, MEMORY_MB=4096, DISK_GB=20; may be repeated.",
        )
        self._parser.add_argument(
            "--trait",
            action="append",
            default=[],
            metavar="T",
            help="Trait that the node must have; may be repeated.",
        )
        self._parser.add_argument(
            "--limit", type=parse_limit, metavar="N", help="Maximum number of candidates."
        )
        return self._parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Draw the table format, unless columns are selected; other formats have the data."""
        if parsed_args.formatter != "table" or parsed_args.columns or parsed_args.long:
            return int(super().run(parsed_args))
        names, found = self.take_action(parsed_args)
        screen = self.find_screen(parsed_args)
        rows = [dict(zip(names, row, strict=True)) for row in found]
        screen.show(draw_candidates(rows, screen.terminal))
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Evaluate all nodes."""
        request = self._read_request(parsed_args)
        scheduler = self.scheduler
        found = scheduler.select(request, parsed_args.limit)
        if not found:
            raise refuse(request, scheduler.explain(request))
        return columns_of([render_candidate(candidate) for candidate in found], CANDIDATE_COLUMNS)

    def _read_request(self, parsed_args: argparse.Namespace) -> ClaimRequest:
        """Build the request; an invalid one is a usage error."""
        resources: dict[str, int] = {}
        for name, amount in parsed_args.resource:
            if name in resources:
                self._parser.error(f"argument --resource: duplicate resource class {name}")
            resources[name] = amount
        body = {
            "workload": {"uuid": str(uuid.uuid4())},
            "resources": resources,
            "required_traits": parsed_args.trait,
        }
        try:
            return parse_claim_request(body)
        except RequestError as error:
            self._parser.error(str(error))


def parse_resource(text: str) -> tuple[str, int]:
    """Parse ``CLASS=AMOUNT``.

    Raises:
        ArgumentTypeError: the text has another format.
    """
    name, _, amount = text.partition("=")
    if not name or not amount.isdecimal() or len(amount) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(
            f"invalid value {render_value(text)}: expected CLASS=AMOUNT such as VCPU=2"
        )
    return name, int(amount)
