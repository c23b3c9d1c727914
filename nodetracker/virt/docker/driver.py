"""Read this machine as a container host: its facts, its engine and containers as guests."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodetracker.model.amount_text import render_mib
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.errors import HostDataError
from nodetracker.model.fact import Fact, failed
from nodetracker.model.guest import (
    GuestListing,
    PartialGuest,
    WorkloadKind,
    derive_container_uuid,
)
from nodetracker.model.host import ContainerEngine, StorageInfo
from nodetracker.model.node import HostSnapshot, NodeListing
from nodetracker.model.text import name_some
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import DriverCapability
from nodetracker.virt.device_nodes import SOURCES, DeviceNodes, read_device_nodes
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container, ContainerError
from nodetracker.virt.docker.events import EngineEvent, EventListener
from nodetracker.virt.docker.guests import (
    GpuHooks,
    HostTopology,
    derive_pins,
    describe_gpus,
    parse_workload_uuid,
    read_gpu_hooks,
)
from nodetracker.virt.docker.listing import ContainerListing, ContainerReader
from nodetracker.virt.docker.measure import STEP_MB, BuiltGuests, GuestBuilder
from nodetracker.virt.docker.report import EngineReport, ReportReader, has_disk_quotas, is_same_host
from nodetracker.virt.docker.starts import ContainerStartReader, StartRules
from nodetracker.virt.host.disk import read_mount
from nodetracker.virt.machine import MachineDriver, MachineProbes
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeKey

_SANDBOX = re.compile(r"\bkata\b")
"""In names of runtimes that start a virtual machine, as ``kata-runtime``."""


class DockerDriver(MachineDriver):
    """One container engine on this machine; its node is called after the host.

    Args:
        reserve_disk_for_image: share of the engine's disk that is reserved for images.
        measures_containers: measure all containers, also those whose usage follows from limits.
        unlimited_memory_mb: charge of a container without a limit that was never measured.
        image_store_path: where images and containers are, "" = as the engine reports.
    """

    features = frozenset({DriverCapability.EVENTS, DriverCapability.CONTAINERS})

    def __init__(
        self,
        environment: DriverEnvironment,
        client: EngineClient,
        reserve_disk_for_image: float = 0.0,
        measures_containers: bool = True,
        trusts_labels: bool = True,
        unlimited_memory_mb: int = STEP_MB,
        image_store_path: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(environment)
        self._client = client
        self._trusts_labels = trusts_labels
        self._source = client.source
        self._image_share = reserve_disk_for_image
        self._has_quotas = False
        self._monotonic = monotonic
        self._reader = ContainerReader(client, monotonic)
        self._listener: EventListener | None = None
        self._guest_builder = GuestBuilder(
            client, environment, measures_containers, trusts_labels, unlimited_memory_mb, monotonic
        )
        self._unlimited_mb = unlimited_memory_mb
        self._report_reader = ReportReader(client, monotonic)
        self._root_dir = ""
        self._image_store_path = image_store_path
        self._store_dir = image_store_path
        self._host_topology = HostTopology()
        self._default_runtime: str | None = None
        self._hooks = GpuHooks()
        self._has_hooks = False

    def make_start_reader(self, rules: StartRules) -> ContainerStartReader:
        """Return what reads the questions of the engine's plugin."""
        return ContainerStartReader(
            rules, self._reader.list_known, self._read_host_of, self._with_requested_gpus
        )

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        self._client.close()

    def get_available_nodes(self) -> NodeListing:
        """Return the one node, called after the host, and whether the engine answers.

        The node exists even without its engine. While events arrive, the engine
        is known to answer.
        """
        if self._has_live_events:
            return NodeListing((self._host,))
        fact = self._probes.run(self._key("ping"), self._client.ping)
        if fact.is_fresh:
            return NodeListing((self._host,))
        return NodeListing((self._host,), (f"{self._source}: {fact.error}",), is_ready=False)

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Read the facts of the machine and the engine and its containers, in separate probes."""
        machine_probes = self._start_machine()
        pending_report = self._probes.start(self._key("engine"), self._read_engine)
        pending_listing = self._probes.start(self._key("containers"), self._read_containers)
        report = pending_report.fact()
        storage = self._read_storage(machine_probes, report)
        listing = pending_listing.fact()
        built = BuiltGuests()
        if listing.value is None:
            self._report_reader.expire()
        else:
            built = self._guest_builder.build(listing.value.containers)
        machine = machine_probes.snapshot()
        if report.value is not None:
            if report.value.default_runtime is not None:
                self._default_runtime = report.value.default_runtime
            self._has_hooks = report.value.engine.name == "podman"
        nodes = self._host_topology.nodes
        containers = () if listing.value is None else listing.value.containers
        if any(found.devices or found.gpu_names or found.visible_gpus for found in containers):
            paths = {path for found in containers for path in found.devices}
            devices = self._probes.run(self._key("devices"), partial(self._read_devices, paths))
            if devices.value is None:
                nodes = DeviceNodes(problems=dict.fromkeys(SOURCES, devices.error or ""))
            else:
                nodes, self._hooks = devices.value
        self._host_topology = HostTopology(
            machine.numa.value or self._host_topology.topology,
            self._host_topology.gpus if machine.gpus.value is None else machine.gpus.value,
            self._host_topology.pci if machine.pci.value is None else machine.pci.value,
            nodes,
        )
        return replace(
            machine,
            hypervisor=report.map(lambda value: value.hypervisor),
            storage=storage,
            guests=listing.map(lambda value: self._list_guests(value, built)),
            engine=report.map(lambda value: value.engine),
            measured=built.measured,
            warnings=(
                *self._evaluate_report(nodename, report.value),
                *self._evaluate_labels(nodename, built),
                *self._evaluate_memory(nodename, built),
                *self._evaluate_groups(nodename, built),
                *self._evaluate_sandboxes(nodename, containers),
                *self._evaluate_storage(nodename, storage.value),
            ),
        )

    def refresh(self) -> None:
        self._reader.mark_all_changed()
        self._report_reader.expire()

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        def on_event(event: EngineEvent) -> None:
            if event.container_id:
                self._reader.mark_changed(event.container_id)
            else:
                self._report_reader.expire()
            callback(NodeEvent(self._host, event.kind, self._workload_of(event)))

        def on_source() -> None:
            self._reader.mark_all_changed()
            self._report_reader.end_pause()
            callback(NodeEvent(self._host, EventKind.SOURCE))

        self._listener = EventListener(self._client.copy(), on_event, on_source)
        self._listener.start()

    @property
    def _has_live_events(self) -> bool:
        return self._listener is not None and self._listener.is_live

    # Probes: each runs in a separate thread and may hang.

    def _read_engine(self) -> EngineReport:
        report = self._report_reader.read(self._has_live_events)
        engine = report.engine
        if not engine.root_dir:
            return report
        return replace(report, engine=replace(engine, has_disk_quotas=self._read_quotas(engine)))

    def _read_quotas(self, engine: ContainerEngine) -> bool:
        """Return whether the engine can limit disks, as last known while it cannot be read."""
        with suppress(HostDataError):  # a problem of the storage fact, which reads the same file
            mount = read_mount(self._below_root(engine.root_dir), self._roots)
            self._has_quotas = mount is not None and has_disk_quotas(
                engine.storage_driver, mount.fs_type, mount.options
            )
        return self._has_quotas

    def _read_containers(self) -> ContainerListing:
        return self._reader.read(self._has_live_events)

    # Facts derived from the probes.

    def _read_storage(self, probes: MachineProbes, report: Fact[EngineReport]) -> Fact[StorageInfo]:
        """Measure the filesystem of images and containers, even while the engine is down."""
        if report.value is not None:
            engine = report.value.engine
            self._root_dir = engine.root_dir or self._root_dir
            self._store_dir = self._image_store_path or engine.image_store_dir
        if not self._root_dir:
            return failed(self._source, report.error or "does not report its root directory")
        root = self._below_root(self._root_dir)
        if not self._store_dir:
            return probes.start_storage(root).fact().map(self._reserve)
        store = self._below_root(self._store_dir)
        storage = probes.start_storage(store, root).fact()
        if storage.value is None:
            hint = "[docker] image_store_path says where the engine has its images"
            return failed(storage.source, f"{storage.error}; {hint}")
        return storage.map(self._reserve)

    def _reserve(self, storage: StorageInfo) -> StorageInfo:
        if not self._image_share:
            return storage
        images_mb = int(storage.instances.total_mb * self._image_share)
        return replace(storage, reserved_mb=storage.reserved_mb + images_mb)

    def _read_host_of(self, container: Container) -> HostTopology:
        """Return what a container can be bound to; audits read device nodes if any has some."""
        if not (container.devices or container.gpu_names):
            return self._host_topology
        nodes = read_device_nodes(self._roots, container.devices)
        return replace(self._host_topology, nodes=nodes)

    def _list_guests(self, listing: ContainerListing, built: BuiltGuests) -> GuestListing:
        """Return the containers as guests, with their pins; those as last read are partial."""
        guests = []
        partial = []
        for asked, built_guest in zip(listing.containers, built.guests, strict=True):
            container = self._with_requested_gpus(asked)
            pins = derive_pins(container, built_guest, self._host_topology)
            details = {**built_guest.details, **describe_gpus(container)}
            if container.id in built.uncounted:
                details["memory_use"] = "unknown"
            guest = replace(built_guest, pins=pins, details=details)
            problem = listing.outdated.get(container.id, "")
            if container.id in built.unmeasured:
                unmeasured = PartialGuest.of(guest, problem)
                partial.append(
                    replace(unmeasured, memory_mb=None, assumed_memory_mb=guest.memory_mb)
                )
            elif problem:
                partial.append(PartialGuest.of(guest, problem))
            else:
                guests.append(guest)
        uuids = {guest.uuid for guest in built.guests}
        for container in listing.unread:
            uuid = self._find_uuid(container.id, container.name, container.labels)
            partial.append(
                PartialGuest(
                    derive_container_uuid(container.id) if uuid in uuids else uuid,
                    container.name,
                    WorkloadKind.CONTAINER,
                    container.power_state,
                    problem=listing.outdated[container.id],
                    holds_nothing=container.is_dead,
                )
            )
        return GuestListing(tuple(guests), listing.unreadable, partial=tuple(partial))

    def _with_requested_gpus(self, container: Container) -> Container:
        """Return a container with the GPUs of its environment, if something obeys that.

        So may the engine's default runtime while it was never read.
        """
        if not container.visible_gpus or container.gpu_names:
            return container
        has_hook = self._has_hooks and self._hooks.apply_to(container)
        default = "nvidia" if self._default_runtime is None else self._default_runtime
        return container.obey(default, has_hook)

    def _read_devices(self, paths: Collection[str]) -> tuple[DeviceNodes, GpuHooks]:
        return read_device_nodes(self._roots, paths), read_gpu_hooks(self._roots)

    def _evaluate_labels(self, nodename: str, built: BuiltGuests) -> list[HostWarning]:
        return [
            HostWarning(WarningKind.ENGINE_DATA, nodename, name, f"container {name}: {text}")
            for name, text in sorted(built.invalid_labels.items())
        ]

    def _evaluate_memory(self, nodename: str, built: BuiltGuests) -> list[HostWarning]:
        if not built.uncounted:
            return []
        text = (
            f"{self._source}: the memory use of containers is unknown: the host's memory "
            "controller is missing, disabled or not delegated (cgroup_enable=memory); those "
            "without a limit are charged as last measured, else "
            f"{render_mib(self._unlimited_mb)} ([docker] unlimited_memory_mb)"
        )
        return [HostWarning(WarningKind.ENGINE_DATA, nodename, "memory controller", text)]

    def _evaluate_sandboxes(
        self, nodename: str, containers: Iterable[Container]
    ) -> list[HostWarning]:
        names = [
            found.name
            for found in containers
            if found.holds_resources
            and _SANDBOX.search(found.runtime or self._default_runtime or "")
        ]
        if not names:
            return []
        text = (
            f"{self._source}: each of {name_some(names)} runs in a virtual machine of Kata "
            "Containers, whose own memory (default_memory) and CPUs are not charged; reserve them, "
            "e.g. by [compute] reserved_host_memory_mb"
        )
        return [HostWarning(WarningKind.ENGINE_DATA, nodename, "sandboxes", text)]

    def _evaluate_groups(self, nodename: str, built: BuiltGuests) -> list[HostWarning]:
        return [
            HostWarning(
                WarningKind.ENGINE_DATA,
                nodename,
                group,
                f"{self._source}: the limits of control group {group} cannot be read: {reason}; "
                "its containers are charged as if it had none",
            )
            for group, reason in sorted(built.unread_groups.items())
        ]

    def _evaluate_storage(self, nodename: str, storage: StorageInfo | None) -> list[HostWarning]:
        if storage is None or storage.further is None:
            return []
        text = (
            f"{self._source}: images and containers are on the filesystem of "
            f"{storage.instances.path}, volumes and other files on that of {storage.further.path}; "
            "the node's disk is the first, disk_available_least the smaller"
        )
        return [HostWarning(WarningKind.ENGINE_DATA, nodename, "image store", text)]

    def _evaluate_report(self, nodename: str, report: EngineReport | None) -> list[HostWarning]:
        if report is None:
            return []
        found = [
            HostWarning(WarningKind.ENGINE_DATA, nodename, line, f"{self._source}: {line}")
            for line in report.problems
        ]
        if report.daemon_name and not is_same_host(report.daemon_name, self._host):
            found.append(
                HostWarning(
                    WarningKind.ENGINE_NAME,
                    nodename,
                    self._source,
                    f"{self._source} reports its host as {report.daemon_name}, but [DEFAULT] host "
                    f"is {self._host}: check that the engine runs on this machine",
                )
            )
        return found

    def _workload_of(self, event: EngineEvent) -> str:
        if not event.container_id:
            return ""
        return self._find_uuid(event.container_id, event.name, event.labels)

    def _find_uuid(self, container_id: str, name: str, labels: Mapping[str, str]) -> str:
        """Return the uuid of a container's workload, as far as its label is valid."""
        try:
            return parse_workload_uuid(container_id, name, labels, self._trusts_labels)
        except ContainerError:
            return derive_container_uuid(container_id)

    def _below_root(self, path: str) -> Path:
        return self._roots.rootfs / path.lstrip("/")

    def _key(self, name: str) -> ProbeKey:
        return ProbeKey(self._source, self._host, name)
