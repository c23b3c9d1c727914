"""Build the client of placement from the configuration."""

from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.errors import ConfigError

if TYPE_CHECKING:  # imported late: keystoneauth is much code, and most hosts do not use it
    from nodetracker.placement.client import PlacementClient, RequestCounter


def build_placement_client(
    conf: cfg.ConfigOpts, counter: "RequestCounter | None" = None
) -> "PlacementClient":
    """Return the client of the service that ``[placement]`` describes; nothing is connected.

    Raises:
        ConfigError: a value is missing or invalid, or keystoneauth is not installed.
    """
    try:
        from nodetracker.placement.session import build_session
    except ImportError as error:
        raise ConfigError(
            "[placement] enabled: needs the library keystoneauth1: "
            "pip install 'nodetracker[placement]'"
        ) from error
    from nodetracker.placement.client import PlacementClient

    return PlacementClient(build_session(conf), counter)
