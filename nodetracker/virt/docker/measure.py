"""Measure the usage of containers and images, and build guests from containers."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from nodetracker.model.errors import HostDataError, NotFoundError
from nodetracker.model.guest import Guest
from nodetracker.model.units import usage_mib_from_bytes
from nodetracker.virt.docker.client import EngineClient
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import assign_uuids, build_guest
from nodetracker.virt.docker.report import parse_image_bytes
from nodetracker.virt.host.cgroup import (
    CgroupUsage,
    GroupLimits,
    read_cgroup_usage,
    read_group_limits,
)
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import Pending, ProbeKey
from nodetracker.virt.usage import UsageMeter

STEP_MB = 64
"""Charges of containers without a memory limit are multiples of this many MiB."""

LOWER_SECONDS = 600.0
"""A charge is lowered only after the working set was smaller for this long."""

_MAX_COUNT = 2**64 - 1

IMAGES_SECONDS = 600.0
"""Interval between measurements of the images' disk usage, which is expensive for the engine."""


@dataclass(frozen=True, slots=True)
class BuiltGuests:
    """Containers as guests.

    Attributes:
        measured: values for the node's metrics; None for a value that is not known now,
            without those that cannot be known.
        invalid_labels: container's name -> what is wrong with its label.
        unmeasured: ids of containers without a memory limit that were never measured.
        uncounted: ids of running containers whose memory is counted neither by the
            kernel nor by the engine.
        unread_groups: control group -> why its limits were never read, of those with containers
            that have no limits of their own.
    """

    guests: tuple[Guest, ...] = ()
    measured: dict[str, int | None] = field(default_factory=dict)
    invalid_labels: dict[str, str] = field(default_factory=dict)
    unmeasured: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()
    unread_groups: Mapping[str, str] = field(default_factory=dict)


