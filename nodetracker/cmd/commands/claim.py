"""Commands on claims: create, list, show, confirm, abort and renew them, and list candidates."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nodetracker.accounting.ledger.exclusions import refuse
from nodetracker.accounting.ledger.request import (
    build_candidate_request,
    parse_claim_request,
    parse_claim_requests,
    parse_pci,
    parse_resources,
)
from nodetracker.accounting.validator import parse_json
from nodetracker.cmd.commands.base import (
    UUID,
    Argument,
    DrawnCommand,
    ListCommand,
    ShowCommand,
    argument,
    flag,
    node_arguments,
    parse_amount,
    parse_limit,
    uuid_argument,
)
from nodetracker.cmd.commands.formats import Lines
from nodetracker.cmd.screen.candidates import (
    draw_admission,
    draw_candidates,
    draw_verdicts,
    render_line,
)
from nodetracker.cmd.screen.lines import Line
from nodetracker.cmd.screen.output import Screen
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal, safe_text
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimRequest, ClaimState, Migration
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    NodetrackerError,
    NotFoundError,
    RefusedError,
    RequestError,
)
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.serializer import list_names
from nodetracker.model.text import natural_key, render_file_error
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED
from nodetracker.usecases.adoption import adopt_guest
from nodetracker.usecases.reads import read_items
from nodetracker.views.claims import (
    CLAIM_COLUMNS,
    describe_count,
    explain_error,
    explain_reasons,
    render_admission,
    render_candidate,
    render_claim,
)

T = TypeVar("T", bound=Claim | Migration)

_COLUMNS = list_names(CLAIM_COLUMNS)

_MAX_CHARACTERS = 1024 * 1024
"""Limit of a file."""


def request_arguments(default_host: str, **of_file: Any) -> tuple[Argument, ...]:
    """Return the arguments of a request: its file, the host and the node.

    Args:
        of_file: further options of the argument FILE.
    """
    hint = f"Host instead of the request's; if neither names one, {default_host}."
    return (
        argument("file", metavar="FILE", help="The request as JSON; - reads stdin.", **of_file),
        *node_arguments(of_host=hint),
    )


class RequestCommand(ShowCommand):
    """Base of commands that claim: a refusal is an error, and an object in JSON and YAML."""

    required_names = ()

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the names of the fields and their values."""
        try:
            return super().take_action(parsed_args)
        except (ClaimRefusedError, ClaimConflictError) as error:
            reasons = list(error.reasons) if isinstance(error, ClaimRefusedError) else [str(error)]
            if parsed_args.formatter in ("json", "yaml"):
                parsed_args.columns = []
                self.produce_output(parsed_args, ("code", "reasons"), (error.code, reasons))
            if isinstance(error, ClaimConflictError):
                raise
            raise put_in_words(error, parsed_args) from None

    def check_list(self, args: argparse.Namespace, noun: str) -> None:
        """End with a usage error if a list of requests comes with options that it cannot have.

        Args:
            noun: as in `show_outcomes`.
        """
        if args.host or args.nodename:
            self.parser.error("argument FILE: a list allows neither --host nor --node")
        self.check_columns(args, ("granted", "refused", noun))

    def show_outcomes(
        self,
        noun: str,
        requests: Sequence[ClaimRequest],
        outcomes: Sequence[T | NodetrackerError],
        render: Callable[[T], dict[str, Any]],
    ) -> Mapping[str, Any]:
        """Return the fields of a list of requests, and set the exit code by the refused ones.

        Args:
            noun: what is granted.
        """
        rows, lines, refused = [], [], 0
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, NodetrackerError):
                refused += 1
                row = _render_refusal(request, outcome)
                name, answer = request.workload.name, explain_error(outcome)
            else:
                row = render(outcome)
                name, answer = row["workload_name"], " ".join(outcome.places[-1])
            rows.append(row)
            lines.append(f"{row['uuid']}  {safe_text(name or request.workload.uuid)}  {answer}")
        self.exit_code = EXIT_FAILED if refused else EXIT_DONE
        return {"granted": len(rows) - refused, "refused": refused, noun: Lines(rows, lines)}


class CreateClaim(RequestCommand):
    details = """
    A file with a list of requests claims for each of them. --adopt claims what a guest without
    a claim uses, and confirms the claim.
    """
    example = "claim create request.json --host compute-1 --dry-run"

    arguments = (
        *request_arguments("the best candidate's", nargs="?"),
        argument(
            "--adopt", metavar="UUID", type=uuid_argument, help="Guest to adopt, instead of FILE."
        ),
        flag(
            "--dry-run",
            "Write nothing; show the amounts of each resource and whether the claim fits, or of a "
            "list what each request would get after those before it.",
        ),
    )

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        if args.adopt:
            if args.file or args.host or args.nodename or args.dry_run:
                self.parser.error("argument --adopt: cannot be combined with other arguments")
            self.check_columns(args, _COLUMNS)
            return render_claim(adopt_guest(self.store, self.scheduler, args.adopt))
        if not args.file:
            self.parser.error("one of the arguments FILE and --adopt is required")
        body = read_json(args.file)
        if isinstance(body, list):
            return self._create_all(args, body)
        request = parse_request(args, body)
        if not args.dry_run:
            self.check_columns(args, _COLUMNS)
            return render_claim(self.scheduler.create_claim(request))
        host, nodename, answer = self.scheduler.try_claim(request)
        self.exit_code = EXIT_FAILED if answer.reasons else EXIT_DONE
        return show_admission(render_admission(host, nodename, answer))

    def _create_all(self, args: argparse.Namespace, body: list[object]) -> Mapping[str, Any]:
        self.check_list(args, "claims")
        requests = parse_claim_requests({"claims": body})
        create = self.scheduler.try_claims if args.dry_run else self.scheduler.create_claims
        return self.show_outcomes("claims", requests, create(requests), render_claim)


