"""Trends are sampled once an hour, averaged by the day, and deleted when they are old."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import DISK, MEMORY, VCPU
from nodetracker.model.trend import Step, TrendAmounts, TrendQuery
from tests.builders import create, delete, make_values, measure, register
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.statements import count_statements

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
VALUES = {
    "vcpus": 8, "pcpus": 2, "cpu_allocation_ratio": 2.0, "cpu_used": 3.5, "memory_mb": 8192,
    "memory_mb_used": 1024, "ram_allocation_ratio": 1.5, "local_gb": 100, "disk_used": 10.5,
    "disk_allocation_ratio": 1.0, "reserved": {"memory_mb": 512},
}  # fmt: skip


class Fleet:
    """A store whose database's clock the test sets, and an agent of nodes."""

    def __init__(self, stores: StoreMaker) -> None:
        self.hour = 0.1
        store = stores.open_empty(self.now)
        assert isinstance(store, SqlStore)
        self.store = store
        self.agent = register(store)

    def now(self) -> datetime:
        return MIDNIGHT + timedelta(hours=self.hour)

    def add(self, nodename: str, memory_used_mb: int | None = None, **changes: Any) -> int:
        metrics = {} if memory_used_mb is None else {"memory_used_mb": memory_used_mb}
        values = make_values(**(VALUES | {"metrics": metrics} | changes))
        self.store.apply_changes(self.agent, [create(self.agent, nodename, values)], 60)
        return self.record(nodename).id

    def record(self, nodename: str) -> Any:
        return next(n for n in self.store.load_nodes("alpha") if n.nodename == nodename)

    def sample(self, *hours: float, **memory_used_mb: int) -> None:
        """Sample at hours since the first midnight, with what nodes use then."""
        for self.hour in hours:
            for name, used in memory_used_mb.items():
                change = measure(self.record(name), metrics={"memory_used_mb": used})
                self.store.apply_changes(self.agent, [change], 60)
            self.store.sample_trends()

    def used(
        self,
        node_id: int | None = None,
        step: Step = Step.HOUR,
        **limits: datetime,
    ) -> dict[float, int | None]:
        """Return the measured memory by the hour since the first midnight."""
        query = TrendQuery(step=step, node_id=node_id, **limits)
        return {
            (found.at - MIDNIGHT) / timedelta(hours=1): found.amounts[MEMORY].measured
            for found in self.store.read_trend(query)
        }

    def by_day(self, node_id: int | None = None) -> dict[float, int | None]:
        return self.used(node_id, Step.DAY)

    def count_rows(self) -> int:
        with self.store.engine.connect() as connection:
            counted = sa.select(sa.func.count()).select_from(tables.trends)
            return connection.execute(counted).scalar_one()


@pytest.fixture
def fleet(stores: StoreMaker) -> Fleet:
    return Fleet(stores)


def test_an_hour_has_what_nodes_have_limit_allocate_and_measure(fleet: Fleet) -> None:
    metrics = {"memory_used_mb": 2000, "disk_used_mb": 300, "cpu_percent": 25}
    known, unknown = fleet.add("n1", metrics=metrics), fleet.add("n2")
    fleet.sample(0.5)
    assert fleet.used() == {}, "the hour began before the first node was created"
    fleet.sample(1.5)
    of_fleet, of_known, of_unknown = (
        fleet.store.read_trend(TrendQuery(step=Step.HOUR, node_id=node_id))
        for node_id in (None, known, unknown)
    )
    assert [(found.at, found.nodes) for found in of_known] == [(MIDNIGHT + timedelta(hours=1), 1)]
    assert of_known[0].amounts == {
        VCPU: TrendAmounts(8000, 16000, 3500, 2500),
        MEMORY: TrendAmounts(8192, 512 + 11520, 1024, 2000),
        DISK: TrendAmounts(102400, 102400, 10752, 300),
    }
    assert {found.measured for found in of_unknown[0].amounts.values()} == {None}
    assert of_fleet[0].amounts[MEMORY] == TrendAmounts(16384, 24064, 2048, 2000)
    assert of_fleet[0].nodes == 2


def test_an_hour_is_sampled_once(fleet: Fleet) -> None:
    node_id = fleet.add("n1", 10)
    fleet.sample(5.0, 5.9, n1=10)
    fleet.sample(5.95, n1=99)
    assert fleet.used() == fleet.used(node_id) == {5: 10}