class GuestBuilder:
    """Builds guests from containers, by their limits or else by their measured usage.

    Args:
        measures_all: measure all containers, also those that have a memory limit.
        unlimited_memory_mb: charge of a container without a limit that was never measured.
    """

    def __init__(
        self,
        client: EngineClient,
        environment: DriverEnvironment,
        measures_all: bool,
        trusts_labels: bool,
        unlimited_memory_mb: int,
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
        self._unlimited_mb = unlimited_memory_mb
        self._charges = WorkingSetCharges()
        self._usage: dict[str, _Measurement] = {}
        self._groups: dict[str, GroupLimits] = {}
        self._unread_groups: dict[str, str] = {}
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
        containers = self._share_limits(containers)
        now = self._monotonic()
        uuids, label_errors = assign_uuids(containers, self._trusts_labels)
        names = {container.id: container.name for container in containers}
        with self._lock:
            alive = [container.id for container in measured_containers]
            new = {key: _Measurement(usage, now) for key, usage in (fact.value or {}).items()}
            self._usage = {key: self._usage[key] for key in alive if key in self._usage} | new
            charges = {
                container.id: self._charges.charge(
                    container.id, new[container.id].usage if container.id in new else None, now
                )
                for container in containers
            }
            self._charges.retain(alive)
            guests = tuple(
                build_guest(
                    container,
                    uuids[container.id],
                    self._unlimited_mb if (known := charges[container.id]) is None else known,
                )
                for container in containers
            )
            measured = {}
            if self._measures_all:
                measured = self._build_metrics(alive, fact.value, now)
            uncounted = frozenset(
                key for key, found in self._usage.items() if found.usage.working_set_bytes is None
            )
        invalid = {names[key]: text for key, text in label_errors.items()}
        unmeasured = frozenset(
            container.id
            for container in containers
            if container.memory_mb is None
            and container.holds_resources
            and charges[container.id] is None
        )
        unread = self._unread_groups
        return BuiltGuests(guests, measured, invalid, unmeasured, uncounted, unread)

    def _share_limits(self, containers: Sequence[Container]) -> Sequence[Container]:
        """Return the containers with the limits of their groups divided among them."""
        members: dict[str, list[Container]] = defaultdict(list)
        for container in containers:
            if container.group and container.holds_resources:
                members[container.group].append(container)
        self._unread_groups = {}
        if not members:
            return containers
        fact = self._probes.run(self._key("groups"), lambda: self._read_groups(members))
        found, errors = fact.value or ({}, {})
        known = self._groups | found
        self._groups = {group: known[group] for group in members if group in known}
        self._unread_groups = {
            group: errors.get(group) or fact.error or ""
            for group, containers in members.items()
            if group not in known and not all(map(_has_limits, containers))
        }
        shared = {
            container.id: container
            for group, limits in self._groups.items()
            for container in share_limits(members[group], limits)
        }
        return [shared.get(container.id, container) for container in containers]

    def _read_groups(
        self, members: Mapping[str, Sequence[Container]]
    ) -> tuple[dict[str, GroupLimits], dict[str, str]]:
        """Read the limits of groups; return them, and why others cannot be read."""
        found, errors = {}, {}
        for group, containers in members.items():
            pids = [container.pid for container in containers if container.pid]
            try:
                found[group] = read_group_limits(pids, group, self._roots)
            except HostDataError as error:
                errors[group] = str(error)
        return found, errors

    def _read_usage(self, containers: Sequence[Container]) -> dict[str, CgroupUsage]:
        """Measure containers: from cgroup files, else from the engine for half the timeout.

        The engine is asked in turns, first for those that were not measured for longest.
        """
        deadline = self._monotonic() + self._probes.timeout_seconds / 2
        found: dict[str, CgroupUsage] = {}
        left = []
        for container in containers:
            with suppress(HostDataError):  # only this one cannot be measured
                usage = read_cgroup_usage(container.pid, container.id, self._roots)
                if usage is not None:
                    found[container.id] = usage
                if usage is None or usage.working_set_bytes is None:
                    left.append(container.id)
        known = self._usage
        for container_id in sorted(left, key=lambda key: known[key].at if key in known else -inf):
            if self._monotonic() >= deadline:
                break
            with suppress(NotFoundError, HostDataError):  # it has just ended, or the like
                raw = self._client.get_statistics(container_id)
                found[container_id] = parse_statistics(raw, self._client.source)
        return found

    def _build_metrics(
        self, alive: Sequence[str], measured: Collection[str] | None, now: float
    ) -> dict[str, int | None]:
        """Return the metrics: sums of what is known of each container.

        Args:
            alive: ids of the containers that are to be measured.
            measured: those of them that were measured now, None if that failed.
        """
        amounts = [found.usage.working_set_bytes for found in self._usage.values()]
        counted = [amount for amount in amounts if amount is not None]
        is_whole = measured is not None and len(amounts) == len(alive)
        cpu_ns = None
        if measured is not None:
            cpu_ns = {key: self._usage[key].usage.cpu_ns for key in measured}
        others = self._usage.keys() - (cpu_ns or {}).keys()
        used = self._meter.observe(cpu_ns, sum(counted) if is_whole else None, now, others)
        if len(counted) < len(amounts):
            del used["containers_memory_used_mb"]
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


def _has_limits(container: Container) -> bool:
    return container.has_cpu_limit and container.memory_mb is not None


def share_limits(members: Sequence[Container], limits: GroupLimits) -> list[Container]:
    """Divide the limits of a group among its containers if one of them has none of its own.

    The charges are then the group's limit in total: the others have their own limits, and the
    first without one has the rest.
    """
    found = {container.id: container for container in members}
    if limits.vcpu_milli is not None:
        own = {c.id: c.vcpu_milli if c.has_cpu_limit else None for c in members}
        for key, amount in _divide(own, limits.vcpu_milli).items():
            found[key] = replace(found[key], vcpu_milli=amount, cpu_rule="group")
    if limits.memory_bytes is not None:
        own = {container.id: container.memory_mb for container in members}
        for key, amount in _divide(own, usage_mib_from_bytes(limits.memory_bytes)).items():
            found[key] = replace(found[key], memory_mb=amount)
    return list(found.values())


def _divide(own: Mapping[str, int | None], limit: int) -> dict[str, int]:
    """Return what each container is charged of a limit; nothing if each has its own.

    >>> _divide({"a": 100, "b": None, "c": None}, 250)
    {'a': 100, 'b': 150, 'c': 0}
    """
    if None not in own.values():
        return {}
    divided, left = {}, limit
    for key, amount in sorted(own.items(), key=lambda item: item[1] is None):
        divided[key] = left if amount is None else min(amount, left)
        left -= divided[key]
    return divided


class WorkingSetCharges:
    """Charges of containers without a memory limit: raised immediately, lowered after a while."""

    def __init__(self) -> None:
        self._charges: dict[str, _Charge] = {}

    def charge(self, container_id: str, usage: CgroupUsage | None, now: float) -> int | None:
        """Return the charge of a container in MiB, None before its first measurement.

        Args:
            usage: None if it could not be measured: the charge is unchanged.
        """
        known = self._charges.get(container_id)
        if usage is None or usage.working_set_bytes is None:
            return None if known is None else known.charged_mb
        measured_mb = max(1, -(-usage_mib_from_bytes(usage.working_set_bytes) // STEP_MB)) * STEP_MB
        if known is None:
            known = self._charges[container_id] = _Charge(measured_mb, measured_mb, None)
        known.update(measured_mb, now)
        return known.charged_mb

    def retain(self, container_ids: Collection[str]) -> None:
        for container_id in self._charges.keys() - set(container_ids):
            del self._charges[container_id]


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The use of one container, and when it was measured by the monotonic clock."""

    usage: CgroupUsage
    at: float


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
    """Parse the answer to ``/containers/ID/stats``.

    Without the kernel's memory controller it has no memory, or 0 (Podman 4.3).
    """
    try:
        cpu_ns = _count(raw["cpu_stats"]["cpu_usage"]["total_usage"])  # type: ignore[index]
        memory = raw["memory_stats"]  # type: ignore[index]
        usage = _count(memory.get("usage") or 0)
        detail = memory.get("stats") or {}
        inactive = _count(detail.get("total_inactive_file", detail.get("inactive_file", 0)))
        return CgroupUsage(cpu_ns, max(0, usage - inactive) if usage > 0 else None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostDataError(source, "container statistics have no counters") from error


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise ValueError(value)
    return value
