"""nodetracker-manage: the operator's command line."""

import argparse
import gc
import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from importlib.metadata import version
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from cliff.app import App

from nodetracker.cmd.command_table import (
    COMMANDS,
    NAMESPACE,
    PROGRAM,
    CommandTable,
    list_commands,
    select_noun,
)
from nodetracker.cmd.screen.streams import (
    ErrorFormatter,
    end_output,
    fail_usage,
    make_safe,
    replace_closed_streams,
)
from nodetracker.process.daemon import EXIT_USAGE

if TYPE_CHECKING:  # imported late: help needs none of them, and not every command all of them
    from oslo_config import cfg

    from nodetracker.bootstrap.clients import Broker
    from nodetracker.db.store import SqlStore
    from nodetracker.ports import HostAgent, ReadingStore, Store
    from nodetracker.rpc.notify import NotificationSender

_PROJECT = "nodetracker"
_EXAMPLE = f"Example: {PROGRAM} overview --watch"


class ManageApp(App):
    """The application: finds the command and reads the configuration when first used."""

    NAME = PROGRAM
    DEFAULT_VERBOSE_LEVEL = 0

    def __init__(self) -> None:
        super().__init__(
            description="Query and administer nodetracker.",
            version=version(_PROJECT),
            command_manager=CommandTable(NAMESPACE),
            deferred_help=True,  # --help after a command becomes the command help
        )
        self.failure: BaseException | None = None
        self.notifier: NotificationSender | None = None
        self._opened = ExitStack()
        self.command_name = ""
        self.command_arguments: list[str] = []

    def build_option_parser(
        self,
        description: str | None,
        version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        """Add the two options that all programs have."""
        parser = super().build_option_parser(description, version, argparse_kwargs)
        for option, metavar, what in (
            ("--config-file", "PATH", "Configuration file instead of those in /etc/nodetracker"),
            ("--config-dir", "DIR", "Directory whose *.conf are read after the files"),
        ):
            parser.add_argument(
                option,
                action="append",
                default=[],
                metavar=metavar,
                help=f"{what}; may be repeated.",
            )
        parser.epilog = _EXAMPLE
        parser.error = partial(fail_usage, PROGRAM)  # type: ignore[method-assign]
        return parser

    @cached_property
    def conf(self) -> "cfg.ConfigOpts":
        """The configuration, read at first use; raises as `read_configuration`."""
        return self.read_configuration(PROGRAM)

    def read_configuration(self, program: str) -> "cfg.ConfigOpts":
        """Read the configuration of a program: its files, or those of the command line.

        Raises:
            ConfigError: a file is missing or cannot be parsed.
        """
        from oslo_config import cfg

        from nodetracker.bootstrap.options.opts import register_command_options
        from nodetracker.cmd.configuration import load_configuration

        conf = cfg.CONF if program == PROGRAM else cfg.ConfigOpts()
        arguments = [f"--config-file={name}" for name in self.options.config_file]
        arguments += [f"--config-dir={name}" for name in self.options.config_dir]
        load_configuration(conf, arguments, program, register=register_command_options)
        return conf

    @cached_property
    def broker(self) -> "Broker":
        """The connection to the message broker."""
        from nodetracker.bootstrap.clients import Broker

        return Broker(self.conf)

    @cached_property
    def store(self) -> "Store":
        """The store that the configuration names; it connects at its first use."""
        from nodetracker.bootstrap.stores import build_store

        if self.conf.conductor.use_local:  # otherwise conductors notify of their changes
            self.notifier = self.broker.make_notifier(f"manage:{self.conf.DEFAULT.host}")
        store = build_store(self.conf, observers=self.broker.make_observers(self.notifier))
        return self._opened.enter_context(closing(store))

    @cached_property
    def reader(self) -> "ReadingStore":
        """The part of the store that only reads, whose import takes less time."""
        if not self.conf.conductor.use_local:
            return self.store
        from nodetracker.bootstrap.stores import build_reader
        from nodetracker.bootstrap.values import read_value

        read_value(self.conf, "DEFAULT", "transport_url")  # checked as by commands that write
        reader = self._opened.enter_context(closing(build_reader(self.conf)))
        gc.freeze()  # the libraries stay: no collection need traverse them
        return reader

    def open_sql_store(self, is_read_only: bool = False) -> "SqlStore":
        """Return the SQL store, for commands on the schema.

        Args:
            is_read_only: for a command that only reads; no file is created.

        Raises:
            ConfigError: no database is configured on this host.
        """
        from nodetracker.bootstrap.stores import build_sql_store, require_database

        require_database(self.conf)
        return self._opened.enter_context(closing(build_sql_store(self.conf, is_read_only)))

    def find_agent(self, host: str) -> "HostAgent":
        """Return the agent of a host.

        Raises:
            ForbiddenError: this host has no database, and the agent is another one's.
            NotFoundError: the host has none.
        """
        from nodetracker.bootstrap.clients import build_agents
        from nodetracker.bootstrap.values import read_host_name
        from nodetracker.conductor.authorization import CALLS_OWN_HOST
        from nodetracker.model.errors import ForbiddenError
        from nodetracker.usecases.reads import require_agent

        if not self.conf.conductor.use_local and host != read_host_name(self.conf):
            raise ForbiddenError(CALLS_OWN_HOST)
        require_agent(self.store, host)
        return build_agents(self.conf, self.store, "manage", self.broker).agent_of(host)

    def _set_streams(self, stdin: Any, stdout: Any, stderr: Any) -> None:
        """Make all text safe that leaves towards a terminal."""
        super()._set_streams(stdin, stdout, stderr)
        self.stdout, self.stderr = make_safe(self.stdout), make_safe(self.stderr)

    def configure_logging(self) -> None:
        """Print errors as one line, on a terminal broken between words."""
        super().configure_logging()
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is self.stderr:
                handler.setFormatter(ErrorFormatter(self.stderr))

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; one that does not exist is a usage error."""
        if argv[0].startswith("-"):
            fail_usage(PROGRAM, f"unrecognized arguments: {argv[0]}")
        if argv[0] == "help":  # whatever arguments --help came after
            argv = list(takewhile(lambda word: not word.startswith("-"), argv))
        try:
            _, self.command_name, self.command_arguments = self.command_manager.find_command(argv)
        except ValueError as error:
            self.stderr.write(str(error))
            return EXIT_USAGE
        return int(super().run_subcommand(argv))

    def print_help_if_requested(self) -> None:
        """Print the options and all commands; cliff's own would import each of them."""
        if self.options.deferred_help:
            self.stdout.write(self.render_help([]))
            raise SystemExit

    def render_help(self, words: Sequence[str]) -> str:
        """Return the help of a command, of the commands of a noun, or without words of all.

        Raises:
            ValueError: the command does not exist.
        """
        if not words:
            return f"{self.parser.format_help()}\nCommands:\n{list_commands()}"
        if of_noun := select_noun(words):
            return list_commands(of_noun)
        return self.build_parser(words).format_help()

    def build_parser(self, words: Sequence[str]) -> argparse.ArgumentParser:
        """Return the parser of a command.

        Raises:
            ValueError: it does not exist.
        """
        factory, name, _ = self.command_manager.find_command(list(words))
        parser: argparse.ArgumentParser = factory(self, None).get_parser(f"{PROGRAM} {name}")
        return parser

    def clean_up(self, cmd: Any, result: int, err: BaseException | None) -> None:
        """Keep a command's error for the exit code, close stores, and send notifications."""
        self.failure = err
        self._opened.close()
        if COMMANDS[self.command_name].is_logged and not getattr(cmd, "is_dry_run", False):
            self._log_change(result)
        if self.notifier is not None and not self.notifier.flush():
            self.stderr.write(f"{PROGRAM}: the message broker did not accept the notifications\n")

    def _log_change(self, result: int) -> None:
        """Log who ran a command that changes something, unless it read no configuration."""
        if "conf" not in vars(self):
            return
        from nodetracker.cmd.commands.service import read_operator
        from nodetracker.process.change_log import log_change, open_change_file

        user, _, host = read_operator().rpartition("@")
        outcome = "done" if self.failure is None else f"failed: {self.failure}"
        if self.failure is None and result:
            outcome = f"exit code {result}"
        open_change_file(self.conf.audit.log_file, self.conf.audit.log_format)
        target = shlex.join(self.command_arguments) or "-"
        log_change(f"user {user}", f"command {self.command_name}", target, host, outcome)

    def interact(self) -> None:
        """Fail with a usage error: a command is required, as interactive mode is not supported."""
        fail_usage(PROGRAM, "a command is required")


_COLLECTED_AFTER = 200_000
"""New objects after which Python searches for unreachable cycles, instead of its 700.

Imports and rows leave hardly any, and the searches took a tenth of the time of a long list.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    gc.set_threshold(_COLLECTED_AFTER)
    replace_closed_streams()
    return end_output(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    app = ManageApp()
    code = int(app.run(arguments))
    if app.failure is None:
        return code
    from nodetracker.cmd.program import exit_code_of

    return exit_code_of(app.failure)


if __name__ == "__main__":
    sys.exit(main())