def _render_refusal(request: ClaimRequest, error: Exception) -> dict[str, Any]:
    """Return a request of a list that was not granted."""
    return {
        "uuid": request.uuid,
        "workload_uuid": request.workload.uuid,
        "error": str(error),
        "code": getattr(error, "code", None),
        "reasons": list(getattr(error, "reasons", ())),
    }


class ListClaims(ListCommand):
    example = "claim list --host compute-1"

    columns = _COLUMNS
    layout = (
        Column("uuid", ("uuid",)),
        Column("state", ("state",), Kind.STATE),
        Column("kind", ("kind",), Kind.TEXT, 7),
        Column("workload", ("workload_name", "workload_uuid"), Kind.NAMED, 4),
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, 3, same_as="host"),
        Column("cpu", ("vcpus",), Kind.COUNT, 1),
        Column("pcpu", ("pcpus",), Kind.FEW, 1),
        Column("memory", ("memory_mb",), Kind.MIB, 1),
        Column("further", ("resources", "devices"), Kind.FURTHER, 2, least=12),
        Column("disk", ("disk_gb",), Kind.GIB, 5),
        Column("expires", ("expires_at",), Kind.MOMENT, 2, is_deadline=True),
        Column("reason", ("reason",), Kind.TEXT, 6),
    )
    arguments = (
        argument("--host", help="Only claims on this host."),
        argument("--state", choices=list(map(str, ClaimState)), help="Only claims in this state."),
        flag("--all", "Also released claims."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        states: tuple[ClaimState, ...] = () if args.all else ACTIVE_STATES
        if args.state:
            states = (ClaimState(args.state),)
        query = ClaimQuery(host=args.host, states=states)
        return map(render_claim, read_items(self.reader.list_claim_page, query))


class ShowClaim(ShowCommand):
    example = "claim show 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        found = self.reader.list_claim_page(ClaimQuery(uuid=args.uuid)).items
        if not found:
            raise NotFoundError(f"no such claim: {args.uuid}")
        return render_claim(found[0])


class ConfirmClaim(ShowCommand):
    example = "claim confirm 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, _COLUMNS)
        return render_claim(self.store.confirm_claim(args.uuid))


class AbortClaim(ShowCommand):
    details = """
    Of several, or those of a file, each has its own answer: one that is refused keeps no
    other back.
    """
    example = "claim abort 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (
        argument("uuids", metavar="UUID", type=uuid_argument, nargs="*"),
        argument(
            "--file", help="Also the claims whose UUIDs this file lists, one a line; - reads stdin."
        ),
    )

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        if not args.uuids and args.file is None:
            self.parser.error("one of the arguments UUID and --file is required")
        if args.file is None and len(args.uuids) == 1:
            self.check_columns(args, _COLUMNS)
            return render_claim(self.store.abort_claim(*args.uuids))
        self.check_columns(args, ("released", "refused", "claims"))
        listed = [] if args.file is None else read_text(args.file).split()
        rows, lines = [], []
        for uuid in dict.fromkeys([*args.uuids, *map(uuid_argument, listed)]):
            try:
                row = render_claim(self.store.abort_claim(uuid))
                line = "{state} ({reason})".format(**row)
            except (NotFoundError, RefusedError) as error:
                row, line = {"uuid": uuid, "error": str(error)}, str(error)
            rows.append(row)
            lines.append(f"{safe_text(uuid)}  {line}")
        refused = sum("error" in row for row in rows)
        self.exit_code = EXIT_FAILED if refused else EXIT_DONE
        return {
            "released": len(rows) - refused, "refused": refused, "claims": Lines(rows, lines)
        }  # fmt: skip


class RenewClaim(ShowCommand):
    example = "claim renew 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, _COLUMNS)
        return render_claim(self.store.renew_claim(args.uuid, self.policy))


def put_in_words(error: ClaimRefusedError, args: argparse.Namespace) -> ClaimRefusedError:
    """Return a refusal with its amounts in binary units if people read the output.

    Programs get the ledger's sentences.
    """
    if args.formatter != "table":
        return error
    return type(error)([reason["text"] for reason in explain_reasons(error)], error.checks)


def parse_request(args: argparse.Namespace, body: object) -> ClaimRequest:
    """Parse a request, with the host and node of `request_arguments`, if any."""
    request = parse_claim_request(body)
    return replace(
        request, host=args.host or request.host, nodename=args.nodename or request.nodename
    )


def read_json(name: str) -> object:
    """Read a JSON file, or standard input for ``-``.

    Raises:
        RequestError: it cannot be read, is too long or not valid JSON.
    """
    return parse_json(read_text(name), name)


def read_text(name: str) -> str:
    """Read a file, or standard input for ``-``.

    Raises:
        RequestError: it cannot be read or is too long.
    """
    try:
        if name == "-":
            text = sys.stdin.read(_MAX_CHARACTERS + 1)
        else:
            with Path(name).open(encoding="utf-8") as file:
                text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeError) as error:
        raise RequestError(name, f"cannot be read: {render_file_error(error)}") from error
    if len(text) > _MAX_CHARACTERS:
        raise RequestError(name, f"has more than {_MAX_CHARACTERS} characters")
    return text


