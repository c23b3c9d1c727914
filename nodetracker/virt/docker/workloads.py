"""Derive a container's workload, project and orchestrator from its labels and name."""

import re
import uuid as uuid_module
from collections.abc import Iterable, Mapping

from nodetracker.virt.docker.containers import Container, ContainerError

WORKLOAD_LABEL = "nodetracker.workload"
PROJECT_LABEL = "nodetracker.project"
_POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
_POD_NAME_LABEL = "io.kubernetes.pod.name"
_COMPOSE_PROJECT_LABEL = "com.docker.compose.project"
_COMPOSE_SERVICE_LABEL = "com.docker.compose.service"
_SWARM_STACK_LABEL = "com.docker.stack.namespace"
_SWARM_SERVICE_LABEL = "com.docker.swarm.service.name"

_NAMESPACE = uuid_module.UUID("1d6b1c6e-52f0-4c39-9a53-8f2f2f4a7c11")
"""Namespace of the uuids that are derived from containers' ids; it must never change."""

_ZUN_NAME = re.compile(r"zun-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")


def parse_workload_uuid(
    container_id: str, name: str, labels: Mapping[str, str], trusts_labels: bool = True
) -> str:
    """Return the uuid of a container's workload.

    It comes from the label, else from a name in Zun's form, else it is derived
    from the engine's id, so that it never changes.

    Args:
        trusts_labels: False ignores the label.

    Raises:
        ContainerError: the label is not a valid UUID.
    """
    label = labels.get(WORKLOAD_LABEL) if trusts_labels else None
    if label is not None:
        try:
            return str(uuid_module.UUID(label))
        except ValueError as error:
            raise ContainerError(f"label {WORKLOAD_LABEL}={label!r} is not a valid UUID") from error
    zun = _ZUN_NAME.fullmatch(name)
    return zun[1] if zun else str(uuid_module.uuid5(_NAMESPACE, container_id))


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


def assign_uuids(
    containers: Iterable[Container], trusts_labels: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """Assign each container its workload's uuid; of several with the same, the oldest keeps it.

    Args:
        trusts_labels: as in `parse_workload_uuid`.

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
