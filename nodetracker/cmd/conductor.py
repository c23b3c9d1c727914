"""nodetracker-conductor: serves the database to agents without database access."""

import sys
from collections.abc import Callable, Sequence

from oslo_config import cfg

from nodetracker.bootstrap.conductor import build_conductor, build_conductor_settings
from nodetracker.cmd.configuration import load_configuration
from nodetracker.cmd.program import (
    leave,
    reload_configuration,
    run_program,
    start_logging,
    write_report,
)
from nodetracker.conf.opts import register_options
from nodetracker.process.daemon import Daemon

PROGRAM = "nodetracker-conductor"
_DESCRIPTION = (
    "A conductor: serves the database to agents with [conductor] use_local = false, over HTTPS. "
    "It requires [database] connection."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a conductor."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> int:
    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        load_configuration(conf, arguments, PROGRAM, register=register, description=_DESCRIPTION)

    def reload() -> None:
        # Only logging options may change.
        reload_configuration(conf, load, build_conductor_settings, [server.reload_certificate])

    conf = cfg.CONF
    load(conf, register_options)
    start_logging(conf)
    service, server = build_conductor(conf)
    return leave(Daemon(service, reload, lambda: write_report(conf, PROGRAM)).run())


if __name__ == "__main__":
    sys.exit(main())
