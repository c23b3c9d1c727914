"""What a container engine says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """A container engine, as far as workloads and operators may care.

    Attributes:
        name: the engine, e.g. ``docker`` or ``podman``.
        version, api_version: as it writes them, e.g. ``20.10.24+dfsg1``, ``1.41``.
        labels: that the operator gave the daemon, of any text.
        runtimes: names of the runtimes that it can start containers with, ascending.
        default_runtime: the one that it takes unasked.
        storage_driver: e.g. ``overlay2``.
        root_dir: where it keeps images and containers.
        cgroup_version: ``1`` or ``2``, "" when it does not tell.
        cgroup_driver: ``cgroupfs`` or ``systemd``, "" likewise.
        has_disk_quotas: whether a container's disk can be bounded now.
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
