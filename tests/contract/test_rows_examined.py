"""The rows that a database examines follow what is asked for, not a node's past or the fleet."""

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.candidates import place_of
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db import codec
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.claim import (
    ACTIVE_STATES,
    Claim,
    ClaimRequest,
    ClaimState,
    Migration,
    MigrationStatus,
)
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import ClaimQuery, MigrationQuery, WorkloadQuery
from nodetracker.model.settings import SchedulerSettings
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import CandidatePolicy
from nodetracker.usecases.scheduler import Scheduler
from tests.bench.audits import BenchHost
from tests.bench.large_fleet import ADMISSION_POLICY, LargeFleet, request_claim
from tests.bench.lists import LATEST
from tests.builders import SINCE, ask, claim, make_guest, make_node, move, node, register
from tests.rows_examined import analyze, count_each, count_examined, record_examined
from tests.unit.api.conftest import Api, make_backend

PAGES = ("/v1/nodes?limit=50", "/v1/claims?limit=50", "/v2.1/os-hypervisors/detail?limit=50")

pytestmark = pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)


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
    """Add claims like another one, each of its own workload."""
    row = codec.encode_claim(template) | {"compute_node_id": template.node_id}
    own = ("uuid", "workload_uuid")
    rows = [row | {name: str(uuid.uuid4()) for name in own} for _ in range(count)]
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.claims), rows)


def add_migrations(store: SqlStore, template: Migration, count: int) -> None:
    """Add ended migrations like another one."""
    row = codec.encode_row(template) | {"status": MigrationStatus.DONE.value}
    rows = [row | {"uuid": str(uuid.uuid4())} for _ in range(count)]
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.migrations), rows)


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
    read = partial(store.list_claim_page, query)
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
            examined = count_examined(store, partial(store.list_claim_page, page))
            assert examined < 200, page
            assert len(store.list_claim_page(page).items) == 5


def test_the_search_for_workloads_on_two_nodes_examines_as_many_rows_whatever_was_released(
    store: SqlStore,
) -> None:
    make_node(store)
    make_node(store, host="beta")
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    (other,) = store.load_nodes("beta")
    add_claims(store, dataclasses.replace(claims[0], node_id=other.id), 1000)
    add_released(store, dataclasses.replace(claims[0], node_id=other.id), (), 3000)
    add_released(store, claims[0], (), 100)
    read = partial(store.list_split_brains, "alpha")
    analyze(store)
    few = count_examined(store, read)
    add_released(store, claims[0], (), 8000)
    analyze(store)
    # PostgreSQL may read the 1,000 active claims again for each state, whatever was released.
    assert count_examined(store, read) < few + 5000


def test_a_part_of_a_purge_examines_as_many_rows_whatever_was_released(store: SqlStore) -> None:
    make_node(store)
    found = claim(store, ask(MEMORY_MB=1))
    purge = partial(store.purge, store.now(), ("claims",), is_part=True)
    examined = []
    for count in (4000, 20_000):
        add_released(store, found, (), count)
        analyze(store)
        with record_examined(store) as seen:
            assert purge()["claims"] == 1000
        examined.append(sum(one.rows for one in seen))
    few, many = examined
    assert many < few + 1000


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
            examined = count_examined(store, partial(store.list_migration_page, page))
            assert examined < 200, page
            assert len(store.list_migration_page(page).items) == 3


@pytest.mark.parametrize("place", [{}, {"host": "alpha"}])
def test_a_list_of_workloads_examines_as_many_rows_whatever_was_released(
    store: SqlStore, place: dict[str, str]
) -> None:
    make_node(store, guests=tuple(make_guest(f"guest-{number}") for number in range(6)))
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    make_node(store, host="beta")
    (other,) = store.load_nodes("beta")
    add_claims(store, dataclasses.replace(claims[0], node_id=other.id), 50)
    read = partial(store.list_workloads, WorkloadQuery(limit=5, **place))
    few = count_examined(store, read)
    add_released(store, claims[0], (), 4000)
    # By its samples, MariaDB may read the 60 active claims again for each guest.
    assert count_examined(store, read) < few + 1000
    assert len(read().items) == 5


def test_a_load_examines_as_many_rows_whatever_was_released(store: SqlStore) -> None:
    listed = tuple(make_guest(f"guest-{number}") for number in range(6))
    make_node(store, guests=listed)
    claims = [claim(store, ask(MEMORY_MB=1)) for _ in range(10)]
    guests = tuple(guest.uuid for guest in listed)
    add_released(store, claims[0], guests, 2000)
    load = partial(store.load_nodes, "alpha")
    few = count_examined(store, load)
    add_released(store, claims[0], (), 6000)
    many = count_examined(store, load)
    assert many < few + 100  # pages of an index, not the 6,000 claims
    held = node(store).claims.values()
    assert {c.uuid for c in held if c.is_active} == {c.uuid for c in claims}
    assert {c.workload.uuid for c in held if not c.is_active} == set(guests[::2])


