"""The rows that a database examines follow what is asked for, not a node's past or the fleet."""

import dataclasses
import functools
import itertools
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import place_of
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db import codec, nodes
from nodetracker.db.candidates import find_candidates
from nodetracker.db.claims import list_claim_page
from nodetracker.db.migrations import list_migration_page
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import ACTIVE_STATES, Claim, ClaimState, Migration, MigrationStatus
from nodetracker.model.listing import ClaimQuery, MigrationQuery
from nodetracker.ports import CandidatePolicy
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet, request_claim
from tests.builders import SINCE, ask, claim, make_guest, make_node, move, node

pytestmark = pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)

_EXAMINED = {
    "mysql": sa.text(
        "SELECT SUM(IF(variable_name = 'Handler_icp_match', -1, 1) * variable_value)"
        " FROM information_schema.session_status WHERE variable_name LIKE 'Handler_read%'"
        " OR variable_name IN ('Handler_icp_attempts', 'Handler_icp_match')"
    ),
    "postgresql": sa.text(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
    ),
}


def add_released(store: SqlStore, template: Claim, guests: tuple[str, ...], count: int) -> None:
    """Add released claims of a claim's node, half of them expired, also of listed guests."""
    rows = []
    for number in range(count):
        workload = guests[number] if number < len(guests) else str(uuid.uuid4())
        rows.append(
            codec.encode_claim(template)
            | {
                "uuid": str(uuid.uuid4()),
                "compute_node_id": template.node_id,
                "workload_uuid": workload,
                "state": ClaimState.RELEASED.value,
                "reason": "aborted" if number % 2 else "expired",
                "created_at": SINCE + timedelta(seconds=number),
                "updated_at": SINCE + timedelta(seconds=number),
            }
        )
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.claims), rows)


def add_claims(store: SqlStore, template: Claim, count: int) -> None:
    """Add claims like another one."""
    row = codec.encode_claim(template) | {"compute_node_id": template.node_id}
    rows = [row | {"uuid": str(uuid.uuid4())} for _ in range(count)]
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.claims), rows)


def add_migrations(store: SqlStore, template: Migration, count: int) -> None:
    """Add ended migrations like another one."""
    row = codec.encode_row(template) | {"status": MigrationStatus.DONE.value}
    rows = [row | {"uuid": str(uuid.uuid4())} for _ in range(count)]
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.migrations), rows)


def count_examined(store: SqlStore, read: Callable[[sa.Connection], Any]) -> int:
    """Return how many rows a read examines when the database knows the sizes of its tables."""
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = "ANALYZE TABLE {}" if connection.dialect.name == "mysql" else "ANALYZE {}"
        for table in tables.metadata.sorted_tables:
            connection.execute(sa.text(analyze.format(table.name)))
    examined = _EXAMINED[store.engine.dialect.name]
    with store.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SET LOCAL enable_seqscan = off"))  # small tables
        read(connection)  # the first one reads the sizes of the tables too
        before = connection.scalar(examined)
        own = connection.scalar(examined) - before
        read(connection)
        return int(connection.scalar(examined) - before - 2 * own)


@pytest.mark.parametrize("place", [{}, {"host": "alpha"}])
def test_a_list_of_active_claims_examines_as_many_rows_whatever_was_released(
    store: SqlStore, place: dict[str, str]
) -> None:
    make_node(store)
    make_node(store, host="beta")
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    (other,) = store.load_nodes("beta")
    add_claims(store, dataclasses.replace(claims[0], node_id=other.id), 3000)
    query = ClaimQuery(states=ACTIVE_STATES, limit=5, **place)
    read: Callable[[sa.Connection], Any] = lambda c: list_claim_page(c, query)  # noqa: E731
    few = count_examined(store, read)
    add_released(store, claims[0], (), 2000)
    assert count_examined(store, read) < few + 50  # pages of an index, not the 2,000 claims
    assert [found.uuid for found in store.list_claim_page(query).items] == [
        found.uuid for found in claims[:5]
    ]


