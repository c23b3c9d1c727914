"""The entry point of the ``docker`` driver and its options."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from oslo_config import cfg

from nodetracker.errors import ConfigError
from nodetracker.ports import Driver
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin

_SCHEMES = ("unix", "tcp", "http", "https")
_LONGEST_SOCKET_PATH = 107  # Linux, unix(7): sun_path with its closing zero

OPTIONS = (
    cfg.StrOpt(
        "base_url",
        default="unix:///var/run/docker.sock",
        help="Where the engine listens: unix:///PATH, tcp://HOST:PORT or https://HOST:PORT. "
        "Docker Engine from API 1.40 on and Podman's service of the same API are understood. The "
        "engine must run on this machine, as the host's facts are read here.",
    ),
    cfg.IntOpt(
        "timeout",
        default=10,
        min=1,
        help="Seconds without a byte after which the engine counts as not answering.",
    ),
    cfg.StrOpt(
        "tls_ca_cert",
        help="File of the authority's certificate that the engine's is checked by.",
    ),
    cfg.StrOpt("tls_cert", help="File of this client's certificate."),
    cfg.StrOpt("tls_key", help="File of the key of this client's certificate."),
    cfg.BoolOpt(
        "tls_verify",
        default=True,
        help="Whether the engine's certificate is checked.",
    ),
    cfg.FloatOpt(
        "reserve_disk_for_image",
        default=0.0,
        min=0.0,
        max=1.0,
        help="Share of the filesystem of the engine's root directory that is kept for images; it "
        "counts as used.",
    ),
    cfg.BoolOpt(
        "measure_containers",
        default=True,
        help="Whether the real CPU time and memory of all containers and the disk of images are "
        "measured, for the metrics. Containers without a memory limit are measured in any case, "
        "as they are charged by it.",
    ),
)


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    _check_url(values["base_url"])
    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        raise ConfigError("[docker] tls_cert and tls_key: one is nothing without the other")
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
    client = EngineClient(values["base_url"], values["timeout"], tls)
    return DockerDriver(
        environment,
        client,
        reserve_disk_for_image=values["reserve_disk_for_image"],
        measures_containers=values["measure_containers"],
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        has_port = bool(parts.port)
    except ValueError as error:
        raise ConfigError(f"[docker] base_url: {error}") from error
    if parts.scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ConfigError(f"[docker] base_url: begins with none of {known}")
    if "@" in parts.netloc:  # it would stand in logs and rows
        raise ConfigError("[docker] base_url: must hold no user or password")
    if parts.query or parts.fragment:
        raise ConfigError(f"[docker] base_url: {url}: has more than an address")
    if parts.scheme == "unix":
        _check_socket(url, parts.netloc, parts.path)
    elif not (parts.hostname and has_port):
        raise ConfigError(f"[docker] base_url: {url}: needs a host and a port")


def _check_socket(url: str, netloc: str, path: str) -> None:
    if netloc or not path.strip("/"):
        raise ConfigError(f"[docker] base_url: {url}: needs an absolute path, unix:///PATH")
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"[docker] base_url: {url}: a socket's path has at most {_LONGEST_SOCKET_PATH} bytes"
        )


PLUGIN = DriverPlugin(group="docker", options=OPTIONS, build=_build)
