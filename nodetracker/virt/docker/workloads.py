"""Which workload a container is, whose it is and who runs it: by its labels and its name."""

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
"""Of the uuids that are made of containers' ids; it must never change."""

_ZUN_NAME = re.compile(r"zun-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")


def parse_workload_uuid(container_id: str, name: str, labels: Mapping[str, str]) -> str:
    """Return the uuid of the workload that a container is.

    By its label, else by the name that Zun gives its containers, else by the
    engine's id, so that it never changes.

    Raises:
        ContainerError: the label is no uuid.
    """
    label = labels.get(WORKLOAD_LABEL)
    if label is not None:
        try:
            return str(uuid_module.UUID(label))
        except ValueError as error:
            raise ContainerError(f"label {WORKLOAD_LABEL}={label!r} is no uuid") from error
    zun = _ZUN_NAME.fullmatch(name)
    return zun[1] if zun else str(uuid_module.uuid5(_NAMESPACE, container_id))


def parse_project(labels: Mapping[str, str]) -> str:
    """Return whose a container is: by its own label, else whoever runs it says in its labels."""
    for label in (
        PROJECT_LABEL, _POD_NAMESPACE_LABEL, _COMPOSE_PROJECT_LABEL, _SWARM_STACK_LABEL,
    ):  # fmt: skip
        if labels.get(label):
            return labels[label]
    return ""


def parse_orchestrator(labels: Mapping[str, str], name: str) -> dict[str, str]:
    """Tell by a container's labels who runs it, and as what; empty for nobody.

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


def assign_uuids(containers: Iterable[Container]) -> tuple[dict[str, str], dict[str, str]]:
    """Give each container its workload's uuid; of several with one, the oldest has it.

    Returns:
        Container id -> uuid, and container id -> what is wrong with its label.
    """
    uuids: dict[str, str] = {}
    wrong: dict[str, str] = {}
    taken: dict[str, str] = {}
    for container in sorted(containers, key=lambda item: (item.created, item.id)):
        try:
            uuid = parse_workload_uuid(container.id, container.name, container.labels)
        except ContainerError as error:
            uuid = parse_workload_uuid(container.id, "", {})
            wrong[container.id] = str(error)
        if uuid in taken:
            wrong[container.id] = (
                f"has the workload uuid of container {taken[uuid]}, which is older"
            )
            uuid = parse_workload_uuid(container.id, "", {})
        taken.setdefault(uuid, container.name)
        uuids[container.id] = uuid
    return uuids, wrong
