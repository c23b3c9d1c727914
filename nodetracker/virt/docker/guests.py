"""Build the guest of a container."""

from collections.abc import Mapping
from typing import Any

from nodetracker.model.guest import Guest, WorkloadKind
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.workloads import parse_orchestrator, parse_project


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
        "restart_policy": "" if container.restart_policy == "no" else container.restart_policy,
        "devices": list(container.devices),
        "gpus": "all" if container.gpus < 0 else container.gpus,
        **parse_orchestrator(container.labels, container.name),
    }
    return {name: value for name, value in details.items() if value}
