"""Measure the usage of containers and images, and build guests from containers."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from nodetracker.model.errors import HostDataError, NotFoundError
from nodetracker.model.guest import Guest
from nodetracker.model.units import usage_mib_from_bytes
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import assign_uuids, build_guest
from nodetracker.virt.docker.report import parse_image_bytes
from nodetracker.virt.host.cgroup import CgroupUsage, read_cgroup_usage
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey
from nodetracker.virt.usage import UsageMeter

STEP_MB = 64
"""Charges of containers without a memory limit are multiples of this many MiB."""

LOWER_SECONDS = 600.0
"""A charge is lowered only after the working set was smaller for this long."""

IMAGES_SECONDS = 600.0
"""Interval between measurements of the images' disk usage, which is expensive for the engine."""


@dataclass(frozen=True, slots=True)
class BuiltGuests:
    """Containers as guests.

    Attributes:
        measured: values for the node's metrics; None for a value that is not known now.
        invalid_labels: container's name -> what is wrong with its label.
    """

    guests: tuple[Guest, ...] = ()
    measured: dict[str, int | None] = field(default_factory=dict)
    invalid_labels: dict[str, str] = field(default_factory=dict)


class GuestBuilder:
    """Builds guests from containers, by their limits or else by their measured usage.

    Args:
        measures_all: measure all containers, also those that have a memory limit.
    """

    def __init__(
        self,
        client: EngineClient,
        environment: DriverEnvironment,
        measures_all: bool,
        trusts_labels: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._nodename = environment.host
        self._roots = environment.roots
        self._probes = environment.probes
        self._measures_all = measures_all
        self._monotonic = monotonic
        self._trusts_labels = trusts_labels
        self._lock = threading.Lock()  # readings of one node may overlap
        self._charges = WorkingSetCharges()
        self._meter = UsageMeter("containers")
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
                    self._charges.charge(container.id, usage.get(container.id), now),
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
        memory_bytes = cpu_ns = None
        if usage is not None:
            memory_bytes = sum(one.working_set_bytes for one in usage.values())
            cpu_ns = {container_id: one.cpu_ns for container_id, one in usage.items()}
        used = self._meter.observe(cpu_ns, memory_bytes, now)
        return used | {"images_disk_used_mb": self._update_image_usage(now)}

    def _update_image_usage(self, now: float) -> int | None:
        """Return the last measured disk usage of images; a due measurement is not waited for."""
        if self._images is not None and self._images.call.is_done:
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


class WorkingSetCharges:
    """Charges of containers without a memory limit: raised immediately, lowered after a while."""

    def __init__(self) -> None:
        self._charges: dict[str, _Charge] = {}

    def charge(self, container_id: str, usage: CgroupUsage | None, now: float) -> int:
        """Return the charge of a container in MiB.

        Args:
            usage: None if it could not be measured: the charge is unchanged,
                and the first one is `STEP_MB`.
        """
        known = self._charges.get(container_id)
        if usage is None:
            return STEP_MB if known is None else known.charged_mb
        measured_mb = max(1, -(-usage_mib_from_bytes(usage.working_set_bytes) // STEP_MB)) * STEP_MB
        if known is None:
            known = self._charges[container_id] = _Charge(measured_mb, measured_mb, None)
        known.update(measured_mb, now)
        return known.charged_mb

    def retain(self, container_ids: Collection[str]) -> None:
        for container_id in self._charges.keys() - set(container_ids):
            del self._charges[container_id]


@dataclass(slots=True)
class _Charge:
    """One container's charge, and the peak since its working set became smaller."""

    charged_mb: int
    peak_mb: int
    smaller_since: float | None

    def update(self, measured_mb: int, now: float) -> None:
        if measured_mb >= self.charged_mb:
            self.charged_mb, self.smaller_since = measured_mb, None
        elif self.smaller_since is None:
            self.peak_mb, self.smaller_since = measured_mb, now
        else:
            self.peak_mb = max(self.peak_mb, measured_mb)
            if now - self.smaller_since >= LOWER_SECONDS:
                self.charged_mb, self.smaller_since = self.peak_mb, None


def parse_statistics(raw: object, source: str) -> CgroupUsage:
    """Parse the answer to ``/containers/ID/stats``."""
    try:
        cpu_ns = raw["cpu_stats"]["cpu_usage"]["total_usage"]  # type: ignore[index]
        memory = raw["memory_stats"]  # type: ignore[index]
        usage = memory["usage"]
        detail = memory.get("stats") or {}
        inactive = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return CgroupUsage(int(cpu_ns), max(0, int(usage) - int(inactive)))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise HostDataError(source, "container statistics have no counters") from error
