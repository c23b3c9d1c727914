"""nodetracker-standalone: one host on SQLite, with nothing to set up."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from oslo_config import cfg
from prettytable import PrettyTable

from nodetracker.bootstrap.agent import build_agent
from nodetracker.bootstrap.settings import build_database_settings, build_settings
from nodetracker.cmd.compute import leave
from nodetracker.cmd.program import (
    load_configuration,
    run_agent,
    run_program,
    start_logging,
)
from nodetracker.conf import default
from nodetracker.conf.opts import register_options
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.errors import ConfigError
from nodetracker.model.audit import AuditReport

PROGRAM = "nodetracker-standalone"
_DESCRIPTION = (
    "The agent of this machine with an SQLite database of its own: nothing has to be set up. "
    "Shows the node after each audit. Its state and its configuration file are in "
    "~/.local/state/nodetracker."
)
CONFIGURATION_FILE = "nodetracker.conf"

_COLUMNS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used",
    "running_vms", "total_containers",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent on a database of its own."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def default_state_path() -> Path:
    """Return the directory that this user keeps programs' state in, as XDG has it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "nodetracker"


def _run(arguments: Sequence[str]) -> int:
    own_file = default_state_path() / CONFIGURATION_FILE
    default_files = [own_file] if own_file.exists() else []

    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        load_configuration(conf, arguments, PROGRAM, default_files, register, _DESCRIPTION)

    conf = cfg.CONF
    cfg.set_defaults(default.OPTIONS, state_path=str(default_state_path()))
    load(conf, register_options)
    start_logging(conf)
    settings = build_settings(conf)
    state_path = Path(settings.state_path)
    _make_state_path(state_path)
    database = build_database_settings(conf)
    if not database.connection.startswith("sqlite"):
        raise ConfigError(
            "[database] connection: standalone keeps its rows in SQLite; "
            "run nodetracker-compute on any other database"
        )
    store = open_store(database)
    revisions.sync(store.engine)
    own_file = _write_own_file(state_path, settings.host)
    print(
        f"Ask it from another terminal: {_manage()} --config-file {own_file} node list", flush=True
    )
    agent = build_agent(conf, observers=[TablePrinter(sys.stdout)], store=store)
    return leave(run_agent(conf, load, agent, PROGRAM))


class TablePrinter:
    """Prints the nodes after each audit on a terminal; elsewhere only when something changed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def audited(self, report: AuditReport) -> None:
        """Print one table."""
        is_news = self._out.isatty() or report.changes
        if report.store_error is not None or not is_news:
            return  # what could not be stored is in the log
        try:
            print(render_table(report), file=self._out, flush=True)
        except BrokenPipeError:
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - nobody reads any more


def render_table(report: AuditReport) -> str:
    """Write the nodes as a table, and what is not fine below it."""
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
    """Return how to call nodetracker-manage here: by path unless it is on the search path."""
    name = "nodetracker-manage"
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.exists() else str(beside.absolute())


def _make_state_path(state_path: Path) -> None:
    try:
        state_path.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_path: {state_path} cannot be made: {error.strerror}") from error


def _write_own_file(state_path: Path, host: str) -> Path:
    """Leave a file by which the other programs find this state; an existing one stays."""
    path = state_path / CONFIGURATION_FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"[DEFAULT]\nhost = {host}\nstate_path = {state_path}\n")
    except FileExistsError:
        pass  # an operator may have written options of their own into it
    except OSError as error:
        raise ConfigError(f"state_path: {path} cannot be written: {error.strerror}") from error
    return path


if __name__ == "__main__":
    sys.exit(main())