def show_admission(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dry run: JSON for programs, a line per item for people.

    Args:
        row: from `render_admission`.
    """
    fields = {name: value for name, value in row.items() if name != "explanations"}
    cells = [] if row["numa"] is None else row["numa"]["cells"]
    return fields | {
        "reasons": Lines(row["reasons"], [reason["text"] for reason in row["explanations"]]),
        "numa": Lines(row["numa"], map(render_line, cells)),
        "numa_reasons": Lines(row["numa_reasons"], ()),  # reasons has them
        "resources": Lines(row["resources"], draw_verdicts(row["resources"])),
        "pci": Lines(row["pci"], map(render_line, row["pci"])),
    }


_OPTIONS = {"resources": "--resource", "required": "--trait"}
"""Field of `build_candidate_request` -> its option, if that has another name."""


def _repeated(name: str, metavar: str, text: str) -> Argument:
    text = f"{text}; may be repeated."
    return argument(name, action="append", default=[], metavar=metavar, help=text)


class ListCandidates(DrawnCommand, ListCommand):
    example = "candidate list --resource VCPU=8 --resource MEMORY_MB=32GiB --pci gpu"

    columns = (
        "host", "nodename", "weight", "free_vcpus", "free_memory_mb", "free_disk_gb", "left",
        "count",
    )  # fmt: skip
    arguments = (
        _repeated(
            "--resource",
            "CLASS=AMOUNT",
            "Requested amount, such as VCPU=2, MEMORY_MB=32GiB, DISK_GB=20",
        ),
        argument("--pcpu", type=parse_amount, metavar="N", help="Requested CPUs to pin."),
        _repeated("--pci", "ALIAS[=N]", "Requested PCI devices of an alias, one if N is left out"),
        argument(
            "--numa-cells",
            type=parse_limit,
            metavar="N",
            help="NUMA cells over which CPUs and memory are split evenly.",
        ),
        argument("--page-size", metavar="SIZE", help="Memory pages: small, large, any, 2MB, 1GB."),
        argument("--project", metavar="ID", help="Project of the instance."),
        _repeated("--trait", "T", "Trait that the node must have"),
        argument("--limit", type=parse_limit, metavar="N", help="Maximum number of candidates."),
        flag("--count", "Count how many of these fit on each node, and in the whole fleet."),
        argument(
            "--why",
            metavar="HOST[/NODENAME]",
            help="Show instead why it fits a host's nodes or not.",
        ),
    )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List the candidates, or explain one host."""
        if parsed_args.why is None:
            return super().run(parsed_args)
        if not self.is_drawn(parsed_args):
            self.parser.error("--why requires the format table; claim create --dry-run has others")
        from nodetracker.usecases.candidates import evaluate_named

        request = self._read_request(parsed_args)
        found = evaluate_named(self.reader, self.scheduler, request, parsed_args.why)
        if not found:
            raise NotFoundError(f"no such host or node: {parsed_args.why}")
        terminal = detect_terminal(self.app.stdout)
        for place in sorted(found, key=lambda place: [*map(natural_key, place[:2])]):
            Screen(self.app.stdout, terminal).show(draw_admission(render_admission(*place)))
        return EXIT_DONE if any(not answer.reasons for _, _, answer in found) else EXIT_FAILED

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        request = self._read_request(args)
        scheduler = self.scheduler
        found = scheduler.select(request, args.limit, of_all=True)
        if not found:
            raise put_in_words(refuse(request, scheduler.explain(request)), args)
        count = scheduler.count(request, found) if args.count else None
        if count is not None:
            self.app.stderr.write(f"{describe_count(count)}\n")
        return [render_candidate(node, count) for node in found]

    def draw(self, args: argparse.Namespace, terminal: Terminal) -> list[Line]:
        return draw_candidates(self.list_rows(args), terminal)

    def _read_request(self, args: argparse.Namespace) -> ClaimRequest:
        """Build the request; an invalid one is a usage error."""
        try:
            return build_candidate_request(
                parse_resources(args.resource, "="),
                parse_pci(args.pci, "="),
                {**vars(args), "required": args.trait},
            )
        except RequestError as error:
            name, _, rest = error.path.partition(".")
            option = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
            self.parser.error(f"argument {option}: {rest and rest + ': '}{error.reason}")
