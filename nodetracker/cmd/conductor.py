"""nodetracker-conductor: serves the database to agents without database access."""

import sys
from collections.abc import Sequence

from nodetracker.bootstrap.conductor import build_conductor, build_conductor_settings
from nodetracker.cmd.program import run_service

PROGRAM = "nodetracker-conductor"
_DESCRIPTION = (
    "A conductor: serves the database to agents with [conductor] use_local = false, over HTTPS. "
    "It requires [database] connection."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a conductor."""
    settings = build_conductor_settings
    return run_service(PROGRAM, _DESCRIPTION, build_conductor, settings, arguments)


if __name__ == "__main__":
    sys.exit(main())
