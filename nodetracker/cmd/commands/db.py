"""db sync, version, check, purge."""

import argparse
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cliff.command import Command

from nodetracker.cmd.commands.base import ListCommand, StoreCommand
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.db.schema import revisions
from nodetracker.errors import NotFoundError, SchemaError

if TYPE_CHECKING:
    from nodetracker.ports import OperatorStore

Report = Callable[[float, float, str], None]
"""Receives how many steps of how many are done, and what is done now."""

_PURGE_STEPS = (3650, 1825, 1095, 730, 365, 180, 90, 60, 30, 14, 7, 1)


class SyncSchema(StoreCommand, Command):
    """Migrate the database's schema to this version, or to a given revision."""

    example = "db sync"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the revision."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "revision",
            nargs="?",
            default="head",
            help="Revision to migrate to, up or down; 'base' drops all tables. Default: newest.",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Migrate, and print the revisions before and after."""
        before = revisions.version(self.app.sql_store.engine)
        with show_progress("migrating the schema", self.app.stderr) as progress:
            engine = self.app.sql_store.engine
            revisions.sync(engine, parsed_args.revision, progress.report)
        after = revisions.version(self.app.sql_store.engine)
        self.app.stdout.write(f"schema: {before or 'none'} -> {after or 'none'}\n")


class ShowSchemaVersion(StoreCommand, Command):
    """Print the revision of the database's schema."""

    example = "db version"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print the revision."""
        revision = revisions.version(self.app.sql_store.engine)
        if revision is None:
            raise NotFoundError("the database has no schema: run nodetracker-manage db sync")
        self.app.stdout.write(f"{revision}\n")


class CheckSchema(StoreCommand, Command):
    """Compare the database's schema with the one that this version expects."""

    example = "db check"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Report all differences, or that the schema is as expected."""
        differences = revisions.check(self.app.sql_store.engine)
        if differences:
            raise SchemaError("; ".join(differences))
        self.app.stdout.write("the schema is as expected\n")


class PurgeRows(ListCommand):
    """Delete history, resolved warnings, ended migrations and released claims by age."""

    example = "db purge --before 90"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the age."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--before",
            metavar="DAYS",
            type=_days,
            required=True,
            help="Delete what is older than this number of days.",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Delete rows and return their number per table."""
        with show_progress("deleting old rows", self.app.stderr) as progress:
            deleted = purge_in_steps(self.store, parsed_args.before, progress.report)
        return ("table", "deleted"), sorted(deleted.items())


def purge_in_steps(store: "OperatorStore", days: int, report: Report) -> dict[str, int]:
    """Delete what is older than a number of days; return table -> rows deleted.

    The oldest rows are deleted first.

    Args:
        report: called before each step and at the end.
    """
    now = store.now()
    steps = [*(step for step in _PURGE_STEPS if step > days), days]
    deleted: Counter[str] = Counter()
    for done, step in enumerate(steps):
        report(done, len(steps), f"older than {step} d")
        deleted.update(store.purge(now - timedelta(days=step)))
    report(len(steps), len(steps), "")
    return dict(deleted)


def _days(text: str) -> int:
    if not text.isdigit() or int(text) > 36500:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected days from 0 to 36500")
    return int(text)
