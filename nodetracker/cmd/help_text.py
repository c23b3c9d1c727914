"""Text of help and of usage errors of nodetracker-manage.

Summaries are read from the source of commands, because to import all of them takes
longer than a person wants to wait for help.
"""

import ast
import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from nodetracker.cmd.screen.streams import draw_error
from nodetracker.process.daemon import EXIT_USAGE

_COMMANDS = Path(__file__).parent / "commands"
_SIMILARITY = 0.6


def read_summary(place: str) -> str:
    """Return the first line of a command's docstring, without its full stop.

    Args:
        place: module and class, as ``node:ListNodes``.
    """
    module, _, name = place.partition(":")
    return _read_summaries(module)[name]


def list_commands(commands: Mapping[str, str]) -> str:
    """Return the lines of commands with their summaries.

    Args:
        commands: name -> module and class.
    """
    width = max(map(len, commands))
    return "".join(
        f"  {name:<{width}}  {read_summary(place)}\n" for name, place in sorted(commands.items())
    )


def select_noun(words: Sequence[str], commands: Mapping[str, str]) -> dict[str, str]:
    """Return the commands of a noun if it is all that was typed, {} otherwise."""
    if len(words) != 1:
        return {}
    return {name: place for name, place in commands.items() if name.startswith(f"{words[0]} ")}


def find_nearest(words: Sequence[str], names: Iterable[str]) -> str | None:
    """Return the command or noun that was probably meant, None if none is similar.

    >>> names = ["node list", "node show", "host list"]
    >>> find_nearest(["node", "lst", "--long"], names), find_nearest(["nde"], names)
    ('node list', 'node')
    """
    typed = [word for word in words if not word.startswith("-")]
    commands = list(names)
    known = [*commands, *dict.fromkeys(name.partition(" ")[0] for name in commands)]
    for count in (2, 1):
        text = " ".join(typed[:count])
        if found := difflib.get_close_matches(text, known, 1, _SIMILARITY):
            return found[0]
    return None


def fail_usage(program: str, message: str) -> NoReturn:
    """Print a usage error, and exit."""
    print(draw_error(f"{program}: {message} (see {program} --help)", sys.stderr), file=sys.stderr)
    raise SystemExit(EXIT_USAGE)


@cache
def _read_summaries(module: str) -> dict[str, str]:
    tree = ast.parse((_COMMANDS / f"{module}.py").read_text("utf-8"))
    return {
        node.name: (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
