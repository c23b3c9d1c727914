"""db reconcile."""

import argparse
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from nodetracker.accounting.ledger.claims import require_active
from nodetracker.accounting.ledger.request import hash_request
from nodetracker.accounting.liveness import is_service_up
from nodetracker.accounting.reports.workloads import (
    find_guests_to_adopt,
    find_lost_guests,
    render_workload,
)
from nodetracker.cmd.commands.base import ListCommand, columns_of
from nodetracker.fleet.reads import read_items
from nodetracker.model.claim import Amounts, Claim, ClaimRequest, Workload
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.listing import WarningQuery, WorkloadRow
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import WarningKind
from nodetracker.process.daemon import EXIT_FAILED

COLUMNS = (
    "host", "nodename", "what", "uuid", "name", "claim_uuid", "vcpus", "memory_mb", "disk_gb",
    "result",
)  # fmt: skip


class ReconcileClaims(ListCommand):
    """List confirmed claims whose guest is gone, and guests without a claim.

    It reads what the agents listed last, and leaves out hosts that are down. Only the
    options change anything. The exit code is 1 if a change was refused.
    """

    example = "db reconcile --host compute-1 --adopt"

    _is_refused = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host, and what is to be changed."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", help="Only this host.")
        parser.add_argument(
            "--adopt", action="store_true", help="Make confirmed claims of guests without one."
        )
        parser.add_argument(
            "--release", action="store_true", help="Release the claims whose guest is gone."
        )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; a refusal is a failure."""
        code = int(super().run(parsed_args))
        return EXIT_FAILED if self._is_refused else code

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """List both kinds, and change what the options say."""
        rows = []
        for what, row, guest in list(self._find(parsed_args.host)):
            shown = render_workload(row) | {"what": what, "result": ""}
            if what == "unclaimed_guest" and parsed_args.adopt:
                self._try(shown, "adopted", lambda row=row, guest=guest: self._adopt(row, guest))
            if what == "missing_guest" and parsed_args.release:
                self._try(shown, "released", lambda row=row: self._release(row))
            rows.append(shown)
        return columns_of(rows, COLUMNS)

    def _find(self, only: str | None) -> Iterator[tuple[str, WorkloadRow, Guest | None]]:
        """Yield the workloads of the hosts that are up.

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
                kinds=(WarningKind.GUEST_VANISHED, WarningKind.CLAIM_UNUSED),
                is_resolved=False,
            )
            warned = {
                (record.warning.nodename, record.warning.item)
                for record in read_items(self.reader.list_warning_page, query)
            }
            for record in self.reader.load_nodes(service.host):
                items = {item for nodename, item in warned if nodename == record.nodename}
                for row in find_lost_guests(record, items):
                    yield "missing_guest", row, None
                for row in find_guests_to_adopt(record):
                    yield "unclaimed_guest", row, record.guests[row.uuid]

    def _try(self, shown: dict[str, Any], done: str, change: Any) -> None:
        try:
            shown["claim_uuid"] = change().uuid
            shown["result"] = done
        except (RefusedError, NotFoundError) as error:
            shown["result"] = f"refused: {error}"
            self._is_refused = True

    def _release(self, row: WorkloadRow) -> Claim:
        assert row.claim_uuid is not None
        return self.store.abort_claim(row.claim_uuid)

    def _adopt(self, row: WorkloadRow, guest: Guest | None) -> Claim:
        """Claim what a guest uses; as the guest is counted already, its amounts fit."""
        if guest is None or guest.pins != GuestPins():
            raise RefusedError("it is bound to CPUs, memory or devices: use 'claim create'")
        body = {"workload": {"uuid": row.uuid}, "adopted": True}
        request = ClaimRequest(
            uuid=str(uuid4()),
            workload=Workload(row.uuid, row.kind, row.name, row.project_id),
            amounts=Amounts(row.vcpu_milli, 0, row.memory_mb, row.disk_mb),
            request_hash=hash_request(body),
        )
        claim = self.store.create_claim(request, row.host, row.nodename, self.policy)
        return self.store.confirm_claim(require_active(claim).uuid)
