"""migration create, list, show, set, confirm, revert."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from nodetracker.accounting.ledger.request import parse_migration_requests
from nodetracker.cmd.commands.base import UUID, ListCommand, ShowCommand, argument
from nodetracker.cmd.commands.claim import (
    RequestCommand,
    parse_request,
    read_json,
    request_arguments,
)
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.claim import OPEN, MigrationStatus
from nodetracker.model.errors import NotFoundError
from nodetracker.model.listing import MigrationQuery
from nodetracker.usecases.reads import read_items
from nodetracker.views.claims import MIGRATION_COLUMNS, render_migration


class CreateMigration(RequestCommand):
    details = """
    A file with a list of requests, such as 'host plan' writes, claims for each of them.
    """
    example = "migration create request.json --host compute-2"
    arguments = request_arguments("the best candidate's, or the source's for a rebuild")

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        body = read_json(args.file)
        if isinstance(body, list):
            return self._create_all(args, body)
        request = parse_request(args, body)
        self.check_columns(args, MIGRATION_COLUMNS)
        return render_migration(self.scheduler.create_migration(request))

    def _create_all(self, args: argparse.Namespace, body: list[object]) -> Mapping[str, Any]:
        self.check_list(args, "migrations")
        requests = parse_migration_requests({"migrations": body})
        outcomes = self.scheduler.create_migrations(requests)
        return self.show_outcomes("migrations", requests, outcomes, render_migration)


class ListMigrations(ListCommand):
    example = "migration list --host compute-1"

    columns = MIGRATION_COLUMNS
    layout = (
        Column("uuid", ("uuid",)),
        Column("type", ("migration_type",), Kind.TEXT, 3),
        Column("status", ("status",), Kind.STATE),
        Column("from", ("source_host",), Kind.NAME, least=13),
        Column("node", ("source_node",), Kind.NAME, 5, same_as="from"),
        Column("to", ("dest_host",), Kind.NAME, least=13),
        Column("node", ("dest_node",), Kind.NAME, 5, same_as="to"),
        Column("created", ("created_at",), Kind.MOMENT, 1),
        Column("workload", ("workload_name", "workload_uuid"), Kind.NAMED, 2),
        Column("source claim", ("source_claim",), Kind.TEXT, 6),
        Column("destination claim", ("dest_claim",), Kind.TEXT, 7),
    )
    arguments = (
        argument("--host", help="Only migrations from or to this host."),
        argument("--status", choices=list(map(str, MigrationStatus)), help="Only this status."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        statuses = (MigrationStatus(args.status),) if args.status else ()
        query = MigrationQuery(host=args.host, statuses=statuses)
        return map(render_migration, read_items(self.reader.list_migration_page, query))


class ShowMigration(ShowCommand):
    example = "migration show 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        found = self.reader.list_migration_page(MigrationQuery(uuid=args.uuid)).items
        if not found:
            raise NotFoundError(f"no such migration: {args.uuid}")
        return render_migration(found[0])


class SetMigration(ShowCommand):
    example = "migration set 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11 --status migrating"
    arguments = (UUID, argument("--status", required=True, choices=list(map(str, OPEN))))

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, MIGRATION_COLUMNS)
        status = MigrationStatus(args.status)
        return render_migration(self.store.set_migration_status(args.uuid, status))


class ConfirmMigration(ShowCommand):
    example = "migration confirm 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, MIGRATION_COLUMNS)
        return render_migration(self.store.confirm_migration(args.uuid))


class RevertMigration(ShowCommand):
    example = "migration revert 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    arguments = (UUID,)

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        self.check_columns(args, MIGRATION_COLUMNS)
        return render_migration(self.store.revert_migration(args.uuid))