def test_a_list_of_all_claims_of_a_host_examines_as_many_rows_whatever_was_released(
    store: SqlStore,
) -> None:
    make_node(store)
    make_node(store, host="beta")
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    (other,) = store.load_nodes("beta")
    add_released(store, claims[0], (), 1000)
    add_released(store, dataclasses.replace(claims[0], node_id=other.id), (), 3000)
    add_released(store, claims[0], (), 3000)
    places: list[dict[str, Any]] = [
        {},
        {"host": "alpha"},
        {"host": "alpha", "nodename": "node-1"},
        {"node_id": claims[0].node_id},
    ]
    for place, states, is_descending in itertools.product(
        places, [(), (ClaimState.RELEASED,)], [False, True]
    ):
        query = ClaimQuery(states=states, limit=5, is_descending=is_descending, **place)
        far = store.list_claim_page(dataclasses.replace(query, limit=2900)).items[-1].uuid
        for after in (None, store.list_claim_page(query).next, far):
            page = dataclasses.replace(query, after=after)
            examined = count_examined(store, functools.partial(list_claim_page, query=page))
            assert examined < 200, page
            assert len(store.list_claim_page(page).items) == 5


@pytest.mark.parametrize("statuses", [(), (MigrationStatus.ACCEPTED, MigrationStatus.DONE)])
def test_a_list_of_the_migrations_of_a_host_examines_as_many_rows_whatever_has_ended(
    store: SqlStore, statuses: tuple[MigrationStatus, ...]
) -> None:
    for host in ("alpha", "beta", "gamma"):
        make_node(store, host=host)
    first, last = (move(store, claim(store, ask(MEMORY_MB=1)), "beta") for _ in range(2))
    add_migrations(store, first, 2000)
    elsewhere = dataclasses.replace(first, source_host="gamma", dest_host="gamma")
    add_migrations(store, elsewhere, 3000)
    store.revert_migration(last.uuid)
    for host in ("alpha", "beta"):
        query = MigrationQuery(host=host, statuses=statuses, limit=3)
        far = store.list_migration_page(dataclasses.replace(query, limit=1900)).items[-1].uuid
        for after in (None, far):
            page = dataclasses.replace(query, after=after)
            examined = count_examined(store, functools.partial(list_migration_page, query=page))
            assert examined < 200, page
            assert len(store.list_migration_page(page).items) == 3


def test_a_load_examines_as_many_rows_whatever_was_released(store: SqlStore) -> None:
    listed = tuple(make_guest(f"guest-{number}") for number in range(6))
    make_node(store, guests=listed)
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    guests = tuple(guest.uuid for guest in listed)
    add_released(store, claims[0], guests, 2000)
    load: Callable[[sa.Connection], Any] = lambda c: nodes.load_nodes(c, "alpha", None)  # noqa: E731
    few = count_examined(store, load)
    add_released(store, claims[0], (), 6000)
    many = count_examined(store, load)
    assert many < few + 100  # pages of an index, not the 6,000 claims
    held = node(store).claims.values()
    assert {c.uuid for c in held if c.is_active} == {c.uuid for c in claims}
    assert {c.workload.uuid for c in held if not c.is_active} == set(guests[::2])


def test_a_search_for_candidates_examines_as_many_rows_whatever_the_fleet(
    store: SqlStore, tmp_path: Path
) -> None:
    fleet = LargeFleet(store, tmp_path, workloads=1)
    table = tables.compute_nodes
    order = sa.select(table.c.id, table.c.place).order_by(table.c.place, table.c.id)
    policy, size = CandidatePolicy(ADMISSION_POLICY.service_down_time), 20
    examined = []
    for count in (200, 5000):
        fleet.grow(count)
        with store.engine.begin() as connection:
            rows = connection.execute(order).all()
            is_full = table.c.id.in_([row.id for row in rows[1::2]])
            used = sa.case((is_full, table.c.memory_mb), else_=0)
            connection.execute(sa.update(table).values(memory_mb_used=used))
        bodies = (request_claim(str(uuid.UUID(int=number))) for number in itertools.count())
        request = next(
            request
            for request in map(parse_claim_request, bodies)
            if place_of(request.uuid) in range(rows[0].place, rows[count // 4].place)
        )
        find = functools.partial(find_candidates, request=request, policy=policy, limit=size)
        examined.append(count_examined(store, find))
        assert len(store.find_candidates(request, policy, size).nodes) == size
    assert abs(examined[1] - examined[0]) <= 2
    assert max(examined) <= 5 * size
