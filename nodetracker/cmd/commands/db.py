"""Commands on the database: its schema, its old rows, and claims that no longer match guests."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from nodetracker.accounting.liveness import is_service_up
from nodetracker.cmd.commands.base import ListCommand, StoreCommand, argument, ask, flag
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.db.schema import revisions
from nodetracker.model.claim import Claim
from nodetracker.model.errors import NotFoundError, RefusedError, SchemaError
from nodetracker.model.guest import Guest
from nodetracker.model.listing import WarningQuery, WorkloadRow
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION
from nodetracker.model.text import count_noun, name_some
from nodetracker.model.warning import NO_ITEM, WarningKind
from nodetracker.process.daemon import EXIT_FAILED
from nodetracker.usecases.adoption import adopt_row
from nodetracker.usecases.reads import read_items
from nodetracker.usecases.watch import purge_in_parts
from nodetracker.views import readiness
from nodetracker.views.workloads import (
    find_guests_to_adopt,
    find_lost_guests,
    find_orphaned_claims,
    render_workload,
)

if TYPE_CHECKING:
    from nodetracker.db.store import SqlStore


class SyncSchema(StoreCommand):
    details = """
    An interrupted migration is completed. A downgrade deletes the tables and columns that
    the older revision lacks; it lists them and asks first, and is refused while services run.
    """
    example = "db sync"
    arguments = (
        argument(
            "revision",
            nargs="?",
            default=revisions.HEAD,
            help="Revision to migrate to, up or down; 'base' drops all tables. Default: newest.",
        ),
        flag("--yes", "Downgrade without asking."),
        flag("--dry-run", "Print what would be done; change nothing."),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        revision = parsed_args.revision
        store = self.app.open_sql_store(is_read_only=parsed_args.dry_run)
        plan = revisions.make_plan(store.engine, revision)
        if parsed_args.dry_run:
            self._print_plan(plan)
            return
        if plan.is_downgrade or plan.deletions:
            self._check_is_unused(store)
            self._confirm(plan, parsed_args.yes)
        with show_progress("migrating the schema", self.app.stderr) as progress:
            revisions.sync(store.engine, revision, progress.report)
        self.app.stdout.write(f"schema: {plan.before or 'none'} -> {plan.after or 'none'}\n")

    def _print_plan(self, plan: revisions.Plan) -> None:
        lines = [f"schema: {plan.before or 'none'} -> {plan.after or 'none'}", *plan.steps]
        lines += [f"deletes: {line}" for line in plan.deletions]
        self.app.stdout.write("".join(f"{line}\n" for line in lines))

    def _check_is_unused(self, store: "SqlStore") -> None:
        """Check that no service runs, as each may need what a downgrade deletes.

        Raises:
            RefusedError: some do.
        """
        live = revisions.list_live_services(store.engine, self.service_down_time)
        if live:
            raise RefusedError(
                f"{count_noun(len(live), 'running service')} may need the newer schema: "
                f"{name_some(live)}; stop them first"
            )

    def _confirm(self, plan: revisions.Plan, is_confirmed: bool) -> None:
        """Print what is deleted, and ask on a terminal.

        Raises:
            RefusedError: the answer is not yes.
        """
        before, after, err = plan.before or "none", plan.after or "none", self.app.stderr
        err.write(f"The downgrade {before} -> {after} deletes:\n")
        for line in plan.deletions or ("no table and no column",):
            err.write(f"  {line}\n")
        if not is_confirmed:
            ask(self, "Downgrade?", "a downgrade")


class ShowSchemaVersion(StoreCommand):
    example = "db version"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        revision = revisions.version(self.app.open_sql_store(is_read_only=True).engine)
        if revision is None:
            raise NotFoundError("the database has no schema: run nodetracker-manage db sync")
        self.app.stdout.write(f"{revision}\n")


class ContractSchema(StoreCommand):
    details = "It is refused while one of the services may be of such a version."
    example = "db contract"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        store = self.app.open_sql_store(is_read_only=False)
        verdict = readiness.evaluate_services(store.list_services(), SCHEMA_REVISION)
        if verdict.details is not None:
            raise RefusedError(verdict.details)
        removed = revisions.contract(store.engine)
        lines = [f"removed: {name}\n" for name in removed] or ["nothing to remove\n"]
        self.app.stdout.write("".join(lines))


class CheckSchema(StoreCommand):
    details = "It also names services of versions that are too old for it."
    example = "db check"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        store = self.app.open_sql_store(is_read_only=True)
        differences = revisions.check(store.engine)
        if differences:
            raise SchemaError("; ".join(differences))
        verdict = readiness.evaluate_services(store.list_services())
        if verdict.details is not None:
            raise SchemaError(verdict.details)
        self.app.stdout.write("the schema is as expected\n")


def _days(text: str) -> int:
    if not text.isdigit() or int(text) > 36500:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected days from 0 to 36500")
    return int(text)


class PurgeRows(ListCommand):
    details = "It shows how many rows of each table go, and asks first."
    example = "db purge --before 90 --dry-run"

    columns = ("table", "deleted")
    arguments = (
        argument(
            "--before",
            metavar="DAYS",
            type=_days,
            required=True,
            help="Delete what is older than this number of days.",
        ),
        flag("--yes", "Delete without asking; required without a terminal."),
        flag("--dry-run", "Show how many rows would be deleted; change nothing."),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        deleted: Counter[str] = Counter()
        before = self.store.now() - timedelta(days=args.before)
        if not args.yes:
            counts = self.app.open_sql_store(is_read_only=True).count_old(before)
            if args.dry_run:
                return _render_counts(counts)
            self._confirm(counts, args.before)
        with show_progress("deleting old rows", self.app.stderr) as progress:
            try:
                for part in purge_in_parts(self.store, before):
                    deleted.update(part)
                    progress.report(0, 0, f"{deleted.total():,} rows")
            except KeyboardInterrupt:
                self.exit_code = EXIT_FAILED
        if self.exit_code:
            self.app.stderr.write("interrupted; these rows were deleted before\n")
        return _render_counts(deleted)

    def _confirm(self, counts: Mapping[str, int], days: int) -> None:
        """Print how many rows go, and ask on a terminal.

        Raises:
            RefusedError: the answer is not yes.
        """
        old = [f"{count:,} of {table}" for table, count in sorted(counts.items()) if count]
        what = ", ".join(old) or "none"
        self.app.stderr.write(f"Rows older than {count_noun(days, 'day')}: {what}\n")
        if old:
            ask(self, "Delete them?", "db purge")


def _render_counts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"table": table, "deleted": count} for table, count in sorted(counts.items())]


class ReconcileClaims(ListCommand):
    details = """
    It reads what the agents listed last, and leaves out hosts that are down. Only the
    options change anything. Claims of nodes that are no longer listed keep the rows of these;
    --release-orphans counts them, and asks first. The exit code is 1 if a change was refused.
    """
    example = "db reconcile --host compute-1 --adopt"

    columns = (
        "host", "nodename", "what", "uuid", "name", "claim_uuid", "vcpus", "memory_mb", "disk_gb",
        "result",
    )  # fmt: skip
    layout = (
        Column("host", ("host",), Kind.NAME),
        Column("node", ("nodename",), Kind.NAME, 4, same_as="host"),
        Column("what", ("what",)),
        Column("name", ("name",), Kind.NAME, 3),
        Column("uuid", ("uuid",), Kind.TEXT, 2),
        Column("result", ("result",), Kind.FLEXIBLE, 1),
    )
    arguments = (
        argument("--host", help="Only this host."),
        flag("--adopt", "Make confirmed claims of guests without one."),
        flag("--release", "Release the claims whose guest is gone."),
        flag("--release-orphans", "Release the claims of nodes that are no longer listed."),
        flag("--yes", "Release these without asking; required without a terminal."),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        found = list(self._find(args.host))
        if args.release_orphans and not args.yes:
            self._confirm([row for what, row, _ in found if what == "orphan_node"])
        released = {"missing_guest": args.release, "orphan_node": args.release_orphans}
        for what, row, guest in found:
            shown = render_workload(row) | {"what": what, "result": ""}
            if args.adopt and guest is not None:
                adopt = partial(adopt_row, self.store, self.scheduler, row, guest)
                self._try(shown, "adopted", adopt)
            if released.get(what):
                self._try(shown, "released", partial(self.store.abort_claim, str(row.claim_uuid)))
            yield shown

    def _confirm(self, orphaned: Sequence[WorkloadRow]) -> None:
        """Print how many claims of nodes that are no longer listed go, and ask on a terminal.

        Raises:
            RefusedError: the answer is not yes.
        """
        claims = Counter((row.host, row.nodename) for row in orphaned)
        for (host, nodename), count in sorted(claims.items()):
            text = f"Node {nodename} of host {host} is no longer listed"
            self.app.stderr.write(f"{text}: {count_noun(count, 'claim')}\n")
        if claims:
            ask(self, f"Release {count_noun(claims.total(), 'claim')}?", "--release-orphans")

    def _find(self, only: str | None) -> Iterator[tuple[str, WorkloadRow, Guest | None]]:
        """Yield what does not match, of hosts that are up.

        These are confirmed claims without their guest, unclaimed guests, and claims of nodes that
        are no longer listed, whose stored guests are not among them.

        Returns:
            What it is, the claim or guest, and the guest of an unclaimed one.

        Raises:
            NotFoundError: no such host.
        """
        now = self.reader.now()
        services = self.reader.list_services(only, COMPUTE_BINARY)
        if only is not None and not services:
            raise NotFoundError(f"no such host: {only}")
        for service in services:
            if not is_service_up(service, now, self.service_down_time):
                self.app.stderr.write(f"host {service.host} is down and was left out\n")
                continue
            query = WarningQuery(
                host=service.host,
                kinds=(
                    WarningKind.GUEST_VANISHED,
                    WarningKind.CLAIM_UNUSED,
                    WarningKind.ORPHAN_NODE_KEPT,
                ),
                is_resolved=False,
            )
            warned = {
                (record.warning.nodename, record.warning.item)
                for record in read_items(self.reader.list_warning_page, query)
            }
            for record in self.reader.load_nodes(service.host):
                items = {item for nodename, item in warned if nodename == record.nodename}
                if NO_ITEM in items:  # the node is not listed
                    for row in find_orphaned_claims(record):
                        yield "orphan_node", row, None
                    continue
                for row in find_lost_guests(record, items):
                    yield "missing_guest", row, None
                for row in find_guests_to_adopt(record):
                    yield "unclaimed_guest", row, record.guests[row.uuid]

    def _try(self, shown: dict[str, Any], done: str, change: Callable[[], Claim]) -> None:
        try:
            shown["claim_uuid"] = change().uuid
            shown["result"] = done
        except (RefusedError, NotFoundError) as error:
            shown["result"] = f"refused: {error}"
            self.exit_code = EXIT_FAILED