def test_two_watchers_at_once_sample_an_hour_once(fleet: Fleet, stores: StoreMaker) -> None:
    fleet.add("n1", 10)
    fleet.sample(5.0)
    fleet.hour = 25.0
    barrier = threading.Barrier(4)
    failed: list[BaseException] = []

    def watch(store: SqlStore) -> None:
        barrier.wait()
        try:
            store.sample_trends()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=watch, args=(fleet.store,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert fleet.used() == {5: 10, 25: 10}
    assert fleet.by_day() == {0: 10}
    assert fleet.count_rows() == 3 * 2


def test_a_clock_that_jumps_back_overwrites_no_hour(fleet: Fleet) -> None:
    fleet.add("n1")
    fleet.sample(5.0, n1=50)
    fleet.sample(6.0, n1=60)
    fleet.sample(5.1, n1=99)
    fleet.sample(4.1, n1=40)
    fleet.sample(6.1, n1=99)
    assert fleet.used() == {4: 40, 5: 50, 6: 60}


def test_a_day_is_the_mean_of_the_hours_that_were_sampled(fleet: Fleet) -> None:
    node_id = fleet.add("n1")
    fleet.sample(1.0, n1=100)
    fleet.sample(20.0, n1=201)
    assert fleet.by_day() == {}
    fleet.sample(24.5, n1=999)
    assert fleet.by_day() == fleet.by_day(node_id) == {0: 150}
    fleet.sample(25.5)
    assert fleet.by_day() == {0: 150}
    fleet.sample(75.0)  # nobody watched for two days
    assert fleet.by_day() == {0: 150, 24: 999}


def test_a_node_that_is_added_within_a_day_has_the_mean_of_its_own_hours(fleet: Fleet) -> None:
    fleet.add("n1", 100)
    fleet.sample(1.0)
    fleet.hour = 12.7
    late = fleet.add("n2", 60)
    fleet.sample(12.8, 24.0)
    assert fleet.used(late) == {12: 60, 24: 60}
    assert fleet.by_day(late) == {0: 60}
    assert fleet.by_day() == {0: 130}  # of 100 and 160


def test_a_deleted_node_has_no_trend_nor_has_the_next_one_of_its_id(fleet: Fleet) -> None:
    deleted = fleet.add("n1", 100)
    fleet.sample(1.0, 2.0)
    fleet.store.apply_changes(fleet.agent, [delete(fleet.record("n1"))], 60)
    assert fleet.used(deleted) == {}
    fleet.sample(3.0)
    assert fleet.used() == {1: 100, 2: 100}  # no node, no sample
    fleet.hour = 4.5
    fleet.add("n2", 7)
    with fleet.store.engine.begin() as connection:  # as SQLite does
        connection.execute(sa.update(tables.compute_nodes).values(id=deleted))
    fleet.sample(4.6)
    assert fleet.used(deleted) == {4: 7}


def test_a_range_of_hours(fleet: Fleet) -> None:
    fleet.add("n1", 1)
    fleet.sample(1.0, 2.0, 3.0, 4.0)
    since, until = MIDNIGHT + timedelta(hours=2), MIDNIGHT + timedelta(hours=3, minutes=1)
    assert fleet.used(since=since, until=until) == {2: 1, 3: 1}


def test_hours_are_kept_for_14_days_and_days_for_two_years(fleet: Fleet) -> None:
    fleet.add("n1", 1)
    fleet.sample(1.0, 24.0, 24 * 14.0)
    assert fleet.used().keys() == {1, 24, 336}
    fleet.sample(24 * 14 + 1.1)
    assert fleet.used().keys() == {24, 336, 337}
    assert fleet.by_day().keys() == {0, 24}
    fleet.sample(24 * 730.0)
    assert fleet.by_day().keys() == {0, 24}
    fleet.sample(24 * 730 + 1.1)
    assert fleet.by_day().keys() == {24}


def test_a_purge_deletes_what_is_older(fleet: Fleet) -> None:
    fleet.add("n1", 1)
    fleet.sample(1.0, 2.0, 24.0)
    before = MIDNIGHT + timedelta(hours=2)
    assert fleet.store.purge(before, ("trends",)) == {"trends": 4}
    assert fleet.used().keys() == {2, 24}
    assert fleet.by_day() == {}


def test_hours_of_several_nodes_are_read_at_once(fleet: Fleet) -> None:
    fleet.add("n1", 1)
    fleet.sample(1.0, 2.0)
    fleet.hour = 2.5
    fleet.add("n2", 7)
    fleet.sample(3.0, 4.0, n1=5)
    fleet.hour = 4.5
    fleet.add("n3")
    uuids = [fleet.record(name).uuid for name in ("n1", "n2", "n3")]
    since = MIDNIGHT + timedelta(hours=2)
    with count_statements(fleet.store) as seen:
        found = fleet.store.read_node_hours([*uuids, "no such node"], since)
    assert len(seen) == 2
    measured = {
        uuid: {sample.at.hour: sample.amounts[MEMORY].measured for sample in hours}
        for uuid, hours in found.items()
    }
    assert measured == {uuids[0]: {2: 1, 3: 5, 4: 5}, uuids[1]: {3: 7, 4: 7}, uuids[2]: {}}


def test_hours_of_a_node_whose_id_another_one_had_are_its_own(fleet: Fleet) -> None:
    deleted = fleet.add("n1", 100)
    fleet.sample(1.0)
    fleet.store.apply_changes(fleet.agent, [delete(fleet.record("n1"))], 60)
    fleet.hour = 4.5
    fleet.add("n2", 7)
    with fleet.store.engine.begin() as connection:  # as SQLite does
        connection.execute(sa.update(tables.compute_nodes).values(id=deleted))
    fleet.sample(4.6)
    uuid = fleet.record("n2").uuid
    assert [found.at.hour for found in fleet.store.read_node_hours([uuid], MIDNIGHT)[uuid]] == [4]


def test_the_number_of_statements_does_not_depend_on_that_of_nodes(fleet: Fleet) -> None:
    counts, rows = [], []
    for day, size in enumerate((1, 99)):
        agent, values = fleet.agent, make_values(**VALUES)
        changes = [create(agent, f"n{day}-{number}", values) for number in range(size)]
        fleet.store.apply_changes(agent, changes, 60)
        fleet.sample(24.0 * day + 1)
        fleet.hour, before = 24.0 * (day + 1), fleet.count_rows()
        with count_statements(fleet.store) as seen:
            fleet.store.sample_trends()
        counts.append(len(seen))
        rows.append(fleet.count_rows() - before)
    assert counts == [11, 11]
    assert rows[1] <= 2 * (1 + 3)  # of the hour and the day: the fleet, and 64 nodes a row
    with count_statements(fleet.store) as seen:
        fleet.store.sample_trends()
    assert len(seen) == 7
