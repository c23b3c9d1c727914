"""Implement the part of the store port that only reads over SQL.

It imports no ledger, changes of audits or candidates, so that lists start quickly.
"""

from nodetracker.db import (
    claim_lists,
    fleet,
    history,
    host_warnings,
    migrations,
    nodes,
    services,
    tolerances,
    trends,
    workloads,
)
from nodetracker.db.connection.dialect import read_time
from nodetracker.db.connection.engine import Database, DatabaseSettings, reading


def open_reader(settings: DatabaseSettings) -> "SqlReader":
    """Build the part of the store that only reads; the first call opens the first connection.

    Raises:
        ConfigError: the URL cannot be used.
    """
    return SqlReader(Database(settings))


class SqlReader:
    """`nodetracker.ports.ReadingStore` over SQLite, MariaDB, MySQL and PostgreSQL.

    Each method is one transaction: a function of the module of its noun.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    now = reading(read_time)
    list_nodes = reading(nodes.list_nodes)
    load_nodes = reading(nodes.load_nodes)
    list_device_page = reading(nodes.list_device_page)
    list_gpus = reading(nodes.list_gpus)
    list_custom_traits = reading(nodes.list_custom_traits)
    list_fleet = reading(fleet.list_fleet)
    sum_fleet = reading(fleet.sum_fleet)
    read_overview = reading(fleet.read_overview)
    list_tolerances = reading(tolerances.list_tolerances)
    read_trend = reading(trends.read_trend)
    read_node_hours = reading(trends.read_node_hours)
    list_services = reading(services.list_services)
    list_outage_services = reading(services.list_outage_services)
    list_service_page = reading(services.list_service_page)
    find_service = reading(services.find_service)
    sum_hosts = reading(services.sum_hosts)
    list_workloads = reading(workloads.list_workloads)
    sum_usage = reading(workloads.sum_usage)
    list_claims = reading(claim_lists.list_claims)
    list_claim_page = reading(claim_lists.list_claim_page)
    list_migrations = reading(migrations.list_migrations)
    list_migration_page = reading(migrations.list_migration_page)
    list_history_page = reading(history.list_history_page)
    list_warnings = reading(host_warnings.list_warnings)
    list_warning_page = reading(host_warnings.list_warning_page)
