"""Properties of a container engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """The properties of a container engine that matter to workloads and operators.

    Attributes:
        name: the engine, e.g. ``docker`` or ``podman``.
        version, api_version: as reported by it, e.g. ``20.10.24+dfsg1``, ``1.41``.
        labels: arbitrary labels that the operator configured for the daemon.
        runtimes: names of the available container runtimes, ascending.
        default_runtime: the runtime used by default.
        storage_driver: e.g. ``overlay2``.
        root_dir: directory of its images and containers.
        cgroup_version: ``1`` or ``2``, "" when unknown.
        cgroup_driver: ``cgroupfs`` or ``systemd``, "" when unknown.
        has_disk_quotas: whether a container's disk usage can currently be limited.
    """

    name: str
    version: str = ""
    api_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    storage_driver: str = ""
    root_dir: str = ""
    cgroup_version: str = ""
    cgroup_driver: str = ""
    has_disk_quotas: bool = False