def test_no_action_examines_more_rows_or_sends_more_statements_in_a_larger_fleet(
    store: SqlStore, tmp_path: Path
) -> None:
    fleet = LargeFleet(store, tmp_path, workloads=1)
    own = BenchHost(store, tmp_path, nodes=1, guests_per_node=4)
    own.nodes[0]["memory_mb"] = 512  # too small for the claims
    own.write()
    for _ in range(3):
        own.audit()  # the last one is steady
    numbers = itertools.count()
    policy, size = CandidatePolicy(ADMISSION_POLICY.service_down_time), 20
    scheduler = Scheduler(store, ADMISSION_POLICY, SchedulerSettings(nodes_to_weigh=size))
    service = Api(make_backend(store))
    examined: list[dict[str, tuple[int, ...]]] = []
    for count in (200, 5000):
        fleet.grow(count)
        requests = _list_requests(_fill_every_second(store)[: count // 4], numbers)
        hosts = iter(_list_hosts_with_room(store))
        actions: dict[str, Callable[[], Any]] = {
            "search": lambda r=requests: store.find_candidates(next(r), policy, size),
            "claim": lambda r=requests: scheduler.create_claim(next(r)),
            "claim on a node": lambda r=requests, h=hosts: store.create_claim(
                next(r), next(h), "node-0", ADMISSION_POLICY
            ),
            "steady audit": own.audit,
            "heartbeat": own.report_state,
        }
        actions |= {path: partial(service.request, "GET", path, headers=LATEST) for path in PAGES}
        analyze(store)
        counted = {name: tuple(count_each(store, act)) for name, act in actions.items()}
        examined.append(counted)
        assert len(store.find_candidates(next(requests), policy, size).nodes) == size
    few, many = examined
    for name, rows in few.items():
        assert len(many[name]) == len(rows), name
        assert sum(many[name]) <= sum(rows) + 2, name
    assert sum(many["search"]) <= 5 * size
    assert {name: len(rows) for name, rows in many.items()} == {
        "search": 2, "claim": 7, "claim on a node": 5, "steady audit": 1, "heartbeat": 1,
        "/v1/nodes?limit=50": 3, "/v1/claims?limit=50": 1, "/v2.1/os-hypervisors/detail?limit=50": 2,
    }  # fmt: skip


@pytest.mark.parametrize("is_descending", [False, True], ids=["emptiest", "fullest"])
def test_a_page_of_nodes_by_fullness_examines_as_many_rows_in_any_fleet(
    store: SqlStore, tmp_path: Path, is_descending: bool
) -> None:
    fleet = LargeFleet(store, tmp_path, workloads=1)
    fleet.grow(3000)
    table = tables.compute_nodes
    with store.engine.begin() as connection:
        connection.execute(sa.update(table).values(memory_mb_used=table.c.memory_mb + table.c.id))
    query = FleetQuery(order="fullness", is_descending=is_descending, limit=20)
    after = None
    for limit in (1, 700, 1500):
        page = dataclasses.replace(query, after=after)
        examined = count_examined(store, partial(store.list_fleet, page))
        assert examined < 400, page
        after = store.list_fleet(dataclasses.replace(page, limit=limit)).next


def _fill_every_second(store: SqlStore) -> Sequence[int]:
    """Fill every second node, and return the places of all in order."""
    table = tables.compute_nodes
    order = sa.select(table.c.id, table.c.place).order_by(table.c.place, table.c.id)
    with store.engine.begin() as connection:
        rows = connection.execute(order).all()
        is_full = table.c.id.in_([row.id for row in rows[1::2]])
        used = sa.case((is_full, table.c.memory_mb), else_=0)
        connection.execute(sa.update(table).values(memory_mb_used=used))
    return [row.place for row in rows]


def _list_hosts_with_room(store: SqlStore) -> Sequence[str]:
    """Return the hosts without claims by this test, the nodes of which are not full."""
    table = tables.compute_nodes
    is_wanted = table.c.memory_mb_used == 0, table.c.host.like("host-%")
    has_room = sa.select(table.c.host).where(*is_wanted).order_by(table.c.host)
    with store.engine.connect() as connection:
        return connection.scalars(has_room).all()


def _list_requests(places: Sequence[int], numbers: Iterator[int]) -> Iterator[ClaimRequest]:
    """Yield requests whose search begins between the first of these places and the last."""
    for number in numbers:
        request = parse_claim_request(request_claim(str(uuid.UUID(int=number))))
        if place_of(request.uuid) in range(places[0], places[-1]):
            yield request


def add_services(store: SqlStore, name: str, count: int, **changes: Any) -> None:
    """Add agents of further hosts, like the only one that there is first."""
    table = tables.services
    with store.engine.begin() as connection:
        first = connection.execute(sa.select(table).order_by(table.c.id).limit(1)).mappings().one()
        row = {key: value for key, value in first.items() if key != "id"} | changes
        rows = [
            row | {"host": f"{name}-{number:04d}", "uuid": str(uuid.uuid4())}
            for number in range(count)
        ]
        connection.execute(sa.insert(table), rows)


def test_a_page_of_warnings_examines_as_many_rows_whatever_hosts_are_up(store: SqlStore) -> None:
    register(store)
    add_services(store, "down", 40, last_seen_up=SINCE)
    for number in range(40):
        warning = HostWarning(WarningKind.HOST_DOWN, WHOLE_HOST, "", "stored")
        store.raise_warning(f"down-{number:04d}", warning)
    add_services(store, "up", 3000, last_seen_up=store.now() + timedelta(days=1))
    get = partial(Api(make_backend(store)).get, "/v1/warnings?limit=10")
    assert len(get()["warnings"]) == 10
    assert count_examined(store, get) < 150
