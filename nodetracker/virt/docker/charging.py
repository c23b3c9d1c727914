"""What containers are charged and what they really use, measured beside the listing."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodetracker.errors import HostDataError, NotFoundError
from nodetracker.host.cgroup import CgroupUsage, read_cgroup_usage
from nodetracker.host.roots import Roots
from nodetracker.model.guest import Guest
from nodetracker.units import usage_mib_from_bytes
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import build_guest
from nodetracker.virt.docker.info import parse_image_bytes
from nodetracker.virt.docker.measure import CpuMeter, WorkingSets, parse_statistics
from nodetracker.virt.docker.workloads import assign_uuids
from nodetracker.virt.probes import Pending, ProbeKey, ProbeRunner

IMAGES_SECONDS = 600.0
"""The disk of images is measured this often, as the engine walks through all of them."""


@dataclass(frozen=True, slots=True)
class Charges:
    """Containers as guests.

    Attributes:
        guests: in the containers' order.
        measured: what joins the node's metrics; None where there is no number now.
        wrong_labels: container's name -> what is wrong with its label.
    """

    guests: tuple[Guest, ...] = ()
    measured: dict[str, int | None] = field(default_factory=dict)
    wrong_labels: dict[str, str] = field(default_factory=dict)


class ContainerCharger:
    """Makes guests of containers, by what they were given or else by what they use.

    Args:
        nodename: names its probes.
        measures: whether more is measured than charging needs.
        monotonic: seconds that never go back.
    """

    def __init__(
        self,
        client: EngineClient,
        nodename: str,
        roots: Roots,
        probes: ProbeRunner,
        measures: bool,
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._nodename = nodename
        self._roots = roots
        self._probes = probes
        self._measures = measures
        self._monotonic = monotonic
        self._lock = threading.Lock()  # readings of one node may overlap
        self._working_sets = WorkingSets()
        self._cpu_meter = CpuMeter()
        self._images: Pending[int] | None = None
        self._images_at: float | None = None
        self._images_mb: int | None = None

    def charge(self, containers: Sequence[Container]) -> Charges:
        """Measure what must be, within the budget of a probe, and charge every container."""
        alive = [c for c in containers if c.is_alive and (self._measures or c.memory_mb is None)]
        fact = self._probes.ask(self._key("use"), lambda: self._read_use(alive))
        use = fact.value or {}
        now = self._monotonic()
        uuids, wrong = assign_uuids(containers)
        names = {container.id: container.name for container in containers}
        with self._lock:
            guests = tuple(
                build_guest(
                    container,
                    uuids[container.id],
                    self._working_sets.charge(
                        container.id,
                        use[container.id].working_set_bytes if container.id in use else None,
                        now,
                    ),
                )
                for container in containers
            )
            self._working_sets.keep([container.id for container in alive])
            measured = self._measure(fact.value, now) if self._measures else {}
        return Charges(guests, measured, {names[key]: text for key, text in wrong.items()})

    def _read_use(self, containers: Sequence[Container]) -> dict[str, CgroupUsage]:
        """Measure containers: by the kernel's files, else by the engine for half a budget."""
        deadline = self._monotonic() + self._probes.timeout_seconds / 2
        found = {}
        for container in containers:
            try:
                usage = read_cgroup_usage(container.pid, container.id, self._roots)
                if usage is None and self._monotonic() < deadline:
                    raw = self._client.read_statistics(container.id)
                    usage = parse_statistics(raw, self._client.source)
            except (NotFoundError, HostDataError):
                continue  # it ends just now, or is the only one that cannot be measured
            if usage is not None:
                found[container.id] = usage
        return found

    def _measure(self, use: dict[str, CgroupUsage] | None, now: float) -> dict[str, int | None]:
        memory_mb: int | None = None
        cpu_milli: int | None = None
        if use is not None:
            memory_mb = usage_mib_from_bytes(sum(one.working_set_bytes for one in use.values()))
            cpu_milli = self._cpu_meter.observe({key: one.cpu_ns for key, one in use.items()}, now)
        return {
            "containers_memory_used_mb": memory_mb,
            "containers_cpu_used_milli": cpu_milli,
            "images_disk_used_mb": self._take_images(now),
        }

    def _take_images(self, now: float) -> int | None:
        """Return what images took when they were measured last; no reading waits for it."""
        if self._images is not None and self._images.is_done:
            measured_mb, self._images = self._images.fact().value, None
            self._images_mb = self._images_mb if measured_mb is None else measured_mb
        is_due = self._images_at is None or now - self._images_at >= IMAGES_SECONDS
        if is_due and self._images is None:
            self._images_at = now
            self._images = self._probes.start(self._key("images"), self._read_images)
        return self._images_mb

    def _read_images(self) -> int:
        answer = self._client.read_disk_use()
        return usage_mib_from_bytes(parse_image_bytes(answer, self._client.source))

    def _key(self, name: str) -> ProbeKey:
        return ProbeKey(self._client.source, self._nodename, name)
