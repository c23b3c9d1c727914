"""Read whether hooks of Podman give GPUs to containers by their environment."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodetracker.model.errors import HostDataError
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.host.roots import Roots, list_directory, read_optional_text

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
    except (HostDataError, ValueError, KeyError, TypeError):
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
    return any(
        re.search(key, name) and re.search(str(value), text)
        for key, value in wanted.items()
        for name, text in container.annotations.items()
    )
