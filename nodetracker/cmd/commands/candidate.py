"""candidate list."""

import argparse
import uuid
from typing import Any

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.reports.claims import render_candidate
from nodetracker.cmd.commands.base import (
    MOST_DIGITS,
    ListCommand,
    columns_of,
    parse_limit,
)
from nodetracker.cmd.screen.bars import draw_candidates
from nodetracker.fleet.scheduler import refuse
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.errors import RequestError
from nodetracker.model.text import render_value

COLUMNS = ("host", "nodename", "weight", "free_vcpus", "free_memory_mb", "free_disk_gb")


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
        return columns_of([render_candidate(candidate) for candidate in found], COLUMNS)

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
