"""A fleet of any size for the overview page, made without a database, and a server of it."""

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.api.application import build_application
from nodetracker.api.auth.addresses import NoauthAuthenticator
from nodetracker.api.auth.layer import LoginFailures, authenticate
from nodetracker.api.fleet_cache import FleetCache
from nodetracker.api.layers import request_id_layer
from nodetracker.db.schema.tables import compute_nodes, guests, services
from nodetracker.model.claim import ClaimState
from nodetracker.model.fleet import (
    OVERVIEW_COLUMNS,
    OverviewNode,
    OverviewRows,
    UnclaimedSum,
    WarningCount,
)
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.service import ServiceRecord
from nodetracker.model.warning import WarningKind
from nodetracker.web.server import Server
from tests.builders import make_guest, make_node, make_service
from tests.functional.servers.process import find_free_port
from tests.settings import make_api_settings
from tests.statements import select_written
from tests.stores import SqliteStore
from tests.unit.api.conftest import make_backend

RULES = (
    "nodetracker:services:update", "nodetracker:nodes:audit", "nodetracker:nodes:delete",
    "nodetracker:claims:abort", "nodetracker:workloads:adopt", "nodetracker:warnings:silence",
)  # fmt: skip
FRESH_SECONDS = 60
DOWN_AFTER = 3600
"""Seconds; hosts of tests send one heartbeat, and a browser may take long to look at them."""
_SPACE = uuid.UUID("7c0e6f4a-9d1b-4b7e-8a53-2f6d1c0b9e84")


class AllowAll:
    """A `PolicyAuthorizer` that allows everything."""

    def is_allowed(self, context, rule, target=None) -> bool:
        return True

    def list_allowed(self, context) -> list[str]:
        return list(RULES)


