"""The fleet of docs/tour.md: twelve hosts with trouble, at a time that stands still."""

import itertools
import random
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ItemDiff, make_diff
from nodetracker.model.guest import Guest
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType, TrackedDevice
from nodetracker.model.service import COMPUTE_BINARY, SCHEMA_REVISION, AuditState, ServiceChange
from nodetracker.model.settings import AdmissionPolicy
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import create, make_device, make_empty_values, make_guest, register, update
from tests.stores import SqliteStore

NOW = datetime(2026, 11, 26, 15, tzinfo=UTC)
POLICY = AdmissionPolicy(
    60, 600, aliases={"h100": Alias("h100", (AliasSpec("10de", "2331"),), PciDeviceType.PCI)}
)
RESERVED = {"vcpus": 2, "memory_mb": 4096}
MEMORY_MB = 262_144
HOURS = 9 * 24
LOST = ("h4", "h11")
WITH_GPUS = ("h3", "h9", "h12")
SMALL = {"VCPU": 4, "MEMORY_MB": 16384, "DISK_GB": 200}
GUESTS = {"h1": 13, "h2": 11, "h3": 0, "h4": 15, "h5": 14, "h6": 15,
          "h7": 11, "h8": 12, "h9": 8, "h10": 10, "h11": 12, "h12": 13}  # fmt: skip
"""Host -> guests of that size; h3 has those below."""

TRAINING = {
    "train-0": {"VCPU": 16, "MEMORY_MB": 65536, "DISK_GB": 200},
    "train-1": {"VCPU": 16, "MEMORY_MB": 65536, "DISK_GB": 200},
    "train-big": {"VCPU": 8, "MEMORY_MB": 98304, "DISK_GB": 200},
}
_SPACE = uuid.UUID("5d2c8f1a-7e3b-4046-9b8d-2f6a9c1e7035")
_Place = tuple[str, str, dict[str, int]]  # host, name of a guest, what it asks for


def make_picture_fleet() -> SqliteStore:
    """Return the store of that fleet; its clock stands still at `NOW`."""
    return _Story().store


