"""config sample, check."""

import argparse
from collections.abc import Callable
from importlib.metadata import entry_points

from cliff.command import Command
from oslo_config import cfg, generator

from nodetracker.bootstrap.agent import build_driver, build_probes
from nodetracker.bootstrap.clients import Broker, build_placement_client, list_messaging_options
from nodetracker.bootstrap.conductor_client import check_conductor_client
from nodetracker.bootstrap.config_files import find_exposures, find_problems
from nodetracker.bootstrap.options.default import DATABASE
from nodetracker.bootstrap.options.opts import register_driver_options
from nodetracker.bootstrap.settings import build_settings, check_conductor_values
from nodetracker.bootstrap.stores import require_database
from nodetracker.bootstrap.values import Problems, read_value
from nodetracker.cmd.commands.base import StoreCommand, argument
from nodetracker.cmd.program import check_log_config
from nodetracker.cmd.screen.streams import draw_error
from nodetracker.model.errors import ConfigError
from nodetracker.model.service import API_BINARY, COMPUTE_BINARY, CONDUCTOR_BINARY
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.process.daemon import EXIT_CONFIG, EXIT_DONE

_Check = Callable[[cfg.ConfigOpts], object]
SAMPLE_NAMESPACES = (
    "nodetracker", "oslo.db", "oslo.log", "oslo.messaging", "oslo.reports",
    "oslo.middleware.http_proxy_to_wsgi", "oslo.policy", "keystonemiddleware.auth_token",
)  # fmt: skip


class ShowSample(StoreCommand, Command):
    """Print a sample configuration file with all options."""

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


def _check_driver(conf: cfg.ConfigOpts) -> None:
    try:
        settings = build_settings(conf)
    except (ConfigError, cfg.Error):  # which a check of its own names
        settings = AgentSettings("", "", Policy())
    build_driver(conf, settings, build_probes(settings))


def _check_broker(conf: cfg.ConfigOpts) -> None:
    broker = Broker(conf)
    if broker.is_configured:
        broker.connect()
    check_conductor_client(conf)


def _check_database(conf: cfg.ConfigOpts) -> None:
    from nodetracker.db.connection.engine import DatabaseSettings
    from nodetracker.db.store import open_store

    if conf.conductor.use_local:  # without the other options, which are checked by themselves
        open_store(DatabaseSettings(read_value(conf, DATABASE.name, "connection")))


def _check_placement(conf: cfg.ConfigOpts) -> None:
    if conf.placement.enabled:
        build_placement_client(conf)


def _check_api(conf: cfg.ConfigOpts) -> None:
    from nodetracker.bootstrap.api import build_api_settings

    build_api_settings(conf)


def _check_access(conf: cfg.ConfigOpts) -> None:
    from nodetracker.api.server import load_tls
    from nodetracker.bootstrap.api import build_access, build_api_settings

    settings = build_api_settings(conf)
    if settings.cert_file is not None:
        load_tls(settings)
    build_access(conf, open_paths=frozenset())


_COMMON: tuple[_Check, ...] = (check_log_config, _check_broker, _check_database)
_AGENT: tuple[_Check, ...] = (build_settings, _check_driver, _check_placement)
_CHECKS: dict[str, tuple[_Check, ...]] = {
    COMPUTE_BINARY: (*_AGENT, *_COMMON),
    API_BINARY: (_check_api, _check_access, *_COMMON),
    CONDUCTOR_BINARY: (check_conductor_values, require_database, *_COMMON),
}
_CHECKS_OF_BOTH = (*_AGENT, _check_api, *_COMMON)


class CheckConfig(StoreCommand, Command):
    """Check the configuration: files, option names, values and their consistency.

    Prints a line for each problem. With a program, its files are read (that is also
    /etc/nodetracker/PROGRAM.conf) and only what it uses is checked.
    """

    example = "config check nodetracker-api"
    arguments = (
        argument(
            "program",
            nargs="?",
            choices=sorted(_CHECKS),
            help="Whose configuration is checked; by default that of an agent and a REST service.",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        program = parsed_args.program
        conf = self.app.conf if program is None else self.app.read_configuration(program)
        register_driver_options(conf)
        collected = Problems()
        for check in _CHECKS_OF_BOTH if program is None else _CHECKS[program]:
            collected.collect(check, conf)
        problems = list(find_problems(conf))
        try:
            collected.raise_any()
        except ConfigError as error:
            problems += error.problems
        for problem in dict.fromkeys(problems):  # several checks may name one value
            self.app.stderr.write(f"{draw_error(problem, self.app.stderr)}\n")
        if problems:
            return EXIT_CONFIG
        for exposure in find_exposures(conf):
            self.app.stderr.write(f"warning: {exposure}\n")
        files = ", ".join(conf.config_file) or "no file, defaults only"
        self.app.stdout.write(f"the configuration is valid ({files})\n")
        return EXIT_DONE