class PageFleet:
    """Nodes of many states and fillings; the same for the same size.

    Args:
        is_fine: nothing is wrong with any node.
    """

    def __init__(self, size: int, is_fine: bool = False) -> None:
        self._random = random.Random(size)
        self._made_at = datetime.now(UTC)
        self._is_fine = is_fine
        self.nodes = [self._make_node(number) for number in range(size)]
        self._services: list[ServiceRecord] = []
        self._warnings: tuple[WarningCount, ...] = ()
        self._decide_states()

    def add_empty_host(self, host: str) -> None:
        """Add a host without nodes, which is down."""
        self._silent.add(host)
        seen = datetime.now(UTC) - timedelta(hours=3)
        self._services.append(make_service(host=host, last_seen_up=seen))

    def change(self, share: float) -> None:
        """Change the usage of a share of the nodes, as audits do."""
        step = max(1, round(1 / share))
        first = self._random.randrange(step)
        for index in range(first, len(self.nodes), step):
            node = self.nodes[index]
            used = self._random.randrange(node.memory_mb)
            self.nodes[index] = replace(node, memory_mb_used=used)

    def read_rows(self) -> OverviewRows:
        """Return what a store would return now."""
        now = datetime.now(UTC)
        services = [
            replace(service, last_seen_up=now - (now - service.last_seen_up) % timedelta(days=1))
            if service.host in self._silent
            else replace(service, last_seen_up=now, last_audit=self._age(service.last_audit, now))
            for service in self._services
        ]
        unclaimed = [
            UnclaimedSum(node.id, WorkloadKind.INSTANCE, 1, 2000, 0, 4096, 20480)
            for node in self.nodes
            if node.id % 5 == 1 and node.running_vms
        ]
        claims = {ClaimState.HELD: 2, ClaimState.CONFIRMED: len(self.nodes) * 6}
        return OverviewRows(
            now, tuple(services), tuple(self.nodes), tuple(unclaimed), claims, self._warnings
        )

    def _age(self, audit: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
        """Let nodes that were not read recently have been read when they were."""
        age = audit.get("age_seconds", 0)
        passed = (now - self._made_at).total_seconds() if age > FRESH_SECONDS else 0
        return {**audit, "age_seconds": age + passed}

    def _make_node(self, number: int) -> OverviewNode:
        pick = self._random
        filling = min(1.0, max(0.02, pick.gauss(0.62, 0.24)))
        cpus = pick.choice((32, 64, 64, 128))
        memory = cpus * 4096
        guests = round(filling * cpus / 4)
        is_over = not self._is_fine and number % 97 == 40
        name = f"host-{number:04d}"
        return OverviewNode(
            id=number + 1,
            uuid=str(uuid.uuid5(_SPACE, name)),
            host=name,
            nodename=f"{name}.example.org",
            vcpus=cpus if number % 7 else cpus // 2,
            pcpus=0 if number % 7 else cpus // 2,
            pcpus_used=0 if number % 7 else int(filling * cpus / 2),
            memory_mb=memory,
            memory_mb_used=int(memory * (1.05 if is_over else filling)) + 4096,
            local_gb=4000,
            cpu_used=round(filling * cpus * 1.6, 1),
            disk_used=round(4000 * filling * pick.uniform(0.3, 0.9), 1),
            cpu_allocation_ratio=4.0,
            ram_allocation_ratio=1.0,
            disk_allocation_ratio=1.0,
            reserved={"vcpus": 2, "memory_mb": 4096, "disk_mb": 51200},
            overhead={},
            running_vms=guests,
            total_containers=guests * 2 if number % 3 == 0 else 0,
            metrics={"cpu_percent": 12 + number % 30, "memory_used_mb": int(memory * filling / 2)},
        )

    def _decide_states(self) -> None:
        now = datetime.now(UTC)
        self._silent = set()
        for number, node in enumerate(self.nodes):
            is_odd = not self._is_fine and number % 40
            age = {11: 400.0, 13: 1200.0}.get(is_odd, 20.0)
            if is_odd in (7, 8) and number < 300:
                self._silent.add(node.host)
            self._services.append(
                make_service(
                    uuid=str(uuid.uuid5(_SPACE, f"service of {node.host}")),
                    host=node.host,
                    last_seen_up=now - timedelta(hours=3) if node.host in self._silent else now,
                    disabled=is_odd in (3, 8, 23),
                    maintenance=is_odd == 23,
                    last_audit={"age_seconds": age, "audit_interval_seconds": 60},
                )
            )
        if not self._is_fine:
            self._warnings = tuple(
                WarningCount(node.host, node.nodename, WarningKind.DRIFT, 1 + number % 2)
                for number, node in enumerate(self.nodes)
                if number % 40 in (5, 7)
            )


class PageStore(SqliteStore):
    """A store whose overview is a `PageFleet`."""

    def __init__(self, fleet: PageFleet) -> None:
        super().__init__()
        self.fleet = fleet
        self.error: Exception | None = None  # raised instead of an overview

    def read_overview(self) -> OverviewRows:
        if self.error is not None:
            raise self.error
        return self.fleet.read_rows()

    def insert_rows(self) -> None:
        """Insert the nodes, their hosts and guests without claims, which lists are made of."""
        host = "template"
        make_node(self, (make_guest(),), host=host)
        found = self.fleet.read_rows()
        with self.engine.begin() as connection:
            rows = {
                table: dict(connection.execute(select_written(table)).mappings().one())
                for table in (services, compute_nodes, guests)
            }
            for table in (guests, compute_nodes, services):
                connection.execute(sa.delete(table))
            for table, own in (
                (services, [_columns_of_service(each) for each in found.services]),
                (compute_nodes, [_columns_of_node(node) for node in found.nodes]),
                (guests, [_columns_of_guest(item) for item in found.unclaimed]),
            ):
                copies = [rows[table] | {"id": i} | each for i, each in enumerate(own, start=1)]
                connection.execute(sa.insert(table), copies)


def _columns_of_service(service: ServiceRecord) -> dict[str, Any]:
    names = ("uuid", "host", "last_seen_up", "disabled", "maintenance", "last_audit")
    return {name: getattr(service, name) for name in names}


def _columns_of_node(node: OverviewNode) -> dict[str, Any]:
    columns = {name: getattr(node, name) for name in OVERVIEW_COLUMNS}
    identity = {"id": node.id, "uuid": node.uuid, "host": node.host}
    return {**columns, **identity, "hypervisor_hostname": node.nodename}


def _columns_of_guest(item: UnclaimedSum) -> dict[str, Any]:
    name = f"guest-{item.node_id}"
    columns = {part: getattr(item, part) for part in ("vcpu_milli", "memory_mb", "disk_mb")}
    identity = {"uuid": str(uuid.uuid5(_SPACE, name)), "name": name}
    return {**columns, **identity, "compute_node_id": item.node_id}


def _let_everybody_in(application):
    return authenticate(application, NoauthAuthenticator(), LoginFailures())


@contextmanager
def serve_page(store: SqliteStore, max_age: int = 1, layer=None, limits=None, **changes):
    """Serve the API and its page; yield the address of the page.

    Args:
        limits: further settings of the API.
        layer: of authentication; None = everybody is an administrator.
        changes: of the `Backend`.
    """
    settings = make_api_settings(
        "api-1",
        port=find_free_port(),
        overview_max_age=max_age,
        **{"service_down_time": DOWN_AFTER} | (limits or {}),
    )
    backend = replace(
        make_backend(store, DOWN_AFTER),
        settings=settings,
        # Without an age, a clock that stands still: nothing is kept, however long making it takes.
        fleet=FleetCache(store, settings, time.monotonic if max_age else lambda: 0.0),
        **{"authorizer": AllowAll()} | changes,
    )
    layers: Sequence = (request_id_layer, layer or _let_everybody_in)
    server = Server(build_application(backend, layers=layers), settings)
    server.start()
    try:
        yield f"{server.url}/ui/"
    finally:
        server.stop(5)
