"""The options --since, --until and --limit, and the lines of the history that they select."""

import argparse
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from nodetracker.cmd.commands.base import StoreCommand, argument
from nodetracker.model.change import HistoryEntry
from nodetracker.model.listing import HistoryQuery
from nodetracker.usecases.reads import read_items

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

PERIOD = tuple(
    argument(
        f"--{which}",
        metavar="TIME",
        help=f"Only {which} a time (ISO 8601, UTC) or an age such as 90m, 12h, 7d.",
    )
    for which in ("since", "until")
)


def read_period(
    command: StoreCommand, args: argparse.Namespace, query: HistoryQuery
) -> list[HistoryEntry]:
    """Return the newest lines of a period, oldest first; say on stderr if there are others."""
    since, until = read_times(command, args)
    query = replace(query, since=since, until=until)
    found = list(islice(read_items(command.reader.list_history_page, query), args.limit + 1))
    if len(found) > args.limit:
        command.app.stderr.write(
            f"only the newest {args.limit} entries are shown; see more with --limit, or older ones "
            f"with --until {found[args.limit - 1].at:%Y-%m-%dT%H:%M:%SZ}\n"
        )
    return found[: args.limit][::-1]


def read_times(
    command: StoreCommand, args: argparse.Namespace
) -> tuple[datetime | None, datetime | None]:
    """Return the times of --since and --until; without one None. An invalid one exits with 2."""
    now = command.reader.now() if args.since or args.until else None
    try:
        since, until = (
            None if now is None or not text else _parse_time(text, now, option)
            for option, text in (("--since", args.since), ("--until", args.until))
        )
    except ValueError as error:
        command.parser.error(str(error))
    return since, until


def _parse_time(text: str, now: datetime, option: str) -> datetime:
    """Parse a time: ISO 8601, or an age such as ``90m``, ``12h`` or ``7d``.

    A time without an offset is UTC.

    Args:
        option: that has it, for the message of an error.

    Raises:
        ValueError: the text is neither.
    """
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return now - timedelta(**{unit: int(text[:-1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"argument {option}: invalid value {text!r}: expected a time such as 2026-01-31T12:00 "
            "or an age such as 12h"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
