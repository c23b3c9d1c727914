"""Commands on services and their hosts."""

import argparse
import os
import pwd
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from nodetracker.accounting.liveness import Liveness, has_recent_heartbeat, limit_interval
from nodetracker.bootstrap.values import check_host_name
from nodetracker.cmd.commands.base import (
    ListCommand,
    ShowCommand,
    StoreCommand,
    argument,
    ask,
    flag,
    node_arguments,
    sort_by_host,
)
from nodetracker.cmd.screen.progress import show_progress
from nodetracker.cmd.screen.streams import draw_error
from nodetracker.cmd.screen.table import Column, Kind
from nodetracker.compute.takeover import HeartbeatWatch, get_watch_seconds
from nodetracker.model.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    RefusedError,
    RpcError,
)
from nodetracker.model.serializer import pick
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange, ServiceRecord
from nodetracker.model.text import count_noun, natural_key, render_time
from nodetracker.ports import POWER_ACTIONS
from nodetracker.usecases.reads import find_agent, read_host_usage
from nodetracker.views.services import (
    DISABLING,
    FORCING,
    MAINTENANCE,
    find_since,
    render_host,
    render_service,
    state_of,
    status_of,
)
from nodetracker.views.tolerance import is_fresh

_MORE = (
    "topic", "version", "maintenance", *MAINTENANCE, "forced_down", *FORCING, "spare",
    "report_count", "last_seen_up", "created_at", "last_audit",
)  # fmt: skip
_MAINTENANCE = "maintenance"


