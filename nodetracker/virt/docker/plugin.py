"""Entry point of the ``docker`` driver and its options."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oslo_config import cfg

from nodetracker.model.errors import ConfigError
from nodetracker.ports import Driver, StartReader
from nodetracker.virt.plugin import ADMISSION_OPTION, DriverEnvironment, DriverPlugin, Values

if TYPE_CHECKING:  # the module imports docker
    from nodetracker.virt.docker.driver import DockerDriver

_SCHEMES = ("unix", "tcp", "http", "https")
_MAX_SOCKET_PATH_BYTES = 107  # Linux, unix(7): sun_path with its closing zero

OPTIONS = (
    ADMISSION_OPTION,
    cfg.BoolOpt(
        "require_limits",
        default=False,
        help="With admission = enforce, refuse containers without a limit of CPUs or memory.",
    ),
    cfg.ListOpt(
        "base_url",
        default=["unix:///var/run/docker.sock"],
        help="URLs of the engines of this machine: unix:///PATH, tcp://HOST:PORT or "
        "https://HOST:PORT. Docker Engine with API 1.40 or later and Podman's compatible service "
        "are supported. The containers of all of them are those of one node, whose disk is the "
        "first engine's.",
    ),
    cfg.IntOpt(
        "timeout",
        default=10,
        min=1,
        help="Seconds without a byte from the engine after which a request fails.",
    ),
    cfg.StrOpt(
        "tls_ca_cert",
        help="CA certificate file to verify the engine's certificate.",
    ),
    cfg.StrOpt("tls_cert", help="Client certificate file."),
    cfg.StrOpt("tls_key", help="Key file of the client certificate."),
    cfg.BoolOpt(
        "tls_verify",
        default=True,
        help="Verify the engine's certificate.",
    ),
    cfg.FloatOpt(
        "reserve_disk_for_image",
        default=0.0,
        min=0.0,
        max=1.0,
        help="Share of the filesystem of the engine's root directory that is reserved for images.",
    ),
    cfg.ListOpt(
        "image_store_path",
        default=[],
        help="Directories of the engines' images and containers, each PATH or, where base_url has "
        "several, URL=PATH. Unset: the engine's root directory, or with the image store of "
        "containerd the directory of the containerd that the engine reports.",
    ),
    cfg.BoolOpt(
        "measure_containers",
        default=True,
        help="Measure the CPU time and memory of all containers and the disk usage of images, for "
        "the metrics. Containers without a memory limit are always measured, as their memory "
        "usage is the measured one.",
    ),
    cfg.IntOpt(
        "unlimited_memory_mb",
        default=64,
        min=1,
        help="MiB that a container without a memory limit is charged until its memory usage is "
        "measured: always, on a host without the kernel's memory controller.",
    ),
    cfg.BoolOpt(
        "trust_labels",
        default=True,
        help="Take a container's workload uuid from its label nodetracker.workload. Whoever may "
        "start containers can set it to any uuid; false ignores it.",
    ),
)


def _split(values: Values) -> Sequence[tuple[str, Values]]:
    """Return the values of one driver for each engine; several are named by their URLs."""
    urls = list(dict.fromkeys(values["base_url"]))
    if not urls:
        raise ConfigError("[docker] base_url: must not be empty")
    for item in values["image_store_path"]:
        url, separator, _ = item.rpartition("=")
        if separator and url not in urls:
            raise ConfigError(f"[docker] image_store_path: {url} is not in base_url")
    names = [PLUGIN.group] if len(urls) == 1 else urls
    return [(name, {**values, "base_url": [url]}) for name, url in zip(names, urls, strict=True)]


def _build(environment: DriverEnvironment, values: Values) -> Driver:
    (url,) = values["base_url"]
    _check_url(url)
    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        raise ConfigError("[docker] tls_cert and tls_key: set both or neither")
    try:
        from nodetracker.virt.docker.client import EngineClient, TlsFiles
        from nodetracker.virt.docker.driver import DockerDriver
    except ImportError as error:
        raise ConfigError(
            f"[compute] compute_driver: docker needs a package that is not installed ({error}): "
            "pip install 'nodetracker[docker]'"
        ) from error
    tls = TlsFiles(
        values["tls_ca_cert"], values["tls_cert"], values["tls_key"], values["tls_verify"]
    )
    client = EngineClient(url, values["timeout"], tls)
    return DockerDriver(
        environment,
        client,
        reserve_disk_for_image=values["reserve_disk_for_image"],
        measures_containers=values["measure_containers"],
        trusts_labels=values["trust_labels"],
        unlimited_memory_mb=values["unlimited_memory_mb"],
        image_store_path=_find_image_store(values["image_store_path"], url),
    )


def _find_image_store(items: Sequence[str], url: str) -> str:
    """Return the path that is configured for an engine, else for all of them, else ""."""
    paths: dict[str, str] = {}
    for item in items:
        name, _, path = item.rpartition("=")
        if not path.startswith("/"):
            raise ConfigError(f"[docker] image_store_path: {item}: expected an absolute path")
        if name in paths:
            raise ConfigError(f"[docker] image_store_path: {item}: the engine has another path")
        paths[name] = path
    return paths.get(url, paths.get("", ""))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        has_port = bool(parts.port)
    except ValueError as error:
        raise ConfigError(f"[docker] base_url: {error}") from error
    if parts.scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ConfigError(f"[docker] base_url: unknown scheme, expected one of {known}")
    if "@" in parts.netloc:  # it would appear in logs and rows
        raise ConfigError("[docker] base_url: must not contain a user or password")
    if parts.query or parts.fragment:
        raise ConfigError(f"[docker] base_url: {url}: must not have a query or fragment")
    if parts.scheme == "unix":
        _check_socket(url, parts.netloc, parts.path)
    elif not (parts.hostname and has_port):
        raise ConfigError(f"[docker] base_url: {url}: expected a host and a port")


def _check_socket(url: str, netloc: str, path: str) -> None:
    if netloc or not path.strip("/"):
        raise ConfigError(f"[docker] base_url: {url}: expected an absolute path, unix:///PATH")
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"[docker] base_url: {url}: socket path is longer than {_MAX_SOCKET_PATH_BYTES} bytes"
        )


def _make_start_reader(
    driver: "DockerDriver", environment: DriverEnvironment, values: Values
) -> StartReader:
    from nodetracker.virt.docker.starts import StartRules

    return driver.make_start_reader(
        StartRules(values["unlimited_memory_mb"], values["require_limits"], values["trust_labels"])
    )


PLUGIN = DriverPlugin(
    group="docker",
    options=OPTIONS,
    build=_build,
    make_start_reader=_make_start_reader,
    split=_split,
)
