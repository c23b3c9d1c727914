"""What every program does first and last: read the configuration, turn errors into exit codes."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from oslo_config import cfg
from oslo_log import log as logging

from nodetracker.conf.opts import register_options
from nodetracker.daemon import EXIT_CONFIG, EXIT_FAILED
from nodetracker.errors import ConfigError, IdentityError, NodetrackerError

PROJECT = "nodetracker"


def load_configuration(
    conf: cfg.ConfigOpts,
    arguments: Sequence[str],
    program: str,
    default_files: Sequence[Path] | None = None,
) -> None:
    """Read the configuration's files and the command line into `conf`.

    Args:
        default_files: read when the command line names none; None looks in
            the usual places (``/etc/nodetracker/nodetracker.conf`` and others).

    Raises:
        ConfigError: a file is missing or cannot be parsed; the message names it.
    """
    register_options(conf)
    try:
        conf(
            list(arguments),
            project=PROJECT,
            prog=program,
            version=version(PROJECT),
            default_config_files=None if default_files is None else [str(f) for f in default_files],
            default_config_dirs=None if default_files is None else [],
        )
    except cfg.Error as error:
        raise ConfigError(" ".join(str(error).split())) from error


def start_logging(conf: cfg.ConfigOpts) -> None:
    """Set logging up as the configuration says.

    Raises:
        ConfigError: the log cannot be written.
    """
    try:
        logging.setup(conf, PROJECT)
    except (OSError, cfg.Error, logging.LogConfigError) as error:
        raise ConfigError(f"logging cannot be set up: {error}") from error


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code that an error stands for."""
    return EXIT_CONFIG if isinstance(error, (ConfigError, IdentityError)) else EXIT_FAILED


def run_program(program: str, main: Callable[[], int]) -> int:
    """Run a program's main function; what it raises on purpose is one line on stderr."""
    try:
        return main()
    except NodetrackerError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return EXIT_FAILED
