"""A store whose methods share one implementation, the base of those that wrap or call another."""

from nodetracker.ports.fleet import DelegatedFleetReader, FleetStore
from nodetracker.ports.ledger import LedgerStore, SchedulerStore
from nodetracker.ports.methods import delegated
from nodetracker.ports.store import AgentStore, OperatorStore, RemovalStore


class DelegatedStore(DelegatedFleetReader):
    """`nodetracker.ports.Store` whose `_delegate` carries out what subclasses do not override."""

    now = delegated(FleetStore.now)
    list_services = delegated(FleetStore.list_services)
    list_outage_services = delegated(FleetStore.list_outage_services)
    list_nodes = delegated(FleetStore.list_nodes)
    load_nodes = delegated(FleetStore.load_nodes)
    list_warnings = delegated(FleetStore.list_warnings)
    close = delegated(FleetStore.close)

    register_agent = delegated(AgentStore.register_agent)
    report_state = delegated(AgentStore.report_state)
    mark_service = delegated(AgentStore.mark_service)
    load_versions = delegated(AgentStore.load_versions)
    list_expired_claims = delegated(AgentStore.list_expired_claims)
    list_split_brains = delegated(AgentStore.list_split_brains)
    apply_changes = delegated(AgentStore.apply_changes)
    sync_warnings = delegated(AgentStore.sync_warnings)
    raise_warning = delegated(AgentStore.raise_warning)
    resolve_warnings = delegated(AgentStore.resolve_warnings)

    create_claim = delegated(LedgerStore.create_claim)
    try_claim = delegated(LedgerStore.try_claim)
    confirm_claim = delegated(LedgerStore.confirm_claim)
    renew_claim = delegated(LedgerStore.renew_claim)
    abort_claim = delegated(LedgerStore.abort_claim)
    list_claims = delegated(LedgerStore.list_claims)
    create_migration = delegated(LedgerStore.create_migration)
    confirm_migration = delegated(LedgerStore.confirm_migration)
    revert_migration = delegated(LedgerStore.revert_migration)
    set_migration_status = delegated(LedgerStore.set_migration_status)
    list_migrations = delegated(LedgerStore.list_migrations)

    find_candidates = delegated(SchedulerStore.find_candidates)
    load_ledger_nodes = delegated(SchedulerStore.load_ledger_nodes)
    count_exclusions = delegated(SchedulerStore.count_exclusions)

    set_service = delegated(OperatorStore.set_service)
    delete_service = delegated(OperatorStore.delete_service)
    rename_host = delegated(OperatorStore.rename_host)
    adopt_uuid = delegated(OperatorStore.adopt_uuid)
    delete_node = delegated(OperatorStore.delete_node)
    purge = delegated(OperatorStore.purge)

    list_provider_removals = delegated(RemovalStore.list_provider_removals)
    take_provider_removals = delegated(RemovalStore.take_provider_removals)
    fail_provider_removal = delegated(RemovalStore.fail_provider_removal)
    finish_provider_removal = delegated(RemovalStore.finish_provider_removal)