class ListServices(ListCommand):
    details = """
    --long adds since when and by whom they are disabled, and which are in maintenance or
    forced down.
    """
    example = "service list"

    columns = (
        "id", "binary", "host", "status", "state", "updated_at", "disabled_reason", "epoch",
        "clock_skew_seconds",
    )  # fmt: skip
    long_columns = ("disabled_at", "disabled_by")
    shown_columns = (_MAINTENANCE, "forced_down", *FORCING)
    layout = (
        Column("binary", ("binary",)),
        Column("host", ("host",), Kind.NAME),
        Column("state", ("state", "status", _MAINTENANCE), Kind.NODE_STATE),
        Column("updated", ("updated_at",), Kind.MOMENT, 1),
        Column("disabled because", ("disabled_reason",), Kind.FLEXIBLE, 2),
        Column("forced down", ("forced_down_at",), Kind.MOMENT, 1),
        Column("by", ("forced_down_by",), Kind.TEXT, 3),
        Column("because", ("forced_down_reason",), Kind.FLEXIBLE, 2),
        Column("clock", ("clock_skew_seconds",), Kind.COUNT, 4),
        Column("epoch", ("epoch",), Kind.NUMBER, 5),
        Column("id", ("id",), Kind.TEXT, 3),
    )

    def list_rows(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        services = self.reader.list_services()
        liveness = Liveness.of(services, self.reader.now(), self.service_down_time)
        return sort_by_host(
            render_service(service, liveness) | pick(service, *self.shown_columns)
            for service in services
        )


_SERVICE = (
    argument("host", help="As service list shows it."),
    argument("binary", help="nodetracker-compute or nodetracker-conductor."),
)


class ShowService(ShowCommand):
    example = "service show compute-1 nodetracker-compute"
    arguments = _SERVICE

    def show_row(self, args: argparse.Namespace) -> Mapping[str, Any]:
        services = self.reader.list_services(args.host, args.binary)
        if not services:
            raise NotFoundError(f"no such service: {args.binary} on host {args.host}")
        service = services[0]
        shown = render_service(service, self.read_liveness())
        return shown | {
            **pick(service, *_MORE),
            **asdict(service.incarnation),
        }


class SetService(StoreCommand):
    example = 'service set compute-1 nodetracker-compute --down --reason "fenced off"'
    arguments = _SERVICE

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the settings."""
        parser = super().get_parser(prog_name)
        _add_switch(
            parser,
            "disabled",
            ("--enable", "Schedule new workloads to its host."),
            ("--disable", "Schedule no new workloads to its host."),
        )
        parser.add_argument("--disable-reason", metavar="REASON", help="Reason, with --disable.")
        parser.add_argument("--reason", metavar="REASON", help="Reason, with --down.")
        _add_switch(
            parser,
            "forced_down",
            ("--up", "Evaluate it by its heartbeats again."),
            ("--down", "Force it down, regardless of its heartbeats."),
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if parsed_args.disable_reason is not None and not parsed_args.disabled:
            self.parser.error("--disable-reason requires --disable")
        if parsed_args.reason is not None and not parsed_args.forced_down:
            self.parser.error("--reason requires --down")
        if parsed_args.disabled is None and parsed_args.forced_down is None:
            self.parser.error("one of --enable, --disable, --up and --down is required")
        change = ServiceChange(
            parsed_args.disabled,
            parsed_args.disable_reason,
            parsed_args.forced_down,
            disabled_by=read_operator(),
            forced_down_reason=parsed_args.reason,
        )
        self.store.set_service(parsed_args.host, parsed_args.binary, change)


def _add_switch(
    parser: argparse.ArgumentParser, target: str, off: tuple[str, str], on: tuple[str, str]
) -> None:
    """Add the options, each with its help, that set a value to False and to True."""
    group = parser.add_mutually_exclusive_group()
    for (option, text), value in ((off, False), (on, True)):
        group.add_argument(option, dest=target, action="store_const", const=value, help=text)


class DeleteService(StoreCommand):
    details = "Of several hosts, those whose service cannot be deleted are printed and left."
    example = "service delete compute-1 nodetracker-compute"
    arguments = (
        argument("hosts", metavar="host", nargs="+", help="As service list shows it."),
        _SERVICE[1],
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        hosts, lines, errors = parsed_args.hosts, [], []
        with show_progress("deleting services", self.app.stderr) as progress:
            for number, host in enumerate(hosts):
                progress.report(number, len(hosts), host)
                try:
                    lines.append(self._delete(host, parsed_args.binary))
                except (NotFoundError, RefusedError) as error:
                    errors.append(error)
        self.app.stdout.write("".join(lines))
        if errors and len(hosts) == 1:
            raise errors[0]
        for found in errors:
            self.app.stderr.write(f"{draw_error(found, self.app.stderr)}\n")
        if errors:
            raise RefusedError(f"{len(errors)} of {count_noun(len(hosts), 'service')} not deleted")

    def _delete(self, host: str, binary: str) -> str:
        """Delete one service; return the line that says what was deleted."""
        nodes = self.store.list_nodes(host) if binary == COMPUTE_BINARY else []
        self.store.delete_service(host, binary, self.service_down_time)
        delete_queues(self.app, host, binary)
        more = f", with {count_noun(len(nodes), 'node')}" if nodes else ""
        return f"service {binary} of host {host} deleted{more}\n"


_HOST = argument("host", help="As host list shows it.")


class ListHosts(ListCommand):
    details = """
    The fullness is the allocated share of what may be allocated of the fullest resource of a
    host's nodes; above 1, more is allocated. since says since when a host is down, or else forced
    down, in maintenance or disabled. Claims that name no host leave a spare one out. loss says
    whether all guests would fit on the other hosts if this one failed, where services have found
    it out recently. Services that manage no host have none of these.
    """
    example = "host list"
    columns = (
        "host_name", "service", "zone", "state", "fullness", "guests", "since", "spare", "loss",
    )  # fmt: skip
    long_columns = ("nodes", *FORCING, *DISABLING, *MAINTENANCE)
    shown_columns = ("status", _MAINTENANCE)
    layout = (
        Column("host_name", ("host_name",), Kind.NAME),
        Column("service", ("service",), priority=1),
        Column("zone", ("zone",), priority=2),
        Column("state", ("state", "status", _MAINTENANCE), Kind.NODE_STATE),
        Column("spare", ("spare",), priority=1),
        Column("full", ("fullness",), Kind.FRACTION),
        Column("guests", ("guests",), Kind.NUMBER),
        Column("since", ("since",), Kind.MOMENT, 1),
        Column("loss is", ("loss",), priority=2),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        services = self.reader.list_services()
        liveness = Liveness.of(services, self.reader.now(), self.service_down_time)
        losses = {
            item.host: item
            for item in self.reader.list_tolerances()
            if is_fresh(item, liveness.now)
        }
        sums = self.reader.sum_hosts()
        for service in sorted(services, key=lambda service: natural_key(service.host)):
            agent = service if service.binary == COMPUTE_BINARY else None
            found = sums.get(service.host) if agent else None
            has_nodes = {"nodes": 0, "guests": 0} if agent and found is None else {}
            yield {
                **render_host(service),
                "state": None if agent is None else state_of(agent, liveness),
                "status": None if agent is None else status_of(agent),
                **pick(agent, _MAINTENANCE, *FORCING, *DISABLING, *MAINTENANCE, "spare"),
                **pick(found, "nodes", "guests", "fullness"),
                **has_nodes,
                **pick(losses.get(service.host) if agent else None, "loss=verdict"),
                "since": render_time(find_since(agent, liveness)),
            }


class ShowHost(ListCommand):
    example = "host show compute-1"
    arguments = (_HOST,)

    columns = ("host", "project", "cpu", "memory_mb", "disk_gb")
    layout = (
        Column("host", ("host",), priority=1),
        Column("project", ("project",)),
        Column("cpu", ("cpu",), Kind.COUNT),
        Column("memory", ("memory_mb",), Kind.MIB),
        Column("disk", ("disk_gb",), Kind.GIB),
    )

    def list_rows(self, args: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
        return map(asdict, read_host_usage(self.reader, args.host))


class SetHost(StoreCommand):
    details = """
    New claims are refused in maintenance. Running workloads are not moved or
    stopped; that is the operator's task. Claims that name no host leave a spare one out, unless
    they are moves of type evacuation; one that names it is granted.
    """
    example = 'host set compute-1 --enable-maintenance --maintenance-reason "new disk"'
    arguments = (_HOST,)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the host's new state: one of each pair, or both."""
        parser = super().get_parser(prog_name)
        _add_switch(
            parser,
            "disabled",
            ("--enable", "Schedule new workloads to the host."),
            ("--disable", "Schedule no new workloads to the host."),
        )
        _add_switch(
            parser,
            "maintenance",
            ("--disable-maintenance", "Accept claims again."),
            ("--enable-maintenance", "Refuse new claims."),
        )
        parser.add_argument("--disable-reason", metavar="REASON", help="Reason, with --disable.")
        parser.add_argument(
            "--maintenance-reason", metavar="REASON", help="Reason, with --enable-maintenance."
        )
        _add_switch(
            parser,
            "spare",
            ("--no-spare", "Place any claim on the host again."),
            ("--spare", "Keep the host free for evacuations and claims that name it."),
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        disabled, maintenance = parsed_args.disabled, parsed_args.maintenance
        reason, spare = parsed_args.disable_reason, parsed_args.spare
        if disabled is None and maintenance is None and spare is None:
            self.parser.error(
                "one of --enable, --disable, --enable-maintenance, --disable-maintenance, --spare "
                "and --no-spare is required"
            )
        if reason is not None and not disabled:
            self.parser.error("--disable-reason requires --disable")
        if parsed_args.maintenance_reason is not None and not maintenance:
            self.parser.error("--maintenance-reason requires --enable-maintenance")
        change = ServiceChange(
            disabled,
            reason,
            maintenance=maintenance,
            maintenance_reason=parsed_args.maintenance_reason,
            spare=spare,
            disabled_by=read_operator(),
        )
        service = self.store.set_service(parsed_args.host, COMPUTE_BINARY, change)
        line = f"host {service.host} is {status_of(service)}"
        if service.maintenance:
            line += " and in maintenance: new claims are refused; running workloads are not moved"
        if service.spare:
            line += "; it is spare: only evacuations and claims that name it are placed there"
        self.app.stdout.write(f"{line}\n")


class ChangeHosts(StoreCommand):
    """Base of commands that change hosts, each in one transaction; those that fail are left."""

    done: ClassVar[str]

    def make_change(self, args: argparse.Namespace) -> ServiceChange:
        """Return the change of each host."""
        raise NotImplementedError

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        hosts = list(dict.fromkeys(parsed_args.hosts))
        change, errors = self.make_change(parsed_args), []
        for host in hosts:
            try:
                self.store.set_service(host, COMPUTE_BINARY, change)
                self.app.stdout.write(f"host {host} is {self.done}{self.describe(host)}\n")
            except NotFoundError:
                errors.append(NotFoundError(f"no such host: {host}"))
        if errors and len(hosts) == 1:
            raise errors[0]
        for found in errors:
            self.app.stderr.write(f"{draw_error(found, self.app.stderr)}\n")
        if errors:
            raise RefusedError(f"{len(errors)} of {count_noun(len(hosts), 'host')} not changed")

    def describe(self, host: str) -> str:
        """Return what else is to be known of a host that was changed."""
        return ""


_HOSTS = argument("hosts", metavar="host", nargs="+", help="As host list shows it.")


class TakeOut(ChangeHosts):
    details = """
    New claims are refused. Running workloads are not moved or stopped; how many there were is
    recorded in the history. Undo it with host in.
    """
    example = 'host out compute-1 compute-2 --reason "new disks"'
    arguments = (
        _HOSTS,
        argument("--reason", metavar="REASON", required=True, help="Why, for all who see it."),
    )
    done = "disabled and in maintenance"

    def make_change(self, args: argparse.Namespace) -> ServiceChange:
        return ServiceChange(
            True,
            args.reason,
            maintenance=True,
            maintenance_reason=args.reason,
            disabled_by=read_operator(),
        )

    def describe(self, host: str) -> str:
        found = self.store.sum_hosts([host]).get(host)
        guests = 0 if found is None else found.guests
        are = "is" if guests == 1 else "are"
        return f": {count_noun(guests, 'guest')} {are} still there"


class TakeIn(ChangeHosts):
    details = "What forces a host down is kept; service set ends that."
    example = "host in compute-1 compute-2"
    arguments = (_HOSTS,)
    done = "enabled and no longer in maintenance"

    def make_change(self, args: argparse.Namespace) -> ServiceChange:
        return ServiceChange(False, maintenance=False, disabled_by=read_operator())


class ActOnHost(StoreCommand):
    details = "Its agent must allow it ([compute] allow_power_actions) and its driver support it."
    example = "host action compute-1 reboot"
    arguments = (_HOST, argument("action", choices=POWER_ACTIONS))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.app.find_agent(parsed_args.host).host_power_action(parsed_args.action)
        self.app.stdout.write(f"host {parsed_args.host}: {parsed_args.action} started\n")


class RenameHost(StoreCommand):
    details = "A node with the host's old name is renamed too; every node keeps its uuid."
    example = "host rename compute-1 compute-11"
    arguments = (
        argument("old", metavar="OLD", help="Name of the host in the rows."),
        argument("new", metavar="NEW", help="Value of [DEFAULT] host now."),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        old, new = parsed_args.old, _read_name(parsed_args.new)
        if old == new:
            raise RefusedError(f"{new} is the host's name already")
        service = find_agent(self.store, old)
        if service is not None:
            self._refuse_while_alive(service)
        try:
            moved = self.store.rename_host(old, new, COMPUTE_BINARY, service)
        except ConflictError as error:
            raise RefusedError(f"{error}; its agent is running: stop it first") from None
        delete_queues(self.app, old, COMPUTE_BINARY)
        self.app.stdout.write(f"host {old} renamed to {new}, with {count_noun(moved, 'node')}\n")

    def _refuse_while_alive(self, service: ServiceRecord) -> None:
        """Refuse if the host's agent sent a heartbeat recently and sends another one."""
        if not has_recent_heartbeat(service, self.store.now(), self.service_down_time):
            return
        interval = limit_interval(service, self.service_down_time)
        total = get_watch_seconds(interval)
        self.app.stderr.write(
            f"host {service.host} sent a heartbeat recently; watching its heartbeats for "
            f"{total} s\n"
        )
        with show_progress("watching heartbeats", self.app.stderr) as progress:

            def wait(seconds: float) -> bool:
                progress.report(progress.elapsed_seconds, total)
                time.sleep(seconds)
                return False

            alive = HeartbeatWatch(self.store, wait).find_alive(service, interval)
        if alive is not None:
            raise RefusedError(f"host {service.host} is alive; stop its agent first")


class TakeOverNode(StoreCommand):
    details = """
    Its row, claims, migrations and uuid go with it. The former host's agent is refused the node
    from then on, also while the new host is down.
    """
    example = "host takeover node-1 --from compute-1"
    required_names = ("host", "nodename")
    arguments = (
        *node_arguments("--from", of_host="Host that has it.", of_node="As node list shows it."),
        argument(
            "--to",
            metavar="HOST",
            help="Host that is to have it, if no agent was refused the node or several were.",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host, nodename = parsed_args.host, parsed_args.nodename
        to = self.store.take_over_node(host, nodename, parsed_args.to, self.service_down_time)
        self.app.stdout.write(f"node {nodename} of host {host} given to host {to}\n")


class PurgeHost(StoreCommand):
    details = """
    Moves to the host are cancelled, and moves from it are in error. Guests are not stopped: an
    agent of the host that starts again finds those that run, without claims. Stop the agent of a
    live host first; where it cannot be trusted, revoke its credential.
    """
    example = "host purge compute-1 --yes"
    arguments = (_HOST, flag("--yes", "Delete without asking; required without a terminal."))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        host = parsed_args.host
        if not parsed_args.yes:
            ask(self, f"Delete all nodes of host {host} with the claims on them?", "host purge")
        deleted = self.store.purge_host(host, self.service_down_time)
        self.app.stdout.write(f"{count_noun(deleted, 'node')} of host {host} deleted\n")


def _read_name(text: str) -> str:
    try:
        return check_host_name(text)
    except ConfigError as error:  # the name was typed, not configured
        raise RefusedError(str(error)) from None


def delete_queues(app: Any, host: str, binary: str) -> None:
    """Delete the message broker's queues of a service that was deleted from the database.

    A failure is printed and not raised, because the service is deleted already.
    """
    try:
        app.broker.delete_service_queues(host, binary)
    except (ConfigError, RpcError) as error:
        app.stderr.write(f"its queues are left in the message broker: {error}\n")


def read_operator(read_login: Callable[[], str] = os.getlogin) -> str:
    """Return ``user@host`` of this process, for the record of a change.

    The login name survives su and sudo. Without a login session, as in a unit or a
    container, it is the user of the process.

    Args:
        read_login: raises OSError where there is no login session.
    """
    try:
        name = read_login()
    except OSError:
        name = _read_user()
    return f"{name}@{socket.gethostname()}"


def _read_user() -> str:
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
