"""fleet tolerance."""

import argparse
from collections.abc import Iterable
from typing import Any

from nodetracker.cmd.commands.base import ListCommand, argument
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import safe_text
from nodetracker.model.text import count_noun, natural_key
from nodetracker.model.tolerance import HostTolerance, Verdict
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED
from nodetracker.views.tolerance import describe_tolerance, render_tolerance, worst_verdict


class ShowTolerance(ListCommand):
    details = """
    For each host that is up, whether all its guests would fit on the others by the ledger's rule;
    hosts that are down already count as lost. Nothing is claimed. Exit code 1: a loss is not
    survived, or it is not known. --failures 2 takes the pairs of hosts whose guests ask for the
    most of what the others have left, at most 1,000; other pairs are not considered.
    """
    example = "fleet tolerance --trait HW_CPU_X86_AVX512F"

    columns = ("host", "verdict", "guests", "lost", "reason")
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("loss is", ("verdict",), Kind.TEXT),
        Column("guests", ("guests",), Kind.COUNT, 2),
        Column("without a place", ("lost",), Kind.FLEXIBLE),
        Column("reason", ("reason",), Kind.FLEXIBLE, 1),
    )
    arguments = (
        argument("--failures", type=int, choices=(1, 2), default=1, help="Hosts lost at once."),
        argument("--trait", help="Only hosts with TRAIT, and their guests that require it."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        from nodetracker.usecases.tolerance import ToleranceCheck

        if args.trait and args.failures > 1:
            self.parser.error("argument --trait: not allowed with --failures 2")
        check = ToleranceCheck(self.app.open_sql_store(is_read_only=True), self.policy)
        answers: Iterable[HostTolerance]
        if args.trait:
            answers = check.check_trait(args.trait)
        elif args.failures > 1:
            answers = check.check_pairs()
        else:
            answers = check.check()
        found = sorted(
            answers, key=lambda item: (item.verdict is Verdict.SURVIVED, natural_key(item.host))
        )
        self._say(found, args)
        is_survived = worst_verdict(found) is Verdict.SURVIVED
        self.exit_code = EXIT_DONE if is_survived else EXIT_FAILED
        return [_render(item) for item in found]

    def _say(self, found: list[HostTolerance], args: argparse.Namespace) -> None:
        losses = "any one host"
        if args.failures > 1:
            losses = f"any of the {count_noun(len(found), 'pair')} of hosts that need the most"
        elif args.trait:
            losses += f" with {args.trait}"
        text = describe_tolerance(found, losses)
        if args.trait and not found:
            text = f"No host that is up has {args.trait}"
        self.app.stderr.write(f"{safe_text(text)}\n")


def _render(item: HostTolerance) -> dict[str, Any]:
    shown = render_tolerance(item)
    plan = shown["plan"]
    reasons = dict.fromkeys(guest["reason"] for guest in plan["lost"])
    guests = len(plan["guests"]) + len(plan["lost"])
    return {**shown, "guests": guests, "reason": "; ".join(reasons)}
