"""nodetracker-standalone: an agent on SQLite that needs no setup."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from oslo_config import cfg
from prettytable import PrettyTable

from nodetracker.api.page_files import ADDRESS
from nodetracker.api.server import PatientServer
from nodetracker.bootstrap.agent import build_agent
from nodetracker.bootstrap.api import build_own_server
from nodetracker.bootstrap.settings import build_database_settings, build_settings
from nodetracker.cmd.program import (
    leave,
    load_configuration,
    run_agent,
    run_program,
    start_logging,
)
from nodetracker.compute.operations import OwnAgentDirectory
from nodetracker.conf import api, default
from nodetracker.conf.opts import register_options
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.errors import ConfigError
from nodetracker.model.audit import AuditReport

PROGRAM = "nodetracker-standalone"
_DESCRIPTION = (
    "The agent of this machine with its own SQLite database; needs no setup. "
    "Shows the node after each audit, and serves the REST API on loopback. "
    "Its state and its configuration file are in ~/.local/state/nodetracker."
)
CONFIGURATION_FILE = "nodetracker.conf"

_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip


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
    cfg.set_defaults(default.OPTIONS, state_path=str(default_state_path()))
    cfg.set_defaults(api.OPTIONS, auth_strategy="noauth")
    load(conf, register_options)
    start_logging(conf)
    settings = build_settings(conf)
    state_path = Path(settings.state_path)
    _create_state_path(state_path)
    database = build_database_settings(conf)
    if not database.connection.startswith("sqlite"):
        raise ConfigError(
            "[database] connection: standalone requires SQLite; "
            "run nodetracker-compute for other databases"
        )
    store = open_store(database)
    revisions.sync(store.engine)
    own_file = _write_own_file(state_path, settings.host)
    agent = build_agent(conf, observers=[TablePrinter(sys.stdout)], store=store)
    agents = OwnAgentDirectory(settings.host, agent.operations)
    server = build_own_server(conf, agent.store, agents, agent.read_status)
    print(f"Open it in a browser: {server.url}{ADDRESS}")
    print(
        f"Query it from another terminal: {_manage()} --config-file {own_file} node list",
        flush=True,
    )
    return leave(run_agent(conf, load, agent, PROGRAM, [PatientServer(server)]))


class TablePrinter:
    """Prints the nodes after each audit on a terminal; elsewhere only after changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def audited(self, report: AuditReport) -> None:
        """Print one table."""
        is_wanted = self._out.isatty() or report.changes
        if report.store_error is not None or not is_wanted:
            return  # a store error is in the log
        try:
            print(render_table(report), file=self._out, flush=True)
        except BrokenPipeError:
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - the reader has gone


def render_table(report: AuditReport) -> str:
    """Return the nodes as a table, followed by their errors."""
    table = PrettyTable(["nodename", *_COLUMNS])
    table.align = "r"
    table.align["nodename"] = "l"
    for name, record in sorted(report.nodes.items()):
        table.add_row([name, *(getattr(record.values, column) for column in _COLUMNS)])
    problems = [f"{name}: {error}" for name, error in sorted(report.errors.items())]
    if report.listing_error is not None:
        problems.append(report.listing_error)
    return "\n".join([table.get_string(), *problems])


def _manage() -> str:
    """Return the command nodetracker-manage: its path unless PATH contains it."""
    name = "nodetracker-manage"
    sibling = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not sibling.exists() else str(sibling.absolute())


def _create_state_path(state_path: Path) -> None:
    try:
        state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"state_path: {state_path} cannot be created: {error.strerror}"
        ) from error


def _write_own_file(state_path: Path, host: str) -> Path:
    """Write the file by which other programs find this state, unless it exists."""
    path = state_path / CONFIGURATION_FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"[DEFAULT]\nhost = {host}\nstate_path = {state_path}\n")
    except FileExistsError:
        pass  # an operator may have added options
    except OSError as error:
        raise ConfigError(f"state_path: {path} cannot be written: {error.strerror}") from error
    return path


if __name__ == "__main__":
    sys.exit(main())
