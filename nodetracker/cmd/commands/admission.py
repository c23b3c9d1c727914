"""admission install, list, remove, show: engines that ask the agent before a guest starts."""

import argparse
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from nodetracker.bootstrap.options.opts import register_driver_options
from nodetracker.bootstrap.values import read_value
from nodetracker.cmd.commands.base import ListCommand, StoreCommand, argument
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.hooks.ask import ask
from nodetracker.hooks.docker import DockerPlugin
from nodetracker.hooks.libvirt import LibvirtHook
from nodetracker.model.errors import ConfigError, RefusedError
from nodetracker.rpc.door_socket import SOCKET_FILE

_DOCKER = ("unix:///var/run/docker.sock", "unix:///run/docker.sock")
_URIS = ("qemu:///system", "qemu+unix:///system")

_DRIVER = argument(
    "--driver",
    required=True,
    choices=("libvirt", "docker"),
    help="Which engine is to ask, or asks.",
)


class AdmissionCommand(StoreCommand):
    """Mixin of the commands about this machine's engines.

    Attributes:
        root: of the filesystem.
    """

    root: ClassVar[Path] = Path("/")

    @property
    def socket(self) -> Path:
        """The socket on which the agent answers."""
        return Path(read_value(self.app.conf, "DEFAULT", "state_path")) / SOCKET_FILE

    @property
    def hooks(self) -> dict[str, LibvirtHook | DockerPlugin]:
        """What can be installed, by driver."""
        return {"libvirt": LibvirtHook(self.root), "docker": DockerPlugin(self.root)}

    def require_root(self) -> None:
        """Check that this is root.

        Raises:
            RefusedError: it is not.
        """
        if os.geteuid() != 0:
            raise RefusedError("only root may change what the engines run: use sudo")

    def report(self, what: str, paths: list[Path], steps: list[str]) -> None:
        """Print what was changed and what is left to do."""
        for path in paths:
            is_kept = what == "removed" and path.exists()  # Docker's configuration
            self.app.stdout.write(f"{'changed' if is_kept else what} {path}\n")
        if not paths:
            self.app.stdout.write("nothing to change\n")
        for step in steps:
            self.app.stdout.write(f"run: {step}\n")


class InstallAdmission(AdmissionCommand):
    details = """
    Files of others are never changed, and no engine is restarted: what is left to do is printed.
    What the agent answers is [compute] admission. The programs are copied to
    /usr/local/lib/nodetracker and need neither the agent nor its package. Repeat it after an
    upgrade; admission show says whether that is due.
    """
    example = "admission install --driver libvirt"
    arguments = (
        _DRIVER,
        argument(
            "--when-unavailable", choices=("allow", "refuse"), default="allow",
            help="Whether guests start while the agent does not answer. Default: allow.",
        ),
    )  # fmt: skip

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Write the files.

        Raises:
            RefusedError: this is not root, the engine is not this machine's, or another's file
                is in the way.
        """
        self.require_root()
        register_driver_options(self.app.conf)
        if parsed_args.driver == "libvirt":
            self._check_uris()
        else:
            self._check_urls()
        hook = self.hooks[parsed_args.driver]
        self.report("wrote", *hook.install(self.socket, parsed_args.when_unavailable))

    def _check_uris(self) -> None:
        from nodetracker.virt.libvirt.types import parse_endpoints

        texts = read_value(self.app.conf, "libvirt", "connection_uris")
        uris = [endpoint.uri.partition("?")[0] for endpoint in parse_endpoints(texts)]
        if len(uris) != 1 or uris[0] not in _URIS:
            raise RefusedError(
                f"[libvirt] connection_uris: {', '.join(texts)}: a hook needs qemu:///system alone"
            )

    def _check_urls(self) -> None:
        urls = read_value(self.app.conf, "docker", "base_url")
        if not set(urls) & set(_DOCKER):
            raise RefusedError(
                f"[docker] base_url: {', '.join(urls)}: only {_DOCKER[0]} of docker.service can ask"
            )


class RemoveAdmission(AdmissionCommand):
    details = """
    The engine is left as it was before admission install. Guests run on. Docker has to be reloaded
    before its plugin is removed: the command prints that, exits with 1, and is repeated.
    """
    example = "admission remove --driver libvirt"
    arguments = (_DRIVER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove the files.

        Raises:
            RefusedError: this is not root.
        """
        self.require_root()
        with suppress(ConfigError):  # without one the change is not logged
            self.app.conf  # noqa: B018 - reads it
        hook = self.hooks[parsed_args.driver]
        self.report("removed", *hook.remove())
        self.exit_code = 0 if hook.when_unavailable is None else 1  # Docker still has it


class ShowAdmission(AdmissionCommand, ListCommand):
    details = """
    A file is current, outdated (admission install writes it again), absent, or foreign: not
    installed by nodetracker. Docker's configuration may be unreadable, as one that is no JSON.
    The last line says whether the agent answers.
    """
    example = "admission show"
    columns = ("driver", "path", "state", "when_unavailable")
    layout = (
        Column("driver", ("driver",)),
        Column("path", ("path",), Kind.FLEXIBLE),
        Column("state", ("state",), Kind.FLEXIBLE),
        Column("when unavailable", ("when_unavailable",)),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        rows = [
            {
                "driver": driver,
                "path": str(path),
                "state": state,
                "when_unavailable": hook.when_unavailable,
            }
            for driver, hook in self.hooks.items()
            for path, state in hook.list_states(self.socket)
        ]
        try:
            ask(str(self.socket), {"ask": "list"})
            state = "answers"
        except OSError as error:
            state = f"does not answer: {error.strerror or error}"
        door = {"driver": None, "path": str(self.socket), "state": state, "when_unavailable": None}
        return [*rows, door]


class ListAdmissions(AdmissionCommand, ListCommand):
    details = "They are those of this host, of which its agent keeps the last 200. Run it as root."
    example = "admission list"
    columns = ("asked_at", "driver", "operation", "guest", "name", "outcome", "reason")
    layout = (
        Column("asked", ("asked_at",), Kind.MOMENT),
        Column("driver", ("driver",), Kind.TEXT, 3),
        Column("operation", ("operation",), Kind.TEXT, 2),
        Column("guest", ("guest",), Kind.TEXT, 4),
        Column("name", ("name",), Kind.FLEXIBLE, 1),
        Column("outcome", ("outcome",)),
        Column("reason", ("reason",), Kind.FLEXIBLE, least=36),
    )

    def list_rows(self, args: argparse.Namespace) -> list[Mapping[str, Any]]:
        """Ask the agent.

        Raises:
            RefusedError: it does not answer.
        """
        try:
            answer: Mapping[str, Any] = ask(str(self.socket), {"ask": "list"})
        except OSError as error:
            raise RefusedError(
                f"{self.socket}: the agent does not answer: {error.strerror or error}"
            ) from None
        return list(answer["questions"])
