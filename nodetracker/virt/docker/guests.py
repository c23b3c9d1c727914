"""Build the guest of a container: its workload, what it uses, and what it is bound to."""

import json
import re
import uuid as uuid_module
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import (
    GPU_NAMES,
    CpuAffinity,
    Guest,
    GuestPins,
    WorkloadKind,
    derive_container_uuid,
)
from nodetracker.model.host import Gpu
from nodetracker.model.numa import CellAssignment, NumaTopology
from nodetracker.model.pci import PciDevice
from nodetracker.virt.device_nodes import DeviceNodes
from nodetracker.virt.docker.containers import Container, ContainerError
from nodetracker.virt.host.roots import Roots, list_directory, read_optional_text
from nodetracker.virt.use import ALL, UseResolver, bind

WORKLOAD_LABEL = "nodetracker.workload"
PROJECT_LABEL = "nodetracker.project"
_POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
_POD_NAME_LABEL = "io.kubernetes.pod.name"
_COMPOSE_PROJECT_LABEL = "com.docker.compose.project"
_COMPOSE_SERVICE_LABEL = "com.docker.compose.service"
_SWARM_STACK_LABEL = "com.docker.stack.namespace"
_SWARM_SERVICE_LABEL = "com.docker.swarm.service.name"
_ZUN_NAME = re.compile(r"zun-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")


def build_guest(container: Container, uuid: str, working_set_mb: int) -> Guest:
    """Build the guest of a container.

    A container that does not run and will not be restarted by its engine uses
    only its disk; CPU and memory count again when it is started.

    Args:
        working_set_mb: memory usage of a container without a memory limit.
    """
    holds = container.holds_resources
    memory_mb = working_set_mb if container.memory_mb is None else container.memory_mb
    return Guest(
        uuid=uuid,
        name=container.name,
        kind=WorkloadKind.CONTAINER,
        vcpu_milli=container.vcpu_milli if holds else 0,
        memory_mb=memory_mb if holds else 0,
        disk_mb=container.disk_mb,
        power_state=container.power_state,
        project_id=parse_project(container.labels),
        details=_details(container),
    )


def _details(container: Container) -> Mapping[str, Any]:
    """Return further data of a container for operators; keys without a value are omitted."""
    unlimited = [
        name
        for name, limit in (
            ("cpu", container.vcpu_milli),
            ("memory", container.memory_mb),
            ("disk", container.disk_mb),
        )
        if not limit
    ]
    details: dict[str, Any] = {
        "container_id": container.id,
        "image": container.image,
        "unlimited": unlimited,
        "cpu_rule": container.cpu_rule,
        "restart_policy": "" if container.restart_policy == "no" else container.restart_policy,
        "devices": list(container.devices),
        **describe_gpus(container),
        "health": container.health,
        "oom_killed": container.is_oom_killed,
        **parse_orchestrator(container.labels, container.name),
    }
    ended = {} if container.exit_code is None else {"exit_code": container.exit_code}
    return {name: value for name, value in details.items() if value} | ended


def describe_gpus(container: Container) -> dict[str, Any]:
    """Return how many GPUs a container requests, and how it names them."""
    if not container.gpu_names:
        return {}
    count = ALL if container.gpus < 0 else container.gpus
    return {"gpus": count, GPU_NAMES: list(container.gpu_names)}


def parse_workload_uuid(
    container_id: str, name: str, labels: Mapping[str, str], trusts_labels: bool = True
) -> str:
    """Return the uuid of a container's workload.

    It comes from the label, else from a name in Zun's form, else it is derived
    from the engine's id, so that it never changes.
    """
    label = labels.get(WORKLOAD_LABEL) if trusts_labels else None
    if label is not None:
        try:
            return str(uuid_module.UUID(label))
        except ValueError as error:
            raise ContainerError(f"label {WORKLOAD_LABEL}={label!r} is not a valid UUID") from error
    zun = _ZUN_NAME.fullmatch(name)
    return zun[1] if zun else derive_container_uuid(container_id)


