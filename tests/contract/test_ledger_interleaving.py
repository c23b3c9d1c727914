"""Ledger transactions that waited for another decide by what the other committed."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.usage import usage_columns
from nodetracker.db.ledger import claims
from nodetracker.db.ledger.migrations import create_migration
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, MigrationStatus
from nodetracker.model.errors import ClaimRefusedError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY
from tests.builders import (
    ADMISSION_POLICY,
    RESERVED,
    ask,
    claim,
    make_guest,
    make_node,
    node,
    read_history,
)
from tests.contract.stores import SQL_BACKENDS
from tests.contract.waiting import assert_waits
from tests.oracle import check_usage
from tests.refusals import refusing

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
GUEST = make_guest("web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240)
CHARGE = Amounts(2000, memory_mb=1024, disk_mb=10240)


def claim_by(rival: sa.Connection, request: Any) -> Claim:
    granted, _ = claims.create_claim(rival, request, "alpha", "node-1", ADMISSION_POLICY)
    return granted


def test_two_claims_of_one_guest_do_not_both_take_it_over(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store, (GUEST,), CHARGE)
    resources = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}
    claim_by(rival, ask(GUEST.uuid, **resources))
    future = pool.submit(claim, store, ask(GUEST.uuid, **resources))
    assert_waits(future)
    rival.commit()
    future.result()
    check_usage(store, "alpha")


def test_a_second_claim_of_one_guest_gets_no_credit(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store, (GUEST,), CHARGE)
    claim_by(rival, ask(GUEST.uuid, VCPU=2))
    future = pool.submit(claim, store, ask(GUEST.uuid, VCPU=7))
    assert_waits(future)
    rival.commit()
    with refusing(VCPU=5):
        future.result()


def test_an_abort_after_another_charges_the_remaining_guest(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store, (GUEST,), CHARGE)
    first, second = (claim(store, ask(GUEST.uuid, VCPU=2, MEMORY_MB=5)) for _ in range(2))
    claims.abort_claim(rival, second.uuid)
    future = pool.submit(store.abort_claim, first.uuid)
    assert_waits(future)
    rival.commit()
    future.result()
    check_usage(store, "alpha")


def test_an_abort_charges_a_guest_that_appeared_meanwhile(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store)
    granted = claim(store, ask(GUEST.uuid, VCPU=2, MEMORY_MB=5))
    # As an audit writes it: the workload is charged the larger of its claim and its guest.
    usage = usage_columns(CHARGE, RESERVED, 8192, 100)
    rival.execute(sa.update(tables.compute_nodes).values(generation=3, **usage))
    rival.execute(
        sa.insert(tables.guests).values(
            compute_node_id=granted.node_id,
            uuid=GUEST.uuid,
            name=GUEST.name,
            kind=GUEST.kind.value,
            power_state=GUEST.power_state.value,
            claim_uuid=granted.uuid,
            vcpu_milli=GUEST.vcpu_milli,
            memory_mb=GUEST.memory_mb,
            disk_mb=GUEST.disk_mb,
            project_id="",
            first_seen=granted.created_at,
        )
    )
    future = pool.submit(store.abort_claim, granted.uuid)
    assert_waits(future)
    rival.commit()
    future.result()
    check_usage(store, "alpha")


def test_a_claim_that_waited_is_refused_by_a_service_that_was_disabled_meanwhile(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store)
    claim_by(rival, ask(VCPU=1))
    future = pool.submit(claim, store, ask(VCPU=1))
    assert_waits(future)
    rival.execute(sa.update(tables.services).values(disabled=True, disabled_reason="disk"))
    rival.commit()
    with pytest.raises(ClaimRefusedError, match="alpha is disabled: disk"):
        future.result()


@pytest.mark.parametrize("what", ["service", "node"])
def test_a_deletion_that_waited_for_a_claim_is_refused(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor, what: str
) -> None:
    make_node(store)
    granted = claim_by(rival, ask(VCPU=1))
    if what == "service":
        future = pool.submit(store.delete_service, "alpha", COMPUTE_BINARY, -1)
    else:
        future = pool.submit(store.delete_node, "alpha", "node-1")
    assert_waits(future)
    rival.commit()
    with pytest.raises(RefusedError, match=f"holds 1 claim; to be.*: {granted.uuid}$"):
        future.result()
    assert store.list_claims(uuid=granted.uuid) == [granted]


def test_a_purge_of_a_host_that_waited_for_a_claim_releases_it(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    make_node(store)
    granted = claim_by(rival, ask(VCPU=1))
    future = pool.submit(store.purge_host, "alpha", -1)
    assert_waits(future)
    rival.commit()
    assert future.result() == 1
    assert store.list_claims() == []
    (*_, line) = read_history(store, "alpha", "node-1", has_events=True)
    assert (line.diff["event"], line.diff["uuid"]) == ("released", granted.uuid)


def test_a_purge_of_a_host_that_waited_for_a_move_to_it_cancels_that(
    store: SqlStore, rival: sa.Connection, pool: ThreadPoolExecutor
) -> None:
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    source = claim(store, ask(VCPU=1))
    request = ask(
        source.workload.uuid,
        VCPU=1,
        migration={"type": "migration", "source_claim": source.uuid},
    )
    create_migration(rival, request, "beta", "node-1", ADMISSION_POLICY)
    future = pool.submit(store.purge_host, "beta", -1)
    assert_waits(future)
    rival.commit()
    assert future.result() == 1
    (ended,) = store.list_migrations()
    assert ended.status is MigrationStatus.CANCELLED
    assert node(store).moves == ()
