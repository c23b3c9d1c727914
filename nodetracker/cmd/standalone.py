"""nodetracker-standalone: an agent on SQLite that needs no setup."""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from oslo_config import cfg

from nodetracker.api.page_files import ADDRESS
from nodetracker.bootstrap.agent import build_agent, prepare_agent
from nodetracker.bootstrap.api import build_own_server
from nodetracker.bootstrap.options.agent import COMPUTE
from nodetracker.bootstrap.options.api import API
from nodetracker.bootstrap.options.default import DEFAULT
from nodetracker.bootstrap.options.opts import register_options
from nodetracker.bootstrap.stores import (
    build_purge,
    build_sql_store,
    build_tolerance_watch,
    make_outage_log,
    watch_calls,
)
from nodetracker.bootstrap.values import build_database_settings
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import leave, run_agent, run_program, start
from nodetracker.cmd.screen.lines import make_line, plain_text
from nodetracker.cmd.screen.output import Panel, PanelStream, Screen
from nodetracker.cmd.screen.overview import draw_overview
from nodetracker.cmd.screen.table import Column, Kind, draw_table
from nodetracker.cmd.screen.terminal import Terminal, detect_terminal, safe_text
from nodetracker.db.schema import revisions
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import ConfigError
from nodetracker.ports import AuditObserver, Store, StoreObserver
from nodetracker.process.daemon import is_started_by_hand
from nodetracker.rpc.host_calls import HostCaller
from nodetracker.usecases.trends import read_fleet_trend
from nodetracker.usecases.watch import INTERVAL_SECONDS, TrendWatch
from nodetracker.views.problems import FleetView, view_fleet

