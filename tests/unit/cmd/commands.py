"""Run a command line in process."""

import io

from nodetracker.cmd.manage import ManageApp


def run(store, conf, *words):
    """Return what a command line prints."""
    app = ManageApp()
    app.__dict__ |= {"conf": conf, "store": store, "reader": store, "notifier": None}
    app.open_sql_store = lambda is_read_only=False: store
    app.stdout = io.StringIO()
    assert app.run(words) == 0, words
    return app.stdout.getvalue()
