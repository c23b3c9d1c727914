"""service list, show."""

import argparse
import dataclasses
from datetime import datetime
from typing import Any

from cliff.lister import Lister
from cliff.show import ShowOne

from nodetracker.accounting.summary import state_of, status_of
from nodetracker.cmd.commands.base import StoreCommand, columns_of, render_time
from nodetracker.errors import NotFoundError
from nodetracker.model.service import ServiceRecord

_COLUMNS = (
    "id", "binary", "host", "status", "state", "updated_at", "disabled_reason", "epoch",
    "clock_skew_seconds",
)  # fmt: skip


class ListServices(StoreCommand, Lister):
    """List the services: status is the administrator's word, state is liveness."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and judge all services."""
        services = self.store.list_services()
        now = self.store.now()
        return columns_of(
            [render_service(service, now, self.service_down_time) for service in services],
            _COLUMNS,
        )


class ShowService(StoreCommand, ShowOne):
    """Show one service with its identity and the state of its audits."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add host and binary."""
        parser = super().get_parser(prog_name)
        parser.add_argument("host")
        parser.add_argument("binary")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Read and judge one service."""
        services = self.store.list_services(parsed_args.host, parsed_args.binary)
        if not services:
            raise NotFoundError(
                f"there is no service {parsed_args.binary} on host {parsed_args.host}"
            )
        service = services[0]
        shown = render_service(service, self.store.now(), self.service_down_time)
        shown |= {
            "topic": service.topic,
            "version": service.version,
            "maintenance": service.maintenance,
            "forced_down": service.forced_down,
            "report_count": service.report_count,
            "last_seen_up": render_time(service.last_seen_up),
            "created_at": render_time(service.created_at),
            "last_audit": dict(service.last_audit),
        }
        shown |= dataclasses.asdict(service.incarnation)
        return tuple(shown), tuple(shown.values())


def render_service(service: ServiceRecord, now: datetime, service_down_time: int) -> dict[str, Any]:
    """Return the columns of ``service list`` for one service."""
    skew = service.clock_skew_ms
    return {
        "id": service.uuid,
        "binary": service.binary,
        "host": service.host,
        "status": status_of(service),
        "state": state_of(service, now, service_down_time),
        "updated_at": render_time(service.updated_at or service.created_at),
        "disabled_reason": service.disabled_reason,
        "epoch": service.epoch,
        "clock_skew_seconds": None if skew is None else skew / 1000,
    }
