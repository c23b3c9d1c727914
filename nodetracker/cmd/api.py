"""nodetracker-api: the REST service."""

import sys
from collections.abc import Callable, Sequence

from oslo_config import cfg

from nodetracker.bootstrap.api import build_api, build_api_settings
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

PROGRAM = "nodetracker-api"
_DESCRIPTION = "The REST service: Nova's, Zun's and nodetracker's own resources over HTTP."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service."""
    return run_program(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> int:
    def load(conf: cfg.ConfigOpts, register: Callable[[cfg.ConfigOpts], None]) -> None:
        load_configuration(conf, arguments, PROGRAM, register=register, description=_DESCRIPTION)

    def reload() -> None:
        # Only logging options may change.
        reload_configuration(conf, load, build_api_settings, [server.reload_certificate])

    conf = cfg.CONF
    load(conf, register_options)
    start_logging(conf)
    service, server = build_api(conf)
    return leave(Daemon(service, reload, lambda: write_report(conf, PROGRAM)).run())


if __name__ == "__main__":
    sys.exit(main())
