"""Run command lines in process, over a store in memory."""

import contextlib
import io
import json
import logging
import subprocess
from pathlib import Path

import pytest

from nodetracker.cmd.manage import ManageApp


def run(store, conf, *words):
    """Return what a command line prints; a CalledProcessError if it fails."""
    done = Commands(store, conf).manage(*words)
    done.check_returncode()
    return done.stdout


class Commands:
    """The command line, with the methods of `tests.programs.Programs`."""

    def __init__(self, store, conf, directory: Path | None = None):
        self.store, self.conf, self.directory = store, conf, directory

    def manage(self, *words):
        """Run a command line to its end."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [])
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                app = ManageApp()
                mine = {"store": self.store, "reader": self.store, "notifier": None}
                app.__dict__ |= mine | {"conf": self.conf}
                app.open_sql_store = lambda is_read_only=False: self.store
                try:
                    code = app.run(words)
                except SystemExit as ended:
                    code = ended.code
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def ask(self, *words):
        """Return what a command line prints as JSON."""
        return json.loads(run(self.store, self.conf, *words, "-f", "json"))
