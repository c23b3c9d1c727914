"""What every store adds to the history beside the changes of nodes."""

import dataclasses
from datetime import timedelta

import pytest

from nodetracker.model.amounts import Amounts
from nodetracker.model.change import EventKind
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import Store
from nodetracker.views.history import describe_entry
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    key_of,
    make_guest,
    make_incarnation,
    make_node,
    move,
    node,
    read_history,
    register,
    take_service,
    update,
)

HELD = HostWarning(WarningKind.FACT_HELD, "node-1", "cpu", "timed out")
DOWN = HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, "", "no heartbeat for 60 s")


def texts(store: Store, host: str, nodename: str | None = None) -> list[str]:
    """Return what happened on a host, the oldest first, without the start of its agent."""
    lines = read_history(store, host, nodename, has_events=True)
    found = [change.text for line in lines for change in describe_entry(line, {})]
    return [text for text in found if text != "nodetracker-compute started"]


def test_a_claim_has_a_line_for_each_state(store: Store) -> None:
    make_node(store)
    held = claim(store, ask(MEMORY_MB=1))
    store.confirm_claim(held.uuid)
    store.confirm_claim(held.uuid)
    store.abort_claim(held.uuid)
    store.abort_claim(held.uuid)
    name = held.workload.name or held.workload.uuid
    assert texts(store, "alpha", "node-1") == [
        f"claim of {name} created",
        f"claim of {name} confirmed",
        f"claim of {name} released: aborted",
    ]


def test_a_claim_that_is_confirmed_from_the_start_has_both_lines_in_order(store: Store) -> None:
    guest = make_guest("web", vcpu_milli=1000, memory_mb=1024, disk_mb=10240)
    charge = Amounts(vcpu_milli=1000, memory_mb=1024, disk_mb=10240)
    make_node(store)
    make_node(store, (guest,), charge, host="beta")
    there = claim(store, ask(guest.uuid, VCPU=1, MEMORY_MB=1024, DISK_GB=10), "beta")
    here = claim(store, ask(guest.uuid, VCPU=1))
    moved = move(store, here, "beta")
    store.confirm_migration(moved.uuid)  # which confirms nothing more
    states = [found.state for found in store.list_claims("beta")]
    assert states == [ClaimState.CONFIRMED] * 2
    lines = read_history(store, "beta", "node-1", has_events=True)
    events = [(line.diff["uuid"], line.event) for line in lines if line.kind == EventKind.CLAIM]
    claims = (there.uuid, moved.dest_claim)
    assert events == [(uuid, event) for uuid in claims for event in ("created", "confirmed")]


def test_a_claim_that_is_renewed_or_refused_has_none(store: Store) -> None:
    make_node(store)
    held = claim(store, ask(MEMORY_MB=1))
    before = texts(store, "alpha")
    store.renew_claim(held.uuid, ADMISSION_POLICY)
    with pytest.raises(ClaimRefusedError):
        claim(store, ask(MEMORY_MB=2**30))
    assert texts(store, "alpha") == before


def test_a_move_has_lines_at_its_source_and_its_claims_at_both_ends(store: Store) -> None:
    make_node(store)
    make_node(store, host="beta")
    held = claim(store, ask(MEMORY_MB=1))
    started = move(store, held, "beta")
    store.set_migration_status(started.uuid, MigrationStatus.MIGRATING)
    store.confirm_migration(started.uuid)
    name = held.workload.name or held.workload.uuid
    what = f"{started.migration_type} of {name} to node-1 of host beta"
    assert sorted(texts(store, "alpha")) == sorted(
        [
            f"claim of {name} created",
            f"{what}: started",
            f"{what}: migrating",
            f"claim of {name} released: moved",
            f"{what}: confirmed",
        ]
    )
    assert texts(store, "beta") == [f"claim of {name} created", f"claim of {name} confirmed"]


def test_a_move_in_error_has_one_line_though_the_audits_of_both_ends_find_it(
    store: Store,
) -> None:
    agents = {host: make_node(store, host=host) for host in ("alpha", "beta")}
    held = claim(store, ask(MEMORY_MB=1))
    started = move(store, held, "beta")
    for host, claim_uuid in (("alpha", held.uuid), ("beta", started.dest_claim)):
        record = node(store, host)
        (known,) = record.moves
        failed = dataclasses.replace(known.migration, status=MigrationStatus.ERROR)
        expired = dataclasses.replace(
            record.claims[claim_uuid], state=ClaimState.RELEASED, reason="expired"
        )
        change = dataclasses.replace(
            update(record), claims=(expired,), moves=(dataclasses.replace(known, migration=failed),)
        )
        assert store.apply_changes(agents[host], [change], 60).conflicts == ()
    assert [text for text in texts(store, "alpha") if text.endswith(": error")] == [
        f"{started.migration_type} of {held.workload.uuid} to node-1 of host beta: error"
    ]


def test_a_service_has_lines_of_what_changed(store: Store) -> None:
    agent = register(store)
    for change in (
        ServiceChange(disabled=True, disabled_reason="disk", disabled_by="alice"),
        ServiceChange(disabled=True, disabled_reason="disk"),
        ServiceChange(disabled=False, maintenance=True),
        ServiceChange(maintenance=False, forced_down=True, forced_down_reason="burnt"),
        ServiceChange(forced_down=True),
        ServiceChange(forced_down=False),
    ):
        store.set_service("alpha", COMPUTE_BINARY, change)
    store.mark_service(agent, "AUTO: libvirt is away")
    store.mark_service(agent, None)
    store.mark_service(agent, None)
    store.raise_warning("alpha", DOWN)
    store.raise_warning("alpha", DOWN)
    store.resolve_warnings(WarningKind.HOST_DOWN)
    take_service(store, "alpha", make_incarnation("another"))
    (service,) = store.list_services("alpha")
    store.report_state(key_of(service), 1, AuditState(), is_last=True)
    name = COMPUTE_BINARY
    assert texts(store, "alpha", WHOLE_HOST) == [
        f"{name} disabled: disk (by alice, 0 guests)",
        f"{name} enabled",
        f"{name} in maintenance (0 guests)",
        f"{name} no longer in maintenance",
        f"{name} forced down: burnt",
        f"{name} forced down",
        f"{name} no longer forced down",
        f"{name} disabled: AUTO: libvirt is away",
        f"{name} enabled",
        f"{name} down: no heartbeat for 60 s",
        f"{name} up",
        f"{name} taken over",
        f"{name} stopped",
    ]


def test_a_warning_has_a_line_when_it_begins_and_when_it_ends(store: Store) -> None:
    agent = register(store)
    for active in ([HELD], [HELD], [], [], [HELD]):
        store.sync_warnings(agent, active)
    raised = "warning fact_held cpu raised: timed out"
    resolved = "warning fact_held cpu resolved: timed out"
    assert texts(store, "alpha", "node-1") == [raised, resolved, raised]


def test_lines_of_claims_are_purged_with_them_and_others_with_the_history(store: Store) -> None:
    make_node(store)
    store.abort_claim(claim(store, ask(MEMORY_MB=1)).uuid)
    later = store.now() + timedelta(seconds=1)
    store.purge(later, ("claims", "claim_history"))
    kinds = [entry.kind for entry in store.list_history_page(HistoryQuery()).items]
    assert kinds == [EventKind.NODE, EventKind.SERVICE]
    store.purge(later, ("history",))
    assert not store.list_history_page(HistoryQuery()).items