LOG = logging.getLogger(__name__)
PROGRAM = "nodetracker-standalone"
_DESCRIPTION = (
    "The agent of this machine with its own SQLite database; needs no setup. "
    "Shows the node after each audit, and serves the REST API on loopback. "
    "Its state and its configuration file are in ~/.local/state/nodetracker."
)
CONFIGURATION_FILE = "nodetracker.conf"
_TRENDS_SECONDS = 60.0  # from its start on, when the first audit has stored the node
_PURGE = {"released_claims_days": 30, "history_days": 90}
_COLUMNS = (
    Column("node", ("nodename",)),
    Column("cpu", ("vcpus_used", "vcpus"), Kind.SHARE),
    Column("memory", ("memory_mb_used", "memory_mb"), Kind.SHARE_MIB),
    Column("disk", ("local_gb_used", "local_gb"), Kind.SHARE_GIB),
    Column("vms", ("running_vms",), Kind.COUNT, 1),
    Column("containers", ("total_containers",), Kind.COUNT, 2),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent on its own database."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def default_state_path() -> Path:
    """Return nodetracker's directory below the user's XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "nodetracker"


def _run(arguments: Sequence[str]) -> int:
    own_file = default_state_path() / CONFIGURATION_FILE
    default_files = [own_file] if own_file.exists() else []

    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        load_configuration(conf, arguments, PROGRAM, default_files, register, _DESCRIPTION)

    conf = cfg.CONF
    cfg.set_defaults(DEFAULT.options, state_path=str(default_state_path()))
    cfg.set_defaults(API.options, auth_strategy="noauth")
    cfg.set_defaults(COMPUTE.options, compute_monitors=["cpu.virt_driver"])
    load(conf, register_options)
    terminal = detect_terminal(sys.stdout)
    panel = Panel(sys.stdout) if terminal.is_interactive else None
    if panel is not None and sys.stderr.isatty():
        sys.stderr = PanelStream(sys.stderr, panel)
    parts = start(conf, prepare_agent)
    settings = parts.settings
    state_path = Path(settings.state_path).absolute()
    _create_state_path(state_path)
    database = build_database_settings(conf)
    if not database.connection.startswith("sqlite"):
        raise ConfigError(
            "[database] connection: standalone requires SQLite; "
            "run nodetracker-compute for other databases"
        )
    printer: AuditObserver = TablePrinter(sys.stdout)
    if panel is not None:
        limits = settings.service_down_time, conf.compute.held_fact_expiry
        printer = OverviewPrinter(
            lambda: view_fleet(agent.store.read_overview(), *limits, read_fleet_trend(agent.store)),
            panel,
            sys.stdout,
        )
    # One of the agent and of the REST service, so that an outage is in the log once.
    outages = make_outage_log()

    def open_store(observers: Sequence[StoreObserver]) -> Store:
        store = build_sql_store(conf, observers=observers, watch=watch_calls(outages))
        revisions.sync(store.engine)
        return store

    agent = build_agent(conf, parts, [printer], open_store, database=outages)
    own_file = state_path / CONFIGURATION_FILE
    if _write_own_file(own_file, settings.host):
        for name, days in _PURGE.items():
            conf.set_default(name, days, "database")
    calls = agent.calls
    assert calls is not None  # as it is served
    agents = HostCaller(
        agent.store, f"api:{settings.host}", lambda host: calls.wake(), settings.service_down_time
    )
    server = build_own_server(conf, agent.store, agents, agent.read_status)
    print(f"Open it in a browser: {server.url}{ADDRESS}")
    print(
        f"Query it from another terminal: {name_manage()} --config-file {own_file} node list",
        flush=True,
    )
    trends = TrendWatch(agent.store)
    agent.service.add_tasks("trends", trends, _TRENDS_SECONDS, is_slow=True, outages=outages)
    purge = build_purge(conf, agent.store)
    if purge is not None:
        agent.service.add_tasks("purge", purge, INTERVAL_SECONDS, is_slow=True).wake()
    tolerance = build_tolerance_watch(conf, agent.store)
    spacing = tolerance.spacing
    agent.service.add_tasks("tolerance", tolerance, spacing, is_slow=True, outages=outages)
    ends_with_terminal = is_started_by_hand(os.environ)
    return leave(run_agent(conf, load, agent, PROGRAM, server, ends_with_terminal))


class OverviewPrinter:
    """Shows the overview at the end of a terminal after each audit."""

    def __init__(self, read: Callable[[], FleetView], panel: Panel, out: TextIO) -> None:
        self._read = read
        self._panel = panel
        self._out = out

    def audited(self, report: AuditReport) -> None:
        """Repaint the overview."""
        if report.store_error is not None:
            return  # it is in the log
        terminal = detect_terminal(self._out)
        lines = draw_overview(self._read(), terminal, terminal.height - 2)
        self._panel.paint(Screen(self._out, terminal).render(lines))


class TablePrinter:
    """Prints the nodes after each audit that changed one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def audited(self, report: AuditReport) -> None:
        """Print one table."""
        if report.store_error is not None or not report.changes:
            return  # a store error is in the log
        try:
            print(render_table(report), end="", file=self._out, flush=True)
        except BrokenPipeError:
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the reader has gone


def render_table(report: AuditReport) -> str:
    """Return the nodes as a table, followed by their errors."""
    names = [name for column in _COLUMNS[1:] for name in column.names]
    rows = [
        {"nodename": nodename} | {name: getattr(record.values, name) for name in names}
        for nodename, record in sorted(report.nodes.items())
    ]
    problems = [f"{name}: {error}" for name, error in sorted(report.errors.items())]
    if report.listing_error is not None:
        problems.append(report.listing_error)
    table = draw_table(_COLUMNS, rows, Terminal(), None)
    return plain_text([*table, *(make_line(safe_text(problem)) for problem in problems)])


def name_manage() -> str:
    """Return the command nodetracker-manage: its path unless PATH contains it."""
    name = "nodetracker-manage"
    sibling = Path(sys.argv[0]).with_name(name)
    return (
        name if shutil.which(name) or not sibling.exists() else str(sibling.parent.resolve() / name)
    )


def _create_state_path(state_path: Path) -> None:
    try:
        state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"state_path: {state_path} cannot be created: {error.strerror}"
        ) from error


def _write_own_file(path: Path, host: str) -> bool:
    """Write the file by which other programs find this state; return False if it exists."""
    purge = "".join(f"{name} = {days}\n" for name, days in _PURGE.items())
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(
                f"[DEFAULT]\nhost = {host}\nstate_path = {path.parent}\n\n[database]\n{purge}"
            )
    except FileExistsError:
        return False  # an operator may have added options
    except OSError as error:
        raise ConfigError(f"state_path: {path} cannot be written: {error.strerror}") from error
    return True


if __name__ == "__main__":
    sys.exit(main())
