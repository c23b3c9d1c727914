"""Start and end programs: set up logging, run an agent, turn errors into exit codes."""

import configparser
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oslo_config import cfg
from oslo_log import log as oslo_log
from oslo_log.formatters import JSONFormatter

from nodetracker.bootstrap.config_files import find_ignored
from nodetracker.bootstrap.options.opts import register_options, register_options_for_check
from nodetracker.bootstrap.settings import build_settings
from nodetracker.bootstrap.values import Problems
from nodetracker.cmd.configuration import PROJECT, load_configuration
from nodetracker.cmd.screen.streams import (
    SafeFormatter,
    draw_error,
    end_output,
    make_safe,
    replace_closed_streams,
)
from nodetracker.model.errors import ConfigError, IdentityError, NodetrackerError
from nodetracker.process.change_log import guard_records, open_change_file
from nodetracker.process.daemon import EXIT_CONFIG, EXIT_FAILED
from nodetracker.process.log_guard import guard_handler, list_handlers
from nodetracker.web.listeners import RetryingServer

if TYPE_CHECKING:  # imported late: not every program is an agent
    from nodetracker.bootstrap.agent import Agent
    from nodetracker.process.service import Service
    from nodetracker.web.server import Server

LOG = logging.getLogger(__name__)
_Built = TypeVar("_Built")


def start_logging(conf: cfg.ConfigOpts) -> None:
    """Set up logging as configured, and log options that are ignored.

    No text of others forges a line, or moves a terminal's cursor.

    Raises:
        ConfigError: the log cannot be written.
    """
    check_log_files(conf)
    try:
        oslo_log.setup(conf, PROJECT)
    except (OSError, cfg.Error, oslo_log.LogConfigError) as error:
        raise ConfigError(f"logging cannot be set up: {error}") from error
    guard_records()
    _prepare_handlers()
    open_change_file(conf.audit.log_file, conf.audit.log_format)
    for line in find_ignored(conf):
        LOG.warning("%s", line)


def _prepare_handlers() -> None:
    """Let all handlers write safe text, and drop what they cannot write."""
    for handler in list_handlers():
        guard_handler(handler)
        if not isinstance(handler.formatter, JSONFormatter | SafeFormatter):  # escape themselves
            handler.setFormatter(SafeFormatter(handler.formatter or logging.Formatter()))


def start(conf: cfg.ConfigOpts, build: Callable[[cfg.ConfigOpts], _Built]) -> _Built:
    """Start logging, and build a program or what its configuration alone decides.

    Raises:
        ConfigError: as these two; it names all problems of both.
    """
    problems = Problems()
    problems.collect(start_logging, conf)
    built = problems.collect(build, conf)
    problems.raise_any()
    return built


Load = Callable[[cfg.ConfigOpts, Callable[[cfg.ConfigOpts], None]], None]
"""Reads a program's configuration into an object, registering options by a function."""


def run_agent(
    conf: cfg.ConfigOpts,
    load: Load,
    agent: "Agent",
    program: str,
    rest_server: "Server | None" = None,
    ends_with_terminal: bool = False,
) -> int:
    """Run an agent and its servers until a signal or a fatal error; return the exit code.

    Args:
        load: reads the configuration again at a reload.
        rest_server: in addition to that of metrics and health.
        ends_with_terminal: as `Service.run`.
    """
    from nodetracker.process.service import hold_signals

    def reload() -> None:
        reload_configuration(
            conf,
            load,
            lambda candidate: agent.check(build_settings(candidate)),
            [] if rest_server is None else [rest_server.reload_certificate],
        )
        agent.reconfigure(build_settings(conf))

    report = partial(write_report, conf, program)
    hold_signals()
    wanted = {"Metrics and health": agent.metrics_server, "REST": rest_server}
    servers = [RetryingServer(name, server) for name, server in wanted.items() if server]
    for server in servers:
        server.start()
    try:
        return agent.service.run(conf, reload, report, ends_with_terminal)
    finally:
        for server in servers:
            server.stop()
        agent.store.close()
        if agent.notifier is not None:
            agent.notifier.flush()


