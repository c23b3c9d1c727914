"""Read a program's configuration from its files and the command line."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from pathlib import Path

from oslo_config import cfg

from nodetracker.bootstrap.options.opts import register_options
from nodetracker.cmd.screen.streams import fail_usage
from nodetracker.model.errors import ConfigError
from nodetracker.process.daemon import EXIT_USAGE

PROJECT = "nodetracker"
_OPTIONS_HINT = (
    "Options are read from /etc/nodetracker/nodetracker.conf; nodetracker-manage config sample "
    "prints all of them."
)


def load_configuration(
    conf: cfg.ConfigOpts,
    arguments: Sequence[str],
    program: str,
    default_files: Sequence[Path] | None = None,
    register: Callable[[cfg.ConfigOpts], None] = register_options,
    description: str = "",
) -> None:
    """Read the configuration's files and the command line into `conf`.

    Args:
        default_files: read when the command line names none; None searches
            the usual places (``/etc/nodetracker/nodetracker.conf`` and others).
            With them goes the credential of systemd that has the program's name.
        register: registers the options first.
        description: what the program does, for ``--help``.

    Raises:
        ConfigError: a file is missing or cannot be parsed; the message names it.
        SystemExit: the command line is invalid, or ``--help`` was printed.
    """
    register(conf)
    if default_files is None:
        description = f"{description} {_OPTIONS_HINT}"
    try:
        with _short_usage_errors(program):
            conf(
                list(arguments),
                project=PROJECT,
                prog=program,
                version=version(PROJECT),
                description=description,
                default_config_files=[
                    str(path)
                    for path in (_find_files(program) if default_files is None else default_files)
                ],
                default_config_dirs=None if default_files is None else [],
            )
    except cfg.Error as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except (OSError, UnicodeError) as error:  # not handled by the library
        files = _list_files(arguments, program, default_files)
        raise ConfigError(_find_unreadable(files) or str(error)) from error
    for directory in conf.config_dir or ():
        if not Path(directory).is_dir():  # the library ignores it
            raise ConfigError(f"--config-dir {directory}: not a directory")


@contextmanager
def _short_usage_errors(program: str) -> Iterator[None]:
    """Print usage errors as one line; the library's own parser lists all options first."""
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except SystemExit as end:
        # The library names the program, or the program and its command.
        _, is_error, message = printed.getvalue().partition(": error: ")
        if end.code == EXIT_USAGE and is_error:
            fail_usage(program, message.strip())
        sys.stderr.write(printed.getvalue())
        raise
    sys.stderr.write(printed.getvalue())


def _list_files(
    arguments: Sequence[str], program: str, default_files: Sequence[Path] | None
) -> list[Path]:
    """Return the configuration files that a command line selects."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-file", action="append", type=Path)
    named: list[Path] | None = parser.parse_known_args(list(arguments))[0].config_file
    if named is None and default_files is None:
        return _find_files(program)
    return named or list(default_files or ())


def _find_files(program: str) -> list[Path]:
    """Return the files of the usual places, and then the unit's ``LoadCredential=PROGRAM.conf``."""
    found = [Path(path) for path in cfg.find_config_files(PROJECT, program)]
    # systemd (252 and 257) gives ExecReload= the variable without access to the directory.
    if credentials := os.environ.get("CREDENTIALS_DIRECTORY"):
        path = Path(credentials, f"{program}.conf")
        found += [path] if os.access(path, os.R_OK) else []
    return found


def _find_unreadable(files: Sequence[Path]) -> str:
    """Return the error of a file that cannot be read as text, "" without one."""
    for path in files:
        try:
            path.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            return f"--config-file {path}: {error}"
    return ""
