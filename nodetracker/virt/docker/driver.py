"""This machine as a container host: facts from its files and its engine, containers as guests."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from nodetracker.host.filesystem import read_mount
from nodetracker.model.event import EventKind, NodeEvent
from nodetracker.model.fact import Fact, failed, fresh
from nodetracker.model.guest import GuestListing
from nodetracker.model.host import StorageInfo
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import DriverCapability
from nodetracker.virt.docker.binding import Bindable, bind_container
from nodetracker.virt.docker.charging import Charges, ContainerCharger
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import ContainerError
from nodetracker.virt.docker.events import EngineEvent
from nodetracker.virt.docker.info import (
    EngineReport,
    has_disk_quotas,
    is_same_host,
    parse_report,
)
from nodetracker.virt.docker.listing import ContainerListing, ContainerReader
from nodetracker.virt.docker.watch import EventWatch
from nodetracker.virt.docker.workloads import parse_workload_uuid
from nodetracker.virt.machine import MachineProbes, read_uptime
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeKey

S = TypeVar("S")
T = TypeVar("T")

REPORT_SECONDS = 50.0
"""What an engine says of itself is asked again this often; audits after events need it sooner."""


class DockerDriver:
    """One container engine on this machine; its node is called after the host.

    Args:
        reserve_disk_for_image: share of the engine's disk that is kept for images.
        measures_containers: whether more is measured than charging needs.
    """

    def __init__(
        self,
        environment: DriverEnvironment,
        client: EngineClient,
        reserve_disk_for_image: float = 0.0,
        measures_containers: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = environment.host
        self._roots = environment.roots
        self._probes = environment.probes
        self._power = environment.power
        self._client = client
        self._source = client.source
        self._image_share = reserve_disk_for_image
        self._monotonic = monotonic
        self._reader = ContainerReader(client, monotonic)
        self._watch: EventWatch | None = None
        self._charger = ContainerCharger(
            client, self._host, self._roots, self._probes, measures_containers, monotonic
        )
        self._report: EngineReport | None = None
        self._report_at = 0.0
        self._reloaded_at = 0.0
        self._root_dir = ""
        self._bindable = Bindable()

    @property
    def capabilities(self) -> frozenset[DriverCapability]:
        """What this driver can do; power actions only where they are allowed."""
        allowed = {DriverCapability.POWER_ACTIONS} if self._power.is_allowed else set()
        return frozenset(
            {
                DriverCapability.UPTIME,
                DriverCapability.EVENTS,
                DriverCapability.CONTAINERS,
                *allowed,
            }
        )

    def init_host(self) -> None:
        """Do nothing: an engine that is not there now may come later."""

    def close(self) -> None:
        """End the events and let go of the connection."""
        if self._watch is not None:
            self._watch.stop()
        self._client.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the one node, called after the host, and whether the engine answers.

        It is there also without its engine, whose events tell that it is there.
        """
        if self._is_watched:
            return NodeListing((self._host,))
        fact = self._probes.ask(self._key("ping"), self._client.ping)
        problem = f"{self._source}: {fact.error}"
        return NodeListing((self._host,), () if fact.is_fresh else (problem,))

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read the machine's facts, the engine's and its containers, each as its own probe."""
        machine_probes = MachineProbes(self._host, self._roots, self._probes)
        pending_report = self._probes.start(self._key("engine"), self._read_engine)
        pending_listing = self._probes.start(self._key("containers"), self._read_containers)
        report = pending_report.fact()
        storage = self._read_storage(machine_probes, report)
        listing = pending_listing.fact()
        charges = Charges()
        if listing.value is None:
            self._reloaded_at = self._monotonic()  # nor is its word on itself believed any longer
        else:
            charges = self._charger.charge(listing.value.containers)
        machine = machine_probes.facts()
        self._bindable = Bindable(
            machine.numa.value or self._bindable.topology,
            self._bindable.gpus if machine.gpus.value is None else machine.gpus.value,
            self._bindable.pci if machine.pci.value is None else machine.pci.value,
        )
        guests = _part(listing, lambda value: self._list_guests(value, charges))
        return HostSnapshot(
            nodename=nodename,
            hypervisor=_part(report, lambda value: value.hypervisor),
            cpu=machine.cpu,
            memory=machine.memory,
            numa=machine.numa,
            storage=storage,
            pci=machine.pci,
            gpus=machine.gpus,
            system=machine.system,
            netdevs=machine.netdevs,
            mdev_types=machine.mdev_types,
            guests=guests,
            engine=_part(report, lambda value: value.engine),
            measured=charges.measured,
            warnings=(
                *self._evaluate_report(nodename, report.value),
                *self._evaluate_labels(nodename, charges),
            ),
        )

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        """Listen to the engine in a thread of its own."""

        def tell(event: EngineEvent) -> None:
            if event.container_id:
                self._reader.mark_changed(event.container_id)
            else:
                self._reloaded_at = self._monotonic()
            callback(NodeEvent(self._host, event.kind, _workload_of(event)))

        def notify_source() -> None:
            self._reader.mark_all_changed()
            self._reloaded_at = self._monotonic()
            callback(NodeEvent(self._host, EventKind.SOURCE))

        self._watch = EventWatch(self._client.copy(), tell, notify_source)
        self._watch.start()

    def get_host_uptime(self, nodename: str) -> timedelta:
        """Return the time since the kernel booted."""
        return read_uptime(self._roots)

    def host_power_action(self, action: str) -> None:
        """Switch this machine."""
        self._power.act(action)

    @property
    def _is_watched(self) -> bool:
        return self._watch is not None and self._watch.is_live

    # Probes: each runs in a thread of its own and may hang.

    def _read_engine(self) -> EngineReport:
        report = self._report
        if report is None or not self._is_report_good():
            began_at = self._monotonic()
            report = parse_report(self._client.info(), self._client.version(), self._source)
            self._report, self._report_at = report, began_at
        engine = report.engine
        if not engine.root_dir:
            return report
        mount = read_mount(self._below_root(engine.root_dir), self._roots)
        quotas = mount is not None and has_disk_quotas(
            engine.storage_driver, mount.fs_type, mount.options
        )
        return replace(report, engine=replace(engine, has_disk_quotas=quotas))

    def _is_report_good(self) -> bool:
        """Tell whether the last report still stands, as events would have told of another."""
        age = self._monotonic() - self._report_at
        return self._is_watched and age < REPORT_SECONDS and self._report_at > self._reloaded_at

    def _read_containers(self) -> ContainerListing:
        return self._reader.read(self._is_watched)

    # What follows from them.

    def _read_storage(self, probes: MachineProbes, report: Fact[EngineReport]) -> Fact[StorageInfo]:
        """Measure the engine's root directory, also while the engine does not answer."""
        if report.value is not None:
            self._root_dir = report.value.engine.root_dir or self._root_dir
        if not self._root_dir:
            return failed(self._source, report.error or "does not tell its root directory")
        fact = probes.start_storage(self._below_root(self._root_dir)).fact()
        if fact.value is None or not self._image_share:
            return fact
        reserved = int(fact.value.instances.total_mb * self._image_share)
        return fresh(fact.source, replace(fact.value, reserved_mb=reserved))

    def _list_guests(self, listing: ContainerListing, charges: Charges) -> GuestListing:
        """Return the containers as they are charged, with what each is bound to."""
        bindable = self._bindable
        return GuestListing(
            tuple(
                replace(guest, pins=bind_container(container, guest, bindable))
                for container, guest in zip(listing.containers, charges.guests, strict=True)
            ),
            listing.unreadable,
        )

    def _evaluate_labels(self, nodename: str, charges: Charges) -> list[HostWarning]:
        return [
            HostWarning(WarningKind.ENGINE_DATA, nodename, name, f"container {name}: {text}")
            for name, text in sorted(charges.wrong_labels.items())
        ]

    def _evaluate_report(self, nodename: str, report: EngineReport | None) -> list[HostWarning]:
        if report is None:
            return []
        found = [
            HostWarning(WarningKind.ENGINE_DATA, nodename, line, f"{self._source}: {line}")
            for line in report.complaints
        ]
        if report.daemon_name and not is_same_host(report.daemon_name, self._host):
            found.append(
                HostWarning(
                    WarningKind.ENGINE_NAME,
                    nodename,
                    "",
                    f"{self._source} calls its host {report.daemon_name}, and [DEFAULT] host is "
                    f"{self._host}: see that the engine runs on this machine",
                )
            )
        return found

    def _below_root(self, path: str) -> Path:
        return self._roots.rootfs / path.lstrip("/")

    def _key(self, name: str) -> ProbeKey:
        return ProbeKey(self._source, self._host, name)


def _workload_of(event: EngineEvent) -> str:
    if not event.container_id:
        return ""
    try:
        return parse_workload_uuid(event.container_id, event.name, event.labels)
    except ContainerError:
        return parse_workload_uuid(event.container_id, "", {})


def _part(fact: Fact[S], choose: Callable[[S], T]) -> Fact[T]:
    """Return what follows from one answer of the engine as a fact of its own."""
    if fact.value is None:
        return failed(fact.source, fact.error or "")
    return fresh(fact.source, choose(fact.value))