def reload_configuration(
    conf: cfg.ConfigOpts,
    load: Load,
    check: Callable[[cfg.ConfigOpts], object],
    reload_others: Sequence[Callable[[], None]] = (),
) -> None:
    """Read the options that may change again, unless a value is invalid.

    Args:
        load: reads the files into a copy first, so that nothing changes if one is invalid.
        check: raises ConfigError for an invalid value of the copy.
        reload_others: read other files again, each wholly or not at all.

    Raises:
        ConfigError: a value is invalid.
    """
    candidate = cfg.ConfigOpts()
    load(candidate, register_options_for_check)
    check(candidate)
    check_log_files(candidate)
    for reload in reload_others:
        reload()
    try:
        conf.mutate_config_files()
    except cfg.Error as error:
        raise ConfigError(" ".join(str(error).split())) from error
    _prepare_handlers()
    open_change_file(conf.audit.log_file, conf.audit.log_format)


def run_service(
    program: str,
    description: str,
    build: Callable[[cfg.ConfigOpts], "tuple[Service, Server]"],
    build_settings: Callable[[cfg.ConfigOpts], object],
    arguments: Sequence[str] | None,
) -> int:
    """Run a program that serves HTTP and is not an agent, until a signal ends it.

    Args:
        description: for ``--help``.
        build: builds the service and its server.
        build_settings: raises ConfigError for an invalid value.
        arguments: of the command line; None = this process's.
    """

    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        given = sys.argv[1:] if arguments is None else arguments
        load_configuration(conf, given, program, register=register, description=description)

    def run() -> int:
        conf = cfg.CONF
        load(conf, register_options)
        service, server = start(conf, build)

        def reload() -> None:  # of the options, only those of logging may change
            reload_configuration(conf, load, build_settings, [server.reload_certificate])

        return leave(service.run(conf, reload, lambda: write_report(conf, program)))

    return run_program(program, run)


def check_log_files(conf: cfg.ConfigOpts) -> None:
    """Check the files of the logging library before it uses them.

    Raises:
        ConfigError: its configuration cannot be read or lacks a required section, or the
            directory of the log is none.
    """
    if conf.log_config_append:
        _check_log_config(conf.log_config_append)
        return
    option = "log_dir" if conf.log_dir else "log_file"
    path = conf.log_dir or (conf.log_file and str(Path(conf.log_file).parent))
    if path and not Path(path).is_dir():
        raise ConfigError(f"[DEFAULT] {option}: {path} is not a directory")


def _check_log_config(path: str) -> None:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(Path(path).read_text("utf-8"))
    except (OSError, UnicodeError, configparser.Error) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"[DEFAULT] log_config_append: {path}: {reason}") from error
    missing = [name for name in ("loggers", "handlers", "formatters") if name not in parser]
    if missing:
        names = ", ".join(missing)
        raise ConfigError(f"[DEFAULT] log_config_append: {path}: has no section {names}")


class _PackageVersion:
    """The package's name and version for a Guru Meditation report."""

    def vendor_string(self) -> str:
        return PROJECT

    def product_string(self) -> str:
        return PROJECT

    def version_string_with_package(self) -> str:
        return version(PROJECT)


def write_report(conf: cfg.ConfigOpts, program: str) -> None:
    """Write a Guru Meditation report to stderr, or to a file below [oslo_reports] log_dir."""
    # Imported when needed: it is much code, and reports are rare.
    from oslo_reports.guru_meditation_report import TextGuruMeditation

    TextGuruMeditation.handle_signal(_PackageVersion(), program, conf.oslo_reports.log_dir, None)


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code of an error."""
    needs_operator = isinstance(error, (ConfigError, IdentityError, cfg.Error))
    return EXIT_CONFIG if needs_operator else EXIT_FAILED


def leave(code: int) -> int:
    """End the process immediately, even if a hung call's thread still runs."""
    logging.shutdown()
    code = end_output(code)
    sys.stderr.flush()
    os._exit(code)


def run_program(program: str, main: Callable[[], int]) -> int:
    """Run a program's main function; print its own errors as a line each on stderr.

    What it prints to a terminal is made safe.
    """
    replace_closed_streams()
    sys.stdout = make_safe(sys.stdout)
    try:
        return main()
    except NodetrackerError as error:
        for problem in error.problems if isinstance(error, ConfigError) else [str(error)]:
            print(draw_error(f"{program}: {problem}", sys.stderr), file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return EXIT_FAILED
