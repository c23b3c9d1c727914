"""db sync, version, check, purge."""

import argparse
from datetime import timedelta
from typing import Any

from cliff.command import Command

from nodetracker.cmd.commands.base import ListCommand, StoreCommand
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.db.schema import revisions
from nodetracker.errors import NotFoundError, SchemaError


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
        before = self.store.now() - timedelta(days=parsed_args.before)
        with show_progress("deleting old rows", self.app.stderr):
            deleted = self.store.purge(before)
        return ("table", "deleted"), sorted(deleted.items())


def _days(text: str) -> int:
    if not text.isdigit() or int(text) > 36500:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected days from 0 to 36500")
    return int(text)
