"""Build the client of placement from the configuration."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oslo_config import cfg

from nodetracker.bootstrap.values import build_from_options
from nodetracker.model.errors import ConfigError
from nodetracker.model.settings import PlacementSettings
from nodetracker.ports import Store

if TYPE_CHECKING:  # imported late: keystoneauth is much code, and most hosts do not use it
    from nodetracker.placement.client import PlacementClient
    from nodetracker.placement.reporter import PlacementReporter


def build_placement_client(conf: cfg.ConfigOpts) -> "PlacementClient":
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

    return PlacementClient(build_session(conf))


def build_placement_settings(conf: cfg.ConfigOpts) -> PlacementSettings:
    """Return the settings of the reporter."""
    group = conf.placement
    return build_from_options(
        PlacementSettings,
        group,
        refresh_interval=group.resource_provider_association_refresh,
        heals_leaks=group.heal_leaks,
        reports_devices=conf.pci.report_in_placement,
    )


def build_placement_reporter(
    conf: cfg.ConfigOpts, host: str, store: Store
) -> "PlacementReporter | None":
    """Return the reporter of an agent's nodes, not started; None if placement is not enabled.

    Args:
        store: finds out what consumers in placement represent, and has removals of providers.

    Raises: as `build_placement_client`.
    """
    if not conf.placement.enabled:
        return None
    from nodetracker.placement.reconciler import is_in_ledger
    from nodetracker.placement.removal import HostRemovals, ProviderRemover
    from nodetracker.placement.reporter import EarlierWarnings, PlacementReporter

    client = build_placement_client(conf)
    return PlacementReporter(
        client,
        partial(is_in_ledger, store),
        build_placement_settings(conf),
        removals=HostRemovals(host, ProviderRemover(client, store), store),
        list_earlier=EarlierWarnings(host, store).list,
    )


def build_unserved_removals(conf: cfg.ConfigOpts, store: Store) -> Callable[[], None] | None:
    """Return what removes the providers of deleted nodes of hosts without an agent.

    None if placement is not enabled. It is called periodically.

    Raises: as `build_placement_client`.
    """
    if not conf.placement.enabled:
        return None
    from nodetracker.placement.removal import ProviderRemover, UnservedRemovals

    return UnservedRemovals(ProviderRemover(build_placement_client(conf), store), store).run
