"""Replace standard streams that are closed when a program starts, and write its output."""

import os
import sys
from pathlib import Path

from nodetracker.cmd.screen.errors import draw_error
from nodetracker.model.errors import RefusedError
from nodetracker.process.daemon import EXIT_DONE, EXIT_FAILED


def replace_closed_streams() -> None:
    """Let a closed standard input be empty, and discard what is printed to a closed output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def write_output(text: str = "") -> None:
    """Print a text and all that was printed before; a reader that has gone needs none of it.

    Raises:
        RefusedError: it cannot be written, e.g. because the file system is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())  # or Python fails to write the rest at its end
        os.close(nothing)
        if not isinstance(error, BrokenPipeError):
            raise RefusedError(f"the output cannot be written: {error.strerror}") from error


def end_output(code: int) -> int:
    """Write all that was printed; return the exit code, that of a failure if it cannot be written.

    An error of another cause keeps its code and is the only one that is printed.
    """
    try:
        write_output()
    except RefusedError as error:
        if code == EXIT_DONE:
            print(draw_error(error, sys.stderr), file=sys.stderr)
            return EXIT_FAILED
    return code
