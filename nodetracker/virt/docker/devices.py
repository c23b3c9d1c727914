"""Parse the host devices and GPUs that a container requested."""

import re
from collections.abc import Mapping
from typing import Any

_CDI_GPU = re.compile(r"[^/=]+/gpu=(.+)")
_MAX_GPUS = 1024
_NO_GPU = frozenset({"", "none", "void"})

ALL_GPUS = "all"
"""Name for all GPUs of the host."""


def parse_gpu_names(requests: Any) -> tuple[str, ...]:
    """Return the GPUs that a container requested, by number or uuid, or `ALL_GPUS`.

    If a number of GPUs is requested, the engine assigns the first ones.

    >>> parse_gpu_names([{"Count": 2, "DeviceIDs": None, "Capabilities": [["gpu"]]}])
    ('0', '1')
    """
    found: list[str] = []
    for request in requests if isinstance(requests, list) else []:
        if not isinstance(request, Mapping):
            continue
        ids, count = request.get("DeviceIDs"), request.get("Count")
        names = [name for name in ids if isinstance(name, str)] if isinstance(ids, list) else []
        if request.get("Driver") == "cdi":
            matches = filter(None, map(_CDI_GPU.fullmatch, names))
            found += [match[1] for match in matches]
        elif not _requests_gpus(request):
            continue
        elif names:
            found += names
        elif isinstance(count, int):
            found += [ALL_GPUS] if count < 0 else map(str, range(min(count, _MAX_GPUS)))
    return tuple(found)


def parse_visible_gpus(runtime: Any, environment: Any) -> tuple[str, ...]:
    """Return the GPUs that NVIDIA's runtime assigns by the container's environment.

    >>> parse_visible_gpus("nvidia", ["A=b", "NVIDIA_VISIBLE_DEVICES=0,GPU-1"])
    ('0', 'GPU-1')
    """
    if runtime != "nvidia" or not isinstance(environment, list):
        return ()
    found = [
        item.partition("=")[2]
        for item in environment
        if isinstance(item, str) and item.startswith("NVIDIA_VISIBLE_DEVICES=")
    ]
    names = (name.strip() for name in found[-1].split(",")) if found else ()
    return tuple(name for name in names if name not in _NO_GPU)


def parse_devices(devices: Any) -> tuple[str, ...]:
    """Return the host paths of a container's devices, in ascending order."""
    found = devices if isinstance(devices, list) else []
    paths = [device.get("PathOnHost") for device in found if isinstance(device, Mapping)]
    return tuple(sorted({path for path in paths if isinstance(path, str) and path}))


def _requests_gpus(request: Mapping[str, Any]) -> bool:
    if request.get("Driver") == "nvidia":
        return True
    alternatives = request.get("Capabilities")
    if not isinstance(alternatives, list):
        return False
    return any("gpu" in names for names in alternatives if isinstance(names, list))
