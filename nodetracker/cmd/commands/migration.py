"""migration create, list, show, set, confirm, revert."""

import argparse
from typing import Any

from nodetracker.accounting.ledger.migrations import move_of, require_open
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.reports.claims import render_migration
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    columns_of,
    uuid_argument,
)
from nodetracker.cmd.commands.claim import add_request, read_json, with_target
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.fleet.reads import find_node, read_items
from nodetracker.model.claim import OPEN, Migration, MigrationStatus
from nodetracker.model.errors import NotFoundError
from nodetracker.model.listing import MigrationQuery

COLUMNS = (
    "uuid", "workload_uuid", "migration_type", "status", "source_host", "source_node", "dest_host",
    "dest_node", "source_claim", "dest_claim", "created_at",
)  # fmt: skip


class CreateMigration(ShowCommand):
    """Claim a move's destination in addition to its source, or show why it is refused."""

    example = "migration create request.json --host compute-2"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the request, the host and the node."""
        parser = super().get_parser(prog_name)
        add_request(parser, "the best candidate's, or the source's for a rebuild")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Create the migration and show it."""
        request = with_target(parse_claim_request(read_json(parsed_args.file)), parsed_args)
        move_of(request)
        if request.host is None:
            return show(require_open(self.scheduler.create_migration(request)))
        node = find_node(self.store, request.host, request.nodename)
        migration = self.store.create_migration(request, node.host, node.nodename, self.policy)
        return show(require_open(migration))


class ListMigrations(ListCommand):
    """List migrations, oldest first."""

    example = "migration list --host compute-1"

    layout = (
        Column("uuid", ("uuid",)),
        Column("type", ("migration_type",), Kind.TEXT, 2),
        Column("status", ("status",), Kind.STATE),
        Column("from", ("source_host",), Kind.FLEXIBLE, least=13),
        Column("node", ("source_node",), Kind.FLEXIBLE, 5, same_as="from"),
        Column("to", ("dest_host",), Kind.FLEXIBLE, least=13),
        Column("node", ("dest_node",), Kind.FLEXIBLE, 5, same_as="to"),
        Column("created", ("created_at",), Kind.MOMENT, 1),
        Column("workload", ("workload_uuid",), Kind.TEXT, 4),
        Column("source claim", ("source_claim",), Kind.TEXT, 6),
        Column("destination claim", ("dest_claim",), Kind.TEXT, 7),
    )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the filters."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only migrations from or to this host.")
        parser.add_argument(
            "--status",
            choices=[status.value for status in MigrationStatus],
            help="Only this status.",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the migrations."""
        statuses = (MigrationStatus(parsed_args.status),) if parsed_args.status else ()
        query = MigrationQuery(host=parsed_args.host, statuses=statuses)
        found = read_items(self.reader.list_migration_page, query)
        return columns_of([render_migration(migration) for migration in found], COLUMNS)


class OneMigration(ShowCommand):
    """Base of commands on one migration."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the migration's uuid."""
        parser = super().get_parser(prog_name)
        parser.add_argument("uuid", metavar="UUID", type=uuid_argument)
        return parser


class ShowMigration(OneMigration):
    """Show one migration."""

    example = "migration show 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read the migration."""
        found = self.reader.list_migration_page(MigrationQuery(uuid=parsed_args.uuid)).items
        if not found:
            raise NotFoundError(f"no such migration: {parsed_args.uuid}")
        return show(found[0])


class SetMigration(OneMigration):
    """Set the status of an open migration; its claims are not changed."""

    example = "migration set 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11 --status migrating"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the status."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--status", required=True, choices=[status.value for status in OPEN])
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Store the status."""
        status = MigrationStatus(parsed_args.status)
        return show(self.store.set_migration_status(parsed_args.uuid, status))


class ConfirmMigration(OneMigration):
    """End a migration at its destination: the source's claim is released."""

    example = "migration confirm 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Confirm the migration."""
        return show(self.store.confirm_migration(parsed_args.uuid))


class RevertMigration(OneMigration):
    """End a migration at its source: the destination's claim is released."""

    example = "migration revert 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Revert the migration."""
        return show(self.store.revert_migration(parsed_args.uuid))


def show(migration: Migration) -> tuple[Any, Any]:
    """Return one migration in cliff's format."""
    row = render_migration(migration)
    return tuple(row), tuple(row.values())
