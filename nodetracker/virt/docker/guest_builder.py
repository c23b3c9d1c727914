"""Build guests from containers, and measure the usage of containers and images."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodetracker.host.cgroup import CgroupUsage, read_cgroup_usage
from nodetracker.host.roots import Roots
from nodetracker.model.errors import HostDataError, NotFoundError
from nodetracker.model.guest import Guest
from nodetracker.model.units import usage_mib_from_bytes
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import build_guest
from nodetracker.virt.docker.info import parse_image_bytes
from nodetracker.virt.docker.measure import CpuMeter, WorkingSetCharges, parse_statistics
from nodetracker.virt.docker.workloads import assign_uuids
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner

IMAGES_SECONDS = 600.0
"""Interval between measurements of the images' disk usage, which is expensive for the engine."""


@dataclass(frozen=True, slots=True)
class BuiltGuests:
    """Containers as guests.

    Attributes:
        guests: in the containers' order.
        measured: values for the node's metrics; None for a value that is not known now.
        invalid_labels: container's name -> what is wrong with its label.
    """

    guests: tuple[Guest, ...] = ()
    measured: dict[str, int | None] = field(default_factory=dict)
    invalid_labels: dict[str, str] = field(default_factory=dict)


class GuestBuilder:
    """Builds guests from containers, by their limits or else by their measured usage.

    Args:
        nodename: node of its probes.
        measures_all: measure all containers, also those that have a memory limit.
        monotonic: monotonic clock, in seconds.
        trusts_labels: take workloads' uuids from labels.
    """

    def __init__(
        self,
        client: EngineClient,
        nodename: str,
        roots: Roots,
        probes: ProbeRunner,
        measures_all: bool,
        monotonic: Callable[[], float],
        trusts_labels: bool = True,
    ) -> None:
        self._client = client
        self._nodename = nodename
        self._roots = roots
        self._probes = probes
        self._measures_all = measures_all
        self._monotonic = monotonic
        self._trusts_labels = trusts_labels
        self._lock = threading.Lock()  # readings of one node may overlap
        self._charges = WorkingSetCharges()
        self._cpu_meter = CpuMeter()
        self._images: Pending[int] | None = None
        self._images_at: float | None = None
        self._images_mb: int | None = None

    def build(self, containers: Sequence[Container]) -> BuiltGuests:
        """Measure containers, within the timeout of a probe, and build a guest from each."""
        measured_containers = [
            container
            for container in containers
            if container.is_alive and (self._measures_all or container.memory_mb is None)
        ]
        fact = self._probes.run(self._key("use"), lambda: self._read_usage(measured_containers))
        usage = fact.value or {}
        now = self._monotonic()
        uuids, label_errors = assign_uuids(containers, self._trusts_labels)
        names = {container.id: container.name for container in containers}
        with self._lock:
            guests = tuple(
                build_guest(
                    container,
                    uuids[container.id],
                    self._charges.charge(
                        container.id,
                        usage[container.id].working_set_bytes if container.id in usage else None,
                        now,
                    ),
                )
                for container in containers
            )
            self._charges.retain([container.id for container in measured_containers])
            measured = self._build_metrics(fact.value, now) if self._measures_all else {}
        invalid = {names[key]: text for key, text in label_errors.items()}
        return BuiltGuests(guests, measured, invalid)

    def _read_usage(self, containers: Sequence[Container]) -> dict[str, CgroupUsage]:
        """Measure containers: from cgroup files, else from the engine for half the timeout."""
        deadline = self._monotonic() + self._probes.timeout_seconds / 2
        found = {}
        for container in containers:
            try:
                usage = read_cgroup_usage(container.pid, container.id, self._roots)
                if usage is None and self._monotonic() < deadline:
                    raw = self._client.get_statistics(container.id)
                    usage = parse_statistics(raw, self._client.source)
            except (NotFoundError, HostDataError):
                continue  # the container has just ended, or only this one cannot be measured
            if usage is not None:
                found[container.id] = usage
        return found

    def _build_metrics(
        self, usage: dict[str, CgroupUsage] | None, now: float
    ) -> dict[str, int | None]:
        memory_mb: int | None = None
        cpu_milli: int | None = None
        if usage is not None:
            memory_mb = usage_mib_from_bytes(sum(one.working_set_bytes for one in usage.values()))
            counters = {container_id: one.cpu_ns for container_id, one in usage.items()}
            cpu_milli = self._cpu_meter.observe(counters, now)
        return {
            "containers_memory_used_mb": memory_mb,
            "containers_cpu_used_milli": cpu_milli,
            "images_disk_used_mb": self._update_image_usage(now),
        }

    def _update_image_usage(self, now: float) -> int | None:
        """Return the last measured disk usage of images; a due measurement is not waited for."""
        if self._images is not None and self._images.is_done:
            measured_mb, self._images = self._images.fact().value, None
            self._images_mb = self._images_mb if measured_mb is None else measured_mb
        is_due = self._images_at is None or now - self._images_at >= IMAGES_SECONDS
        if is_due and self._images is None:
            self._images_at = now
            self._images = self._probes.start(self._key("images"), self._read_images)
        return self._images_mb

    def _read_images(self) -> int:
        answer = self._client.get_disk_usage()
        return usage_mib_from_bytes(parse_image_bytes(answer, self._client.source))

    def _key(self, name: str) -> ProbeKey:
        return ProbeKey(self._client.source, self._nodename, name)