class _Story:
    def __init__(self) -> None:
        self.now = NOW - timedelta(hours=HOURS)
        self.store = SqliteStore(lambda: self.now)
        self._agents = {host: register(self.store, host, str(_uuid_of(host))) for host in GUESTS}
        placed = _list_guests()
        count = len(placed) * 3 // 4
        self._start_hosts(placed[:count])
        self._live(placed[count:])
        self._stop()

    def _start_hosts(self, placed: list[_Place]) -> None:
        """Add each host's node with its guests, and their claims."""
        for number, (host, agent) in enumerate(self._agents.items(), 1):
            devices = _make_gpus() if host in WITH_GPUS else ()
            guests = tuple(_make_guest(*place) for place in placed if place[0] == host)
            values = make_empty_values(
                vcpus=64, memory_mb=MEMORY_MB, local_gb=4000, cpu_allocation_ratio=4.0,
                reserved=RESERVED, overhead={}, running_vms=len(guests), total_containers=0,
                disk_available_least=None,
                **_use(guests),
                kernel_version="6.1.0-18-amd64", os="Debian GNU/Linux 12 (bookworm)",
                booted_at=NOW - timedelta(days=40), **pci_columns(devices),
                metrics={"cpu_percent": 9 * number % 40, "memory_used_mb": 48_000, "disk_used_mb": 900_000},
            )  # fmt: skip
            node = str(_uuid_of(f"node of {host}"))
            change = create(agent, f"{host}.example.org", values, guests, devices, node_uuid=node)
            self.store.apply_changes(agent, [change], 60)
        for place in placed:
            self._claim(*place)

    def _live(self, late: list[_Place]) -> None:
        """Let nine days pass, in which more guests come; h7 has a bad night."""
        starts = {HOURS * number // len(late): place for number, place in enumerate(late)}
        for hour in range(HOURS):
            if hour in starts:
                self._add_guest(*starts[hour])
            if hour == HOURS - 17:
                self._change("h7", kernel_version="6.1.0-21-amd64", memory_mb=196_608)
                lost = "192 GiB instead of 256 GiB since the last boot"
                self.store.raise_warning(
                    "h7",
                    HostWarning(WarningKind.MEMORY_MISMATCH, "h7.example.org", "memory", lost),
                )
            if hour == HOURS - 16:
                change = ServiceChange(
                    disabled=True, disabled_reason="memory fault", disabled_by="alice"
                )
                self.store.set_service("h7", COMPUTE_BINARY, change)
            self.store.sample_trends()
            self.now += timedelta(hours=1)

    def _stop(self) -> None:
        """Let all agents report, those of the lost hosts three hours ago for the last time."""
        for host, agent in self._agents.items():
            self.now = NOW - (timedelta(hours=3) if host in LOST else timedelta(seconds=12))
            state = AuditState(9.0, audit_interval_seconds=60, schema_revision=SCHEMA_REVISION)
            self.store.report_state(agent, 1, state)
        self.now = NOW

    def _claim(self, host: str, name: str, asked: dict[str, int]) -> None:
        guest = _make_guest(host, name, asked)
        body = {
            "uuid": str(_uuid_of(f"claim of {name}")),
            "workload": {"uuid": guest.uuid, "name": name, "project_id": guest.project_id},
            "resources": asked,
            "pci_requests": [{"alias": "h100"}] if name in ("train-0", "train-1") else None,
        }
        policy = replace(POLICY, service_down_time=10**7)  # no host reports until the end
        self.store.create_claim(parse_claim_request(body), host, f"{host}.example.org", policy)
        self.store.confirm_claim(body["uuid"])

    def _add_guest(self, host: str, name: str, asked: dict[str, int]) -> None:
        guest = _make_guest(host, name, asked)
        (record,) = self.store.load_nodes(host)
        guests = (*record.guests.values(), guest)
        self._change(host, ItemDiff(added=(guest,)), running_vms=len(guests), **_use(guests))
        self._claim(host, name, asked)

    def _change(self, host: str, guests: ItemDiff[Guest] | None = None, **changes) -> None:
        (record,) = self.store.load_nodes(host)
        change = update(record, guests, **changes)
        change = replace(change, diff=make_diff(change))
        self.store.apply_changes(self._agents[host], [change], 60)


def _list_guests() -> list[_Place]:
    """Return all guests, in the order in which they start."""
    hosts = [host for host, count in GUESTS.items() for _ in range(count)]
    random.Random(7).shuffle(hosts)
    kinds = itertools.cycle(("web", "api", "db", "build"))
    small = [(host, f"{next(kinds)}-{n}", SMALL) for n, host in enumerate(hosts)]
    return [("h3", name, asked) for name, asked in TRAINING.items()] + small


def _make_guest(host: str, name: str, asked: dict[str, int]) -> Guest:
    return make_guest(
        name, uuid=str(_uuid_of(name)), vcpu_milli=asked["VCPU"] * 1000, details={},
        memory_mb=asked["MEMORY_MB"], disk_mb=asked["DISK_GB"] * 1024,
        project_id="ml" if host == "h3" else ("shop", "lab")[len(name) % 2],
    )  # fmt: skip


def _use(guests: Iterable[Guest]) -> dict[str, Any]:
    """Return the columns of usage of a node with these guests."""
    used = sum((charge_of_guest(guest, 0) for guest in guests), Amounts())
    return usage_columns(used, RESERVED, MEMORY_MB, 4000)


def _make_gpus() -> tuple[TrackedDevice, ...]:
    return tuple(
        make_device(
            f"0000:{bus}:00.0", vendor_id="10de", product_id="2331", class_id="030200",
            dev_type=PciDeviceType.PCI, parent_addr="", tags={}, numa_node=None,
        )
        for bus in ("81", "c1")
    )  # fmt: skip


def _uuid_of(name: str) -> uuid.UUID:
    return uuid.uuid5(_SPACE, name)
