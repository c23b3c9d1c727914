"""nodetracker-api: the REST service."""

import sys
from collections.abc import Sequence

from nodetracker.bootstrap.api import build_api, build_api_settings
from nodetracker.cmd.program import run_service

PROGRAM = "nodetracker-api"
_DESCRIPTION = "The REST service: Nova's, Zun's and nodetracker's own resources over HTTP."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service."""
    return run_service(PROGRAM, _DESCRIPTION, build_api, build_api_settings, arguments)


if __name__ == "__main__":
    sys.exit(main())
