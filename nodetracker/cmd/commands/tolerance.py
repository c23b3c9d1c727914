"""fleet tolerance."""

import argparse
from collections.abc import Iterable
from math import comb
from typing import Any

from nodetracker.cmd.commands.base import ListCommand, argument
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.cmd.screen.terminal import safe_text
from nodetracker.model.text import count_noun, natural_key
from nodetracker.model.tolerance import HostTolerance, Verdict
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED
from nodetracker.views.tolerance import describe_tolerance, render_tolerance, worst_verdict


def _parse_trait(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a trait, got ''")
    return text


class ShowTolerance(ListCommand):
    details = """
    For each host that is up, whether all its guests would fit on the others by the ledger's rule;
    hosts that are down already count as lost. Nothing is claimed. Exit code 1: a loss is not
    survived or not known, or no host is up. --failures 2 takes all pairs of hosts, or of more
    than 1,000 those whose guests ask for the most of what the others have left.
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
        argument(
            "--trait",
            type=_parse_trait,
            help="Only hosts with TRAIT, and their guests that require it.",
        ),
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
        self.app.stderr.write(f"{safe_text(_describe(found, check.hosts, args))}\n")
        is_survived = bool(found) and worst_verdict(found) is Verdict.SURVIVED
        self.exit_code = EXIT_DONE if is_survived else EXIT_FAILED
        return [_render(item) for item in found]


def _describe(found: list[HostTolerance], hosts: list[str], args: argparse.Namespace) -> str:
    """Return the answer in a sentence.

    Args:
        hosts: all that are up.
    """
    if args.trait:
        losses, nothing = f"any one host with {args.trait}", f"No host that is up has {args.trait}"
    elif args.failures == 1:
        losses, nothing = "any one host", "No host is up"
    else:
        nothing = f"Only {len(hosts)} host is up" if hosts else "No host is up"
        losses = "any two hosts"
        if len(found) < comb(len(hosts), 2):
            losses = f"any of the {count_noun(len(found), 'pair')} of hosts that need the most"
    return describe_tolerance(found, losses) if found else nothing


def _render(item: HostTolerance) -> dict[str, Any]:
    shown = render_tolerance(item)
    plan = shown["plan"]
    reasons = dict.fromkeys(guest["reason"] for guest in plan["lost"])
    guests = len(plan["guests"]) + len(plan["lost"])
    return {**shown, "guests": guests, "reason": "; ".join(reasons)}
