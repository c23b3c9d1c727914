"""Commands on this machine, which need no database: its services' health, and a capture of it."""

import argparse
import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from nodetracker.bootstrap.settings import build_roots
from nodetracker.bootstrap.values import read_value
from nodetracker.cmd.commands.base import ListCommand, StoreCommand, argument, flag
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.model.errors import ConfigError, RefusedError
from nodetracker.model.health import HealthState
from nodetracker.model.text import count_noun
from nodetracker.virt.host.capture import SUFFIXES, capture_machine, name_folder, write_archive

_TIMEOUT_SECONDS = 5.0  # services answer immediately
_MAX_BODY_BYTES = 2**20
_GROUPS = {"agent": "metrics", "api": "api"}
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to


class _Address(NamedTuple):
    host: str
    port: int | None
    path: str = "/health"
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        scheme = "http" if self.tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{scheme}://{host}{port}{self.path}"


def _service(text: str) -> str:
    if text not in _GROUPS and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected agent, api or a URL")
    return text


class ShowHealth(ListCommand):
    details = """
    Asks the running service itself, at the address of its configuration, and needs no
    database. Exits with 1 also if nothing answers within 5 seconds.
    """
    example = "health api"

    columns = ("check", "status", "output")
    layout = (
        Column("check", ("check",)),
        Column("status", ("status",), Kind.STATE),
        Column("output", ("output",), Kind.FLEXIBLE, 1),
    )
    arguments = (
        argument(
            "service",
            nargs="?",
            default="agent",
            metavar="agent|api|URL",
            type=_service,
            help="The agent (the default), nodetracker-api, or the URL of a /health.",
        ),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        address = self._find(args.service) if args.service in _GROUPS else _parse_url(args.service)
        body = _get(address)
        try:
            health = json.loads(body)
            self.exit_code = int(HealthState(health["status"]) is HealthState.FAIL)
            return [
                {"check": name, "status": check["status"], "output": check.get("output")}
                for name, check in health["checks"].items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RefusedError(f"{address}: the answer is not that of /health") from None

    def _find(self, service: str) -> _Address:
        """Return where a service of this machine answers.

        Raises:
            ConfigError: it serves no health, or an option is invalid.
        """
        conf, group = self.app.conf, _GROUPS[service]
        if service == "agent" and not read_value(conf, group, "enabled"):
            raise ConfigError("[metrics] enabled is false, so the agent serves no /health")
        listen, port = (read_value(conf, group, name) for name in ("listen", "port"))
        host = _WILDCARDS.get(listen, listen)
        if service == "api" and read_value(conf, group, "cert_file"):
            # The certificate has the public name, and no secret is sent to this machine.
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return _Address(host, port, tls=context)
        return _Address(host, port)


def _parse_url(url: str) -> _Address:
    """Return the address of a URL; one without a path means /health.

    Raises:
        RefusedError: it is invalid.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise RefusedError(f"{url}: {error}") from None
    if not host:
        raise RefusedError(f"{url}: has no host")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return _Address(host, port, parts.path.rstrip("/") or "/health", tls)


def _get(address: _Address) -> bytes:
    """Return the body of a service's answer.

    Raises:
        RefusedError: nothing answers.
    """
    timeout = _TIMEOUT_SECONDS
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=timeout)
        if address.tls is None
        else http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout, context=address.tls
        )
    )
    try:
        connection.request("GET", address.path)
        return connection.getresponse().read(_MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RefusedError(f"{address} does not answer: {reason}") from error
    finally:
        connection.close()


class CaptureHost(StoreCommand):
    details = """
    It contains only files below [host] procfs, sysfs and rootfs. Set these options
    to the unpacked archive's folder to read it like a machine.
    """
    example = "host capture compute-1.tar.xz"
    arguments = (
        argument(
            "file", metavar="FILE", type=Path, help=f"Archive to write ({', '.join(SUFFIXES)})."
        ),
        flag("--force", "Replace an existing file."),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        path, stdout = parsed_args.file, self.app.stdout
        folder = name_folder(path)
        with show_progress("capturing the machine", self.app.stderr) as progress:
            capture = capture_machine(build_roots(self.app.conf), progress.report)
            progress.report(0, 0, f"writing {path}")
            size = write_archive(capture, path, parsed_args.force, time.time())
        files = count_noun(len(capture.files), "file")
        links = count_noun(len(capture.links), "link")
        stdout.write(f"{path}: {files} and {links} in the folder {folder}, {size} bytes\n")
        for name, reason in sorted(capture.unreadable.items()):
            stdout.write(f"not readable, left out: {name}: {reason}\n")
