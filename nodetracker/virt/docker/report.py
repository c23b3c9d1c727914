"""Query an engine about itself, and only as often as its report may have changed.

An invalid item of a report does not affect the others.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.model.host import ContainerEngine, HypervisorInfo
from nodetracker.model.text import render_value
from nodetracker.virt.docker.client import EngineClient

MAX_AGE_SECONDS = 50.0
"""Maximum age of a report; an event of the daemon expires it earlier."""

PAUSE_FACTOR = 4
"""Pause after a call that failed, as a multiple of its duration."""

_MAX_BYTES = 2**63 - 1
_NUMBERS = re.compile(r"[0-9]{1,6}")
_PROJECT_QUOTA_DRIVERS = frozenset({"overlay2", "overlay", "vfs"})
_OWN_QUOTA_DRIVERS = frozenset({"btrfs", "devicemapper", "zfs"})
_PROJECT_QUOTA_FILESYSTEMS = frozenset({"ext4", "xfs"})
_PROJECT_QUOTA_OPTIONS = frozenset({"pquota", "prjquota"})
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686"}
_TEXTS = (
    "ServerVersion", "DefaultRuntime", "Driver", "DockerRootDir", "CgroupVersion", "CgroupDriver",
    "Architecture", "Name",
)  # fmt: skip
_PODMAN = "Podman Engine"
_CONTAINERD_STORE = ("driver-type", "io.containerd.snapshotter.v1")
_SYSTEM_CONTAINERD = "/run/containerd/containerd.sock"


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine's report about itself.

    Attributes:
        engine: without disk quotas, which only the host's files show.
        daemon_name: the engine's name of its host, "" without one.
        default_runtime: as the engine's, None if that is invalid.
        problems: a line for each invalid item.
    """

    engine: ContainerEngine
    hypervisor: HypervisorInfo
    daemon_name: str
    default_runtime: str | None
    problems: tuple[str, ...] = ()