def assign_uuids(
    containers: Iterable[Container], trusts_labels: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """Assign each container its workload's uuid; of several with the same, the oldest keeps it.

    Returns:
        Container id -> uuid, and container id -> what is wrong with its label.
    """
    uuids: dict[str, str] = {}
    errors: dict[str, str] = {}
    owners: dict[str, str] = {}
    for container in sorted(containers, key=lambda item: (item.created, item.id)):
        try:
            uuid = parse_workload_uuid(
                container.id, container.name, container.labels, trusts_labels
            )
        except ContainerError as error:
            uuid = parse_workload_uuid(container.id, "", {})
            errors[container.id] = str(error)
        if uuid in owners:
            errors[container.id] = (
                f"duplicate workload uuid of container {owners[uuid]}, which is older"
            )
            uuid = parse_workload_uuid(container.id, "", {})
        owners.setdefault(uuid, container.name)
        uuids[container.id] = uuid
    return uuids, errors


def parse_project(labels: Mapping[str, str]) -> str:
    """Return the project of a container: from our label, else from its orchestrator's labels.

    An orchestrator's project is not the one for which a workload was claimed, so
    one whose uuid is in our label has the project of our label or none.
    """
    if WORKLOAD_LABEL in labels:
        return labels.get(PROJECT_LABEL, "")
    for label in (
        PROJECT_LABEL, _POD_NAMESPACE_LABEL, _COMPOSE_PROJECT_LABEL, _SWARM_STACK_LABEL,
    ):  # fmt: skip
        if labels.get(label):
            return labels[label]
    return ""


def parse_orchestrator(labels: Mapping[str, str], name: str) -> dict[str, str]:
    """Return a container's orchestrator and its role there, empty without an orchestrator.

    >>> parse_orchestrator({"com.docker.compose.project": "shop",
    ...     "com.docker.compose.service": "db"}, "shop-db-1")
    {'orchestrator': 'compose', 'service': 'db'}
    """
    if _POD_NAME_LABEL in labels or _POD_NAMESPACE_LABEL in labels:
        return {"orchestrator": "kubernetes", "pod": labels.get(_POD_NAME_LABEL, "")}
    if _COMPOSE_PROJECT_LABEL in labels:
        return {"orchestrator": "compose", "service": labels.get(_COMPOSE_SERVICE_LABEL, "")}
    if _SWARM_SERVICE_LABEL in labels:
        return {"orchestrator": "swarm", "service": labels[_SWARM_SERVICE_LABEL]}
    return {"orchestrator": "zun"} if _ZUN_NAME.fullmatch(name) else {}


@dataclass(frozen=True, slots=True)
class HostTopology:
    """Last known parts of the machine to which containers can be bound."""

    topology: NumaTopology = field(default_factory=NumaTopology)
    gpus: tuple[Gpu, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    nodes: DeviceNodes = field(default_factory=DeviceNodes)

    @property
    def resolver(self) -> UseResolver:
        """What resolves the names of devices."""
        return UseResolver(self.pci, self.gpus, self.nodes)


def derive_pins(container: Container, guest: Guest, host: HostTopology) -> GuestPins:
    """Return the pins of a container; one that does not hold resources has none.

    Its CPUs move among those of its CPU set. Its memory is in the only cell of
    its memory set, or else in the cell of its CPUs.
    """
    if not container.holds_resources:
        return GuestPins()
    cell_of = {cpu: cell.id for cell in host.topology.cells for cpu in cell.cpus}
    cells = {cell_of[cpu] for cpu in container.cpus if cpu in cell_of}
    known = {cell.id for cell in host.topology.cells}
    memory_cells = (container.cells or cells) & known
    memory = memory_cells if len(memory_cells) == 1 else set[int]()
    pins_of_cells = GuestPins(
        tuple(CellAssignment(cell, memory_mb=guest.memory_mb) for cell in memory),
        affinities=(CpuAffinity(container.cpus, container.vcpu_milli),) if cells else (),
    )
    uses = host.resolver.resolve_nodes(container.devices)
    return bind(pins_of_cells, [*uses, *map(host.resolver.resolve_gpu, container.gpu_names)])


_DIRECTORIES = ("usr/share/containers/oci/hooks.d", "etc/containers/oci/hooks.d")
_PROGRAM = re.compile(r"(?:.*/)?nvidia-container-(?:runtime-hook|toolkit)")


@dataclass(frozen=True, slots=True)
class GpuHooks:
    """When hooks of NVIDIA's toolkit run.

    Attributes:
        conditions: ``when`` of each hook.
    """

    conditions: tuple[Mapping[str, Any], ...] = ()

    def apply_to(self, container: Container) -> bool:
        """Return whether one runs for a container."""
        return any(_is_met(condition, container) for condition in self.conditions)


def read_gpu_hooks(roots: Roots) -> GpuHooks:
    """Return the hooks of the host; what cannot be read may run for every container.

    Source: oci-hooks(5) of Podman.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for directory in _DIRECTORIES:
        try:
            names = list_directory(roots.rootfs / directory) or ()
        except HostDataError:
            return GpuHooks(({"always": True},))
        for name in names:
            if name.endswith(".json"):
                condition = _read_hook(roots, f"{directory}/{name}")
                found.pop(name, None)  # a file of the same name in /etc replaces one of /usr
                if condition is not None:
                    found[name] = condition
    return GpuHooks(tuple(found.values()))


def _read_hook(roots: Roots, path: str) -> Mapping[str, Any] | None:
    try:
        plain = json.loads(read_optional_text(roots.rootfs / path) or "{}")
        program = plain["hook"]["path"]
    except (HostDataError, ValueError, KeyError, TypeError, RecursionError):
        return {"always": True} if "nvidia" in path else None
    condition = plain.get("when")
    is_ours = isinstance(program, str) and _PROGRAM.fullmatch(program)
    return condition if is_ours and isinstance(condition, Mapping) else None


def _is_met(condition: Mapping[str, Any], container: Container) -> bool:
    if condition.get("always") is True:
        return True
    wanted = condition.get("annotations")
    if not isinstance(wanted, Mapping):
        return False
    try:
        return any(
            re.search(key, name) and re.search(str(value), text)
            for key, value in wanted.items()
            for name, text in container.annotations.items()
        )
    except (re.error, RecursionError, OverflowError):  # OverflowError: of a huge repetition
        return True
