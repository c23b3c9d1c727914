"""config sample, check."""

import argparse
from importlib.metadata import entry_points

from cliff.command import Command
from oslo_config import cfg, generator

from nodetracker.bootstrap.agent import build_driver, build_probes
from nodetracker.bootstrap.broker import Broker, list_messaging_options
from nodetracker.bootstrap.config_files import find_problems
from nodetracker.bootstrap.placement import build_placement_client
from nodetracker.bootstrap.settings import build_settings
from nodetracker.bootstrap.stores import build_store
from nodetracker.cmd.commands.base import StoreCommand
from nodetracker.conf.opts import register_driver_options
from nodetracker.errors import ConfigError

SAMPLE_NAMESPACES = (
    "nodetracker", "oslo.db", "oslo.log", "oslo.messaging", "oslo.reports",
    "oslo.middleware.http_proxy_to_wsgi", "oslo.policy", "keystonemiddleware.auth_token",
)  # fmt: skip


class ShowSample(StoreCommand, Command):
    """Print a sample configuration file with all options."""

    example = "config sample > nodetracker.conf"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Generate the sample."""
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


class CheckConfig(StoreCommand, Command):
    """Check the configuration: files, option names, values and their consistency."""

    example = "config check"

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Report all problems together, or that the configuration is valid."""
        conf = self.app.conf
        register_driver_options(conf)
        problems = list(find_problems(conf))
        try:
            settings = build_settings(conf)
            broker = Broker(conf)
            if broker.is_configured:
                broker.connect()
            build_driver(conf, settings, build_probes(settings))
            build_store(conf, broker=broker)
            if conf.placement.enabled:
                build_placement_client(conf)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError("; ".join(problems))
        files = ", ".join(conf.config_file) or "no file, defaults only"
        self.app.stdout.write(f"the configuration is valid ({files})\n")