class ReportReader:
    """Keeps an engine's last report about itself, and queries it again when that is due.

    Podman's service (seen with 4.3) starts other programs for ``/info`` and
    ``/version``, and finishes these calls even if nobody waits for them. So that
    they do not pile up on a busy machine, a call that timed out is followed by a pause.
    """

    def __init__(self, client: EngineClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._report: EngineReport | None = None
        self._report_at = 0.0
        self._expired_at = 0.0
        self._error: DriverUnavailableError | None = None
        self._paused_until = 0.0

    def expire(self) -> None:
        """Query the engine again at the next reading: the report may have changed."""
        self._expired_at = self._monotonic()

    def end_pause(self) -> None:
        """Query the engine again at the next reading even after a timeout: it has restarted."""
        self.expire()
        self._error = None

    def read(self, has_live_events: bool) -> EngineReport:
        """Return the report.

        Args:
            has_live_events: an event reports each change, so that the last report may be used.

        Raises:
            DriverUnavailableError: the engine does not answer, or did not before the pause.
        """
        started_at = self._monotonic()
        report = self._report
        age = started_at - self._report_at
        is_current = age < MAX_AGE_SECONDS and self._report_at > self._expired_at
        if report is not None and has_live_events and is_current:
            return report
        error = self._error
        if error is not None and started_at < self._paused_until:
            raise DriverUnavailableError(error.source, error.reason)
        try:
            report = parse_report(self._client.info(), self._client.version(), self._client.source)
        except DriverUnavailableError as failure:
            ended_at = self._monotonic()
            self._paused_until = ended_at + PAUSE_FACTOR * (ended_at - started_at)
            self._error = failure
            raise
        self._report, self._report_at, self._error = report, started_at, None
        return report


def parse_report(info: Any, version: Any, source: str) -> EngineReport:
    """Parse the answers to ``/info`` and ``/version``."""
    if not isinstance(info, Mapping):
        raise HostDataError(source, "invalid answer to /info: expected an object")
    labels, problems = parse_labels(info.get("Labels"))
    name = parse_engine_name(version)
    texts, invalid = _parse_texts(info)
    runtimes = info.get("Runtimes")
    api_version = version.get("ApiVersion") if isinstance(version, Mapping) else None
    return EngineReport(
        engine=ContainerEngine(
            name=name,
            version=texts["ServerVersion"],
            api_version=_text(api_version),
            labels=labels,
            runtimes=tuple(sorted(map(str, runtimes))) if isinstance(runtimes, Mapping) else (),
            default_runtime=texts["DefaultRuntime"],
            storage_driver=texts["Driver"],
            root_dir=texts["DockerRootDir"],
            image_store_dir=find_image_store(info),
            cgroup_version=texts["CgroupVersion"],
            cgroup_driver=texts["CgroupDriver"],
        ),
        hypervisor=HypervisorInfo(
            type=name,
            version=parse_version_number(texts["ServerVersion"]),
            supported_instances=((parse_architecture(texts["Architecture"]), name, "exe"),),
        ),
        daemon_name=texts["Name"],
        default_runtime=None if "DefaultRuntime" in invalid else texts["DefaultRuntime"],
        problems=(*problems, *invalid.values()),
    )


def _parse_texts(info: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return texts of a report, and a line for each value of another type, which is ""."""
    values = {key: info.get(key) for key in _TEXTS}
    invalid = {
        key: f"{key}: invalid value {render_value(value)}, expected a text"
        for key, value in values.items()
        if value is not None and not isinstance(value, str)
    }
    return {key: _text(value) for key, value in values.items()}, invalid


def find_image_store(info: Mapping[str, Any]) -> str:
    """Return the directory of images and containers that are in a store of containerd, else "".

    dockerd uses the containerd of the system, or runs one with its files below its own root.

    >>> find_image_store({"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]})
    '/var/lib/containerd'
    """
    status = info.get("DriverStatus")
    if not isinstance(status, list) or list(_CONTAINERD_STORE) not in status:
        return ""
    containerd = info.get("Containerd")
    address = _text(containerd.get("Address")) if isinstance(containerd, Mapping) else ""
    if not address or address.removeprefix("/var") == _SYSTEM_CONTAINERD:
        return "/var/lib/containerd"
    return f"{_text(info.get('DockerRootDir')).rstrip('/')}/containerd/daemon"


def parse_labels(value: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """Parse a daemon's labels, each a string ``KEY=VALUE``; null means no labels.

    Returns:
        The labels, and a line for each invalid one. A label without ``=`` is
        kept with an empty value.

    >>> parse_labels(["rack=7", "url=a=b", "gpu"])
    ({'rack': '7', 'url': 'a=b', 'gpu': ''}, ("label 'gpu' has no value",))
    """
    labels: dict[str, str] = {}
    problems = []
    if value is not None and not isinstance(value, list):
        return {}, ("invalid labels: expected a list",)
    for item in value or []:
        if not isinstance(item, str):
            problems.append(f"label {render_value(item)} is not a string")
            continue
        key, equals, text = item.partition("=")
        labels[key] = text
        if not equals:
            problems.append(f"label {render_value(item)} has no value")
    return labels, tuple(problems)


def parse_engine_name(version: Any) -> str:
    """Return ``podman`` or ``docker``, by the answer to ``/version``."""
    components = version.get("Components") if isinstance(version, Mapping) else None
    for component in components if isinstance(components, list) else []:
        if isinstance(component, Mapping) and component.get("Name") == _PODMAN:
            return "podman"
    return "docker"


def parse_architecture(text: str) -> str:
    """Return the name that ``uname -m`` has for an architecture; Podman uses Go's names.

    >>> parse_architecture("amd64"), parse_architecture("s390x")
    ('x86_64', 's390x')
    """
    return _ARCHITECTURES.get(text, text)


def parse_version_number(text: str) -> int:
    """Return 1,000,000 x major + 1,000 x minor + micro of a version, 0 without one.

    >>> parse_version_number("20.10.24+dfsg1"), parse_version_number("4.3")
    (20010024, 4003000)
    """
    numbers = [int(number) for number in _NUMBERS.findall(text.partition("+")[0])[:3]]
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + micro


def has_disk_quotas(storage_driver: str, fs_type: str, options: tuple[str, ...]) -> bool:
    """Return whether the disk of a container can be limited.

    Args:
        fs_type, options: of the filesystem of the engine's root directory.

    >>> has_disk_quotas("overlay2", "xfs", ("rw", "prjquota"))
    True
    """
    if storage_driver in _OWN_QUOTA_DRIVERS:
        return True
    return (
        storage_driver in _PROJECT_QUOTA_DRIVERS
        and fs_type in _PROJECT_QUOTA_FILESYSTEMS
        and not _PROJECT_QUOTA_OPTIONS.isdisjoint(options)
    )


def is_same_host(daemon_name: str, host: str) -> bool:
    """Return whether two names are of the same host; case and a missing domain are ignored.

    >>> is_same_host("web1", "web1.example.com"), is_same_host("web1", "web2")
    (True, False)
    """
    first, second = daemon_name.lower().rstrip("."), host.lower().rstrip(".")
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")


def parse_image_bytes(value: Any, source: str) -> int:
    """Return the disk usage of images from the answer to ``/system/df``.

    Shared layers count once. Podman does not report the size of all layers, so
    each image counts in full there. Since API 1.52 the sum is the ``TotalSize`` of
    ``ImageUsage``.

    Raises:
        HostDataError: the answer has none of these.
    """
    if not isinstance(value, Mapping):
        raise HostDataError(source, "invalid answer to /system/df: expected an object")
    total = value.get("LayersSize")
    if _is_size(total) and total:
        return total
    for name in ("ImageUsage", "ImagesUsage"):
        usage = value.get(name)
        size = usage.get("TotalSize") if isinstance(usage, Mapping) else None
        if _is_size(size):
            return size
    if "Images" not in value:
        raise HostDataError(source, "invalid answer to /system/df: it has no images")
    images = value["Images"] or []
    sizes = [
        image.get("Size") if isinstance(image, Mapping) else None
        for image in (images if isinstance(images, list) else [None])
    ]
    if not all(map(_is_size, sizes)):
        raise HostDataError(source, "invalid answer to /system/df: an image has no valid size")
    return sum(size for size in sizes if _is_size(size))


def _is_size(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_BYTES


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
