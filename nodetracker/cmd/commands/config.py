"""config sample, check."""

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from oslo_config import cfg, generator

from nodetracker.bootstrap.agent import prepare_agent
from nodetracker.bootstrap.clients import list_messaging_options
from nodetracker.bootstrap.config_files import find_exposures, find_problems
from nodetracker.bootstrap.options.opts import register_driver_options
from nodetracker.bootstrap.values import Problems
from nodetracker.cmd.commands.base import StoreCommand, argument
from nodetracker.cmd.program import check_log_files
from nodetracker.cmd.screen.streams import draw_error
from nodetracker.model.errors import ConfigError
from nodetracker.model.service import API_BINARY, COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.process.daemon import EXIT_CONFIG, EXIT_DONE

SAMPLE_NAMESPACES = (
    "nodetracker", "oslo.db", "oslo.log", "oslo.messaging", "oslo.reports",
    "oslo.middleware.http_proxy_to_wsgi", "oslo.policy", "keystonemiddleware.auth_token",
)  # fmt: skip


class ShowSample(StoreCommand):
    example = "config sample > nodetracker.conf"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from nodetracker.api.library_options import list_options as list_api_options

        for list_options in (list_messaging_options, list_api_options):
            list_options()  # sets nodetracker's own defaults
        installed = {entry.name for entry in entry_points(group="oslo.config.opts")}
        for name in SAMPLE_NAMESPACES:
            if name not in installed:
                self.app.stderr.write(f"{name} is not installed; its options are left out\n")
        names = [name for name in SAMPLE_NAMESPACES if name in installed]
        conf = cfg.ConfigOpts()
        generator.register_cli_opts(conf)
        conf([f"--namespace={name}" for name in names], default_config_files=[])
        generator.generate(conf, output_file=self.app.stdout)


def _build_api(conf: cfg.ConfigOpts) -> object:
    from nodetracker.bootstrap.api import build_api

    return build_api(conf)


def _build_conductor(conf: cfg.ConfigOpts) -> object:
    from nodetracker.bootstrap.conductor import build_conductor

    return build_conductor(conf)


_BUILDERS: Mapping[str, Callable[[cfg.ConfigOpts], object]] = {
    COMPUTE_BINARY: prepare_agent,
    API_BINARY: _build_api,
    CONDUCTOR_BINARY: _build_conductor,
}
"""How the programs are built, as far as their configuration decides; nothing is connected."""

UNITS = Path("/etc/systemd/system")


def find_enabled(units: Path) -> list[str]:
    """Return the programs whose units are enabled.

    Args:
        units: directory of the administrator's units, ``/etc/systemd/system``.
    """
    return [
        program
        for program in _BUILDERS
        if any((wants / f"{program}.service").is_symlink() for wants in units.glob("*.wants"))
    ]


class _Warnings(logging.Handler):
    """Keeps the program's own warnings; libraries log what is an error as well."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        if record.name.startswith("nodetracker."):
            self.texts.append(record.getMessage())


@contextmanager
def _collecting_warnings() -> Iterator[list[str]]:
    """Return the list of what is logged meanwhile, which no other handler gets."""
    warnings, root = _Warnings(), logging.getLogger()
    before, root.handlers = root.handlers, [warnings]
    try:
        yield warnings.texts
    finally:
        root.handlers = before


class CheckConfig(StoreCommand):
    details = """
    Prints a line for each problem, and for what a program runs with but should not. A program
    is built as at its start, from its files (that is also /etc/nodetracker/PROGRAM.conf.d);
    nothing is connected or written. Without a program, those whose systemd units are enabled
    are checked, or else the agent, and the REST service unless [conductor] use_local is false.
    """
    example = "config check nodetracker-api"
    arguments = (
        argument(
            "program",
            nargs="?",
            choices=sorted(_BUILDERS),
            help="Whose configuration is checked; by default those that are enabled here.",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        programs = [parsed_args.program] if parsed_args.program else self._find_programs()
        names: dict[str, list[str]] = {}  # of the programs that have a problem
        warnings: dict[str, None] = {}
        valid = []
        for program in programs:
            problems, found, files = self._check(program)
            for problem in problems:
                names.setdefault(problem, []).append(program)
            warnings |= dict.fromkeys(found)
            valid.append(f"the configuration of {program} is valid ({files})\n")
        for problem, having in names.items():
            whose = "" if having == programs else f"{', '.join(having)}: "
            self.app.stderr.write(f"{draw_error(f'{whose}{problem}', self.app.stderr)}\n")
        if names:
            return EXIT_CONFIG
        for warning in warnings:
            self.app.stderr.write(f"warning: {warning}\n")
        self.app.stdout.write("".join(valid))
        return EXIT_DONE

    def _find_programs(self) -> list[str]:
        if enabled := find_enabled(UNITS):
            return enabled
        conf = self.app.read_configuration(COMPUTE_BINARY)
        try:
            is_local = conf.conductor.use_local
        except (cfg.Error, ValueError):  # which the check names
            is_local = False
        return [COMPUTE_BINARY, API_BINARY] if is_local else [COMPUTE_BINARY]

    def _check(self, program: str) -> tuple[list[str], list[str], str]:
        """Return the problems and warnings of a program, and the files that it reads."""
        conf = self.app.read_configuration(program)
        register_driver_options(conf)
        collected = Problems()
        with _collecting_warnings() as warnings:
            collected.collect(check_log_files, conf)
            collected.collect(_BUILDERS[program], conf)
        problems = list(find_problems(conf))
        try:
            collected.raise_any()
        except ConfigError as error:
            problems += error.problems
        if not problems:
            warnings += find_exposures(conf)
        files = ", ".join(conf.config_file) or "no file, defaults only"
        return list(dict.fromkeys(problems)), warnings, files
