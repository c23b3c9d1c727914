"""Many claims in one transaction, in every store."""

import dataclasses
import itertools
import random
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import sqlalchemy as sa
from oslo_db.exception import DBDuplicateEntry

from nodetracker.db.connection.dialect import can_skip_locked
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import EventKind, StoreEvent
from nodetracker.model.claim import Claim, ClaimRequest, PlacedRequest
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    RefusedError,
    StoreUnavailableError,
)
from nodetracker.model.guest import Guest
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.ports import AdmissionPolicy, SchedulerStore, Store
from nodetracker.usecases import scheduler as scheduler_module
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    make_device,
    make_guest,
    make_node,
    node,
    read_history,
)
from tests.contract.stores import SQL_BACKENDS
from tests.oracle import check_usage
from tests.statements import count_statements

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


def place(request: ClaimRequest, host: str = "alpha", nodename: str = "node-1") -> PlacedRequest:
    return PlacedRequest(request, host, nodename)


def grant(store: Store, *placed: PlacedRequest) -> list[Claim | None]:
    return store.create_claims(placed, ADMISSION_POLICY)


def claimed_cpus(store: Store, *hosts: str) -> list[int]:
    """Return the CPUs of nodes that are used beside the reserved one."""
    return [node(store, host).values.vcpus_used - 1 for host in hosts]


def test_each_is_granted_on_its_node(store: SqlStore) -> None:
    for host in ("alpha", "beta"):
        make_node(store, host=host)
    requests = [ask(VCPU=1, MEMORY_MB=64) for _ in range(4)]
    placed = [place(one, host) for one, host in zip(requests, ("alpha", "beta") * 2, strict=True)]
    granted = grant(store, *placed)
    assert [found and (found.uuid, found.host) for found in granted] == [
        (item.request.uuid, item.host) for item in placed
    ]
    assert claimed_cpus(store, "alpha", "beta") == [2, 2]
    for host in ("alpha", "beta"):
        check_usage(store, host)


def test_those_that_do_not_fit_keep_no_other_back(store: SqlStore) -> None:
    make_node(store)
    sizes = (6, 6, 1, 1)
    granted = grant(store, *(place(ask(VCPU=size, MEMORY_MB=64)) for size in sizes))
    assert [found is not None for found in granted] == [True, False, True, False]
    assert claimed_cpus(store, "alpha") == [7]
    assert grant(store, place(ask(VCPU=1, MEMORY_MB=64), "alpha ")) == [None]
    nowhere = place(ask(VCPU=1, MEMORY_MB=64), "gamma")
    assert grant(store, nowhere) == [None]


def test_a_request_that_was_granted_before_has_that_claim(store: SqlStore) -> None:
    make_node(store)
    first = ask(VCPU=1, MEMORY_MB=64)
    before = claim(store, first)
    changed = dataclasses.replace(ask(VCPU=2, MEMORY_MB=64), uuid=first.uuid)
    again, other = grant(store, place(first), place(ask(VCPU=1, MEMORY_MB=64)))
    assert (again, again and again.is_repeated) == (before, True)
    assert other is not None
    assert grant(store, place(changed)) == [None]
    assert claimed_cpus(store, "alpha") == [2]


def test_nodes_that_are_locked_are_left_out(store: SqlStore) -> None:
    hosts = ("alpha", "beta", "gamma")
    for host in hosts:
        make_node(store, host=host)
    with store.engine.connect() as other:
        nodes = tables.compute_nodes.c
        for host in ("alpha", "beta"):
            other.execute(sa.select(nodes.id).where(nodes.host == host).with_for_update())
        *busy, free = grant(store, *(place(ask(VCPU=1, MEMORY_MB=64), host) for host in hosts))
        assert free is not None
        # SQLite locks no rows.
        assert [found is None for found in busy] == [can_skip_locked(other)] * 2


def test_claims_on_one_node_share_their_statements(store: SqlStore) -> None:
    make_node(store)
    grant(store, place(ask(VCPU=1, MEMORY_MB=64)))
    with count_statements(store.engine) as seen:
        grant(store, *(place(ask(VCPU=1, MEMORY_MB=64)) for _ in range(3)))
    assert len(seen.statements) == 6


def test_claims_on_nodes_of_their_own_share_their_statements(store: SqlStore) -> None:
    hosts = ("alpha", "beta", "gamma")
    for host in hosts:
        make_node(store, host=host)
    grant(store, *(place(ask(VCPU=1, MEMORY_MB=64), host) for host in hosts))
    with count_statements(store.engine) as seen:
        grant(store, *(place(ask(VCPU=1, MEMORY_MB=64), host) for host in hosts))
    assert len(seen.statements) == 1 + 5


def test_each_node_is_read_for_its_own_workload_and_with_its_devices(store: SqlStore) -> None:
    alias = Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)
    policy = dataclasses.replace(ADMISSION_POLICY, aliases={"nic": alias})
    guest = make_guest("web", vcpu_milli=1000, memory_mb=1024, disk_mb=10240)
    charge = Amounts(vcpu_milli=1000, memory_mb=1024, disk_mb=10240)
    devices = (make_device("10000:81:00.1"), make_device("10000:81:00.2"))
    make_node(store, (guest,), charge, devices)
    make_node(store, devices=devices, host="beta")
    of_guest = ask(guest.uuid, VCPU=1, MEMORY_MB=1024, DISK_GB=10)
    with_device = ask(pci_requests=[{"alias": "nic"}], VCPU=1)
    placed = (place(of_guest, "alpha"), place(with_device, "beta"))
    taken, other = store.create_claims(placed, policy)
    assert taken is not None
    assert other is not None
    assert node(store).guests[guest.uuid].claim_uuid == taken.uuid
    assert claimed_cpus(store, "alpha", "beta") == [1, 1]
    assert (taken.devices, list(other.devices)) == ((), ["10000:81:00.1"])
    lines = read_history(store, "alpha", "node-1", has_events=True)
    assert [line.event for line in lines if line.kind == EventKind.CLAIM] == [
        "created",
        "confirmed",
    ]


def make_mixture(chance: random.Random, guests: Sequence[Guest]) -> list[dict[str, Any]]:
    """Return the bodies of requests of every kind, some of one workload, some too large."""
    workloads = [*(guest.uuid for guest in guests), *(str(uuid.uuid4()) for _ in range(3))]
    kinds: list[dict[str, Any]] = [
        {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 5},
        {"VCPU": 3, "MEMORY_MB": 64},
        {"PCPU": 1, "MEMORY_MB": 128, "numa": {"nodes": 1, "cpu_policy": "dedicated"}},
        {"VCPU": 2, "MEMORY_MB": 512, "numa": {"nodes": 2}},
        {"VCPU": 1, "CUSTOM_FPGA": 1},
        {"VCPU": 1, "MEMORY_MB": 64, "pci_requests": [{"alias": "nic"}]},
        {"VCPU": 99},
    ]
    return [
        {"workload": chance.choice([None, *workloads])} | chance.choice(kinds) for _ in range(12)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_together_they_are_granted_as_one_after_the_other(store: SqlStore, seed: int) -> None:
    chance = random.Random(seed)
    alias = Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)
    policy = dataclasses.replace(ADMISSION_POLICY, aliases={"nic": alias})
    guests = tuple(
        make_guest(name, vcpu_milli=1000, memory_mb=256, disk_mb=1024) for name in ("web", "db")
    )
    charge = Amounts(vcpu_milli=2000, memory_mb=512, disk_mb=2048)
    devices = (make_device("10000:81:00.1"), make_device("10000:81:00.2"))
    for host in ("alpha", "beta"):
        make_node(store, guests, charge, devices, host=host)
    bodies = make_mixture(chance, guests)
    together = store.create_claims([place(ask(**body), "alpha") for body in bodies], policy)
    singly: list[Claim | None] = []
    for body in bodies:
        try:
            singly.append(store.create_claim(ask(**body), "beta", "node-1", policy))
        except ClaimRefusedError:
            singly.append(None)
    assert any(together)
    assert None in together
    seen = [
        [one and (one.state, one.amounts, one.numa, one.devices) for one in claims]
        for claims in (together, singly)
    ]
    assert seen[0] == seen[1]
    alpha, beta = node(store, "alpha"), node(store, "beta")
    assert alpha.values == beta.values
    for host in ("alpha", "beta"):
        check_usage(store, host)


def test_fifty_have_six_statements_on_one_node_as_on_fifty(store: SqlStore) -> None:
    """And with COMMIT as many round trips, by MariaDB's own count of what clients send."""
    is_counted = store.engine.dialect.name == "mysql"
    hosts = [f"h{number}" for number in range(50)]
    for host in hosts:
        make_node(store, host=host)
    for places in (hosts, ["h0"] * 5, hosts):
        before = count_sent(store) if is_counted else 0
        own = count_sent(store) - before if is_counted else 0
        with count_statements(store) as seen:
            granted = grant(store, *(place(ask(VCPU=1, MEMORY_MB=1), host) for host in places))
        assert all(granted)
        assert len(seen) == 6
        assert not is_counted or count_sent(store) - before - 2 * own == 7


def count_sent(store: SqlStore) -> int:
    with store.engine.connect() as connection:
        return int(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Questions'").one()[1])


def test_observers_learn_of_all_at_once(store: SqlStore) -> None:
    seen: list[StoreEvent] = []

    class Observer:
        def committed(self, event: StoreEvent) -> None:
            seen.append(event)

    for host in ("alpha", "beta"):
        make_node(store, host=host)
    store._observers = (Observer(),)
    hosts = ("alpha", "alpha", "beta")
    granted = grant(store, *(place(ask(VCPU=1, MEMORY_MB=64), host) for host in hosts))
    (event,) = seen
    assert {found.uuid for found in event.claims} == {found and found.uuid for found in granted}
    assert sorted(event.places) == [("alpha", "node-1"), ("beta", "node-1")]


def test_clients_at_the_same_time_sell_nothing_twice(store: SqlStore) -> None:
    """There is room for 28 of 64."""
    hosts = ("alpha", "beta", "gamma", "delta")
    for host in hosts:
        make_node(store, host=host)
    scheduler = Scheduler(store, ADMISSION_POLICY)
    parts = [[ask(VCPU=1, MEMORY_MB=64) for _ in range(16)] for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(itertools.chain(*pool.map(scheduler.create_claims, parts)))
    granted = [found for found in outcomes if isinstance(found, Claim)]
    assert len(granted) == 7 * len(hosts)
    assert all(isinstance(found, Claim | ClaimRefusedError) for found in outcomes)
    for host in hosts:
        check_usage(store, host)


class LossyStore:
    """A store of which one call fails: before it is carried out, or its answer is lost."""

    def __init__(self, store: SqlStore, number: int, is_done: bool) -> None:
        self._store, self._left, self._is_done = store, number, is_done
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            is_lost = self._left == -1
            if is_lost:
                self.has_failed = True
            if is_lost and not self._is_done:
                raise StoreUnavailableError("the database is gone")
            answer = method(*arguments, **named)
            if is_lost:
                raise StoreUnavailableError("the answer was lost")
            return answer

        return call


class Contended:
    """A store in which others are first at each try of a transaction of too many claims."""

    def __init__(self, store: SqlStore, most: int, singly: bool = True) -> None:
        self._store, self._most, self._singly = store, most, singly
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create_claims(self, placed: Sequence[PlacedRequest], policy: AdmissionPolicy) -> Any:
        self.sizes.append(len(placed))
        if len(placed) > self._most:
            raise StoreUnavailableError("deadlock", is_contended=True)
        return self._store.create_claims(placed, policy)

    def create_claim(self, *arguments: Any) -> Any:
        self.sizes.append(0)
        if not self._singly:
            raise StoreUnavailableError("deadlock", is_contended=True)
        return self._store.create_claim(*arguments)


class TestContention:
    """Others write the same rows at each try, as through another member of a cluster."""

    @pytest.fixture
    def requests(self, store: SqlStore) -> list[ClaimRequest]:
        make_node(store)
        return [ask(VCPU=1, MEMORY_MB=64) for _ in range(5)]

    def test_a_part_is_halved_until_it_is_written(
        self, store: SqlStore, requests: list[ClaimRequest]
    ) -> None:
        contended: Any = Contended(store, 1)
        claims = Scheduler(contended, ADMISSION_POLICY).create_claims(requests)
        assert [found.uuid for found in claims if isinstance(found, Claim)] == [
            request.uuid for request in requests
        ]
        assert contended.sizes == [5, 2, 1, 1, 3, 1, 2, 1, 1]

    def test_what_cannot_be_written_fails_by_itself(
        self, store: SqlStore, requests: list[ClaimRequest]
    ) -> None:
        contended: Any = Contended(store, 0)
        claims = Scheduler(contended, ADMISSION_POLICY).create_claims(requests)
        assert all(isinstance(found, Claim) for found in claims)
        contended = Contended(store, 0, singly=False)
        more = [ask(VCPU=1, MEMORY_MB=32) for _ in range(2)]
        outcomes = Scheduler(contended, ADMISSION_POLICY).create_claims([*requests, *more])
        assert all(isinstance(found, Claim) for found in outcomes[:5])
        assert [type(found) for found in outcomes[5:]] == [StoreUnavailableError] * 2

    def test_a_list_is_not_tried_for_ever(
        self, store: SqlStore, requests: list[ClaimRequest], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scheduler_module, "CONTENDED_SECONDS", 0.0)
        contended: Any = Contended(store, 0, singly=False)
        outcomes = Scheduler(contended, ADMISSION_POLICY).create_claims(requests)
        assert [type(found) for found in outcomes] == [StoreUnavailableError] * 5
        assert contended.sizes == [5]

    def test_an_outage_fails_the_list(self, store: SqlStore, requests: list[ClaimRequest]) -> None:
        broken: Any = LossyStore(store, 3, is_done=False)
        with pytest.raises(StoreUnavailableError, match="gone"):
            Scheduler(broken, ADMISSION_POLICY).create_claims(requests)


class TestScheduler:
    def test_those_alike_share_a_search_and_are_spread(self, store: SqlStore) -> None:
        hosts = ("alpha", "beta", "gamma")
        for host in hosts:
            make_node(store, host=host)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(VCPU=1, MEMORY_MB=64) for _ in range(6)]
        with count_statements(store.engine) as seen:
            claims = scheduler.create_claims(requests)
        assert [found.uuid for found in claims if isinstance(found, Claim)] == [
            request.uuid for request in requests
        ]
        assert claimed_cpus(store, *hosts) == [2, 2, 2]
        assert len(seen.statements) <= 2 + 4 + 6  # known claims and guests; search; one pass
        assert scheduler.create_claims(requests) == claims

    def test_each_has_an_error_of_its_own(self, store: SqlStore) -> None:
        make_node(store)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        released = claim(store, ask(VCPU=1, MEMORY_MB=64))
        store.abort_claim(released.uuid)
        taken = claim(store, ask(VCPU=1, MEMORY_MB=64))
        move = {"type": "migration", "source_claim": taken.uuid}
        requests = [
            ask(VCPU=1, MEMORY_MB=64),
            ask(VCPU=9, MEMORY_MB=64),
            ask(VCPU=2, MEMORY_MB=64, claim=taken.uuid),
            ask(VCPU=1, MEMORY_MB=64, host="alpha", nodename="node-1"),
            ask(VCPU=1, MEMORY_MB=64, host="nowhere"),
            ask(VCPU=1, MEMORY_MB=64, migration=move),
            ask(),
        ]
        outcomes = scheduler.create_claims(requests)
        kinds = [type(found).__name__ for found in outcomes]
        assert kinds == [
            "Claim", "ClaimRefusedError", "ClaimConflictError", "Claim", "NotFoundError",
            "RequestError", "RequestError",
        ]  # fmt: skip
        assert "nearest: alpha/node-1" in str(outcomes[1])
        again = dataclasses.replace(
            ask(VCPU=1, MEMORY_MB=64, workload=released.workload.uuid, claim=released.uuid),
            request_hash=released.request_hash,
        )
        (outcome,) = scheduler.create_claims([again])
        assert isinstance(outcome, RefusedError)
        assert not isinstance(outcome, ClaimRefusedError | ClaimConflictError)
        assert "use another uuid" in str(outcome)

    def test_candidates_say_what_is_left_of_all_that_is_requested(self, store: SqlStore) -> None:
        """Of pinned CPUs, devices and each cell, before the claim."""
        devices = (make_device("0000:81:00.1"), make_device("0000:81:00.2"))
        make_node(store, devices=devices)
        aliases = {"nic": Alias("nic", (AliasSpec("8086", "154c"),))}
        scheduler = Scheduler(store, dataclasses.replace(ADMISSION_POLICY, aliases=aliases))
        pinned = {"nodes": 1, "cpu_policy": "dedicated"}
        request = ask(PCPU=1, MEMORY_MB=64, numa=pinned, pci_requests=[{"alias": "nic"}])
        (found,) = scheduler.select(request)
        before = {left.resource: left for left in found.left}
        assert before.keys() == {"PCPU", "nic", "cell 0", "cell 1"}
        assert (before["PCPU"].free, before["nic"].free) == (2, 2)
        claim = scheduler.create_claim(request)
        # Both devices are near cell 1, whose only dedicated CPU is pinned now.
        (found,) = scheduler.select(ask(PCPU=1, MEMORY_MB=64, numa=pinned))
        after = {left.resource: left for left in found.left}
        assert after["PCPU"].free == 1
        (found,) = scheduler.select(ask(VCPU=1, pci_requests=[{"alias": "nic"}]))
        assert [(left.resource, left.free) for left in found.left] == [("nic", 1)]
        assert claim.numa is not None
        for cell in (0, 1):
            is_own = cell == claim.numa.cells[0].host_cell
            old, new = before[f"cell {cell}"], after[f"cell {cell}"]
            assert (old.free or 0) - (new.free or 0) == is_own
            assert (old.memory_mb or 0) - (new.memory_mb or 0) == 64 * is_own
        (found,) = scheduler.select(ask(VCPU=1, MEMORY_MB=64))
        assert found.left == ()

    def test_a_full_fleet_is_searched_once(self, store: SqlStore) -> None:
        make_node(store)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(VCPU=9, MEMORY_MB=64) for _ in range(20)]
        with count_statements(store.engine) as one:
            scheduler.create_claims(requests[:1])
        with count_statements(store.engine) as all_of_them:
            outcomes = scheduler.create_claims(requests)
        assert len(all_of_them.statements) == len(one.statements) + 1  # which have guests
        assert len({str(found) for found in outcomes}) == 1

    def test_a_repeated_list_has_the_same_answers(self, store: SqlStore) -> None:
        """Where the nodes are full, and where none accepts claims any more."""
        make_node(store)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(VCPU=1, MEMORY_MB=64) for _ in range(12)]
        first = scheduler.create_claims(requests)
        assert sum(isinstance(found, Claim) for found in first) == 7
        again = scheduler.create_claims(requests)
        assert [str(found) for found in again if not isinstance(found, Claim)] == [
            str(found) for found in first if not isinstance(found, Claim)
        ]
        assert [found for found in again if isinstance(found, Claim)] == first[:7]
        store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
        assert scheduler.create_claims(requests)[:7] == first[:7]
        assert scheduler.create_claim(requests[0]) == first[0]
        store.abort_claim(requests[0].uuid)
        (released,) = scheduler.create_claims(requests[:1])
        assert "use another uuid" in str(released)
        other = dataclasses.replace(requests[1], request_hash="other")
        (conflict,) = scheduler.create_claims([other])
        assert isinstance(conflict, ClaimConflictError)
        with pytest.raises(ClaimConflictError):
            scheduler.create_claim(other)

    def test_a_list_that_was_granted_before_is_found_before_any_search(
        self, store: SqlStore
    ) -> None:
        make_node(store)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(VCPU=1, MEMORY_MB=64, claim=str(uuid.uuid4())) for _ in range(3)]
        granted = scheduler.create_claims(requests)
        with count_statements(store.engine) as seen:
            assert scheduler.create_claims(requests) == granted
        assert len(seen.statements) == 1

    def test_a_claim_that_was_granted_before_is_found_before_any_search(
        self, store: SqlStore
    ) -> None:
        """By the statement that finds the workload's guests, so that a new one costs no more."""
        make_node(store)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        counts, granted = [], []
        requests = [ask(VCPU=1, MEMORY_MB=64, claim=one) for one in (None, str(uuid.uuid4()))]
        for request in requests:
            with count_statements(store.engine) as seen:
                granted.append(scheduler.create_claim(request))
            counts.append(len(seen.statements))
        assert counts[0] == counts[1]
        with count_statements(store.engine) as seen:
            assert scheduler.create_claim(requests[1]) == granted[1]
        assert len(seen.statements) == 2
        assert scheduler.try_claim(requests[1])[:2] == ("alpha", "node-1")
        assert len(scheduler.select(requests[1])) == 1
        assert claimed_cpus(store, "alpha") == [2]

    def test_guests_that_are_charged_already_are_no_more_alike(self, store: SqlStore) -> None:
        guests = [make_guest(name, vcpu_milli=3000, memory_mb=512, disk_mb=0) for name in "ab"]
        make_node(store, guests, Amounts(vcpu_milli=6000, memory_mb=1024))
        workloads = [guest.uuid for guest in guests]
        nobody = str(uuid.uuid4())
        assert store.find_guests([*workloads, nobody]) == frozenset(workloads)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        outcomes = scheduler.create_claims(
            [ask(of, VCPU=3, MEMORY_MB=512) for of in (nobody, *workloads, str(uuid.uuid4()))]
        )
        assert [type(found).__name__ for found in outcomes] == [
            "ClaimRefusedError", "Claim", "Claim", "ClaimRefusedError",
        ]  # fmt: skip
        check_usage(store, "alpha")

    def test_the_same_list_at_the_same_time_has_one_set_of_claims(self, store: SqlStore) -> None:
        """A client that waits no longer repeats what is still being carried out."""
        hosts = ("alpha", "beta")
        for host in hosts:
            make_node(store, host=host)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(VCPU=1, MEMORY_MB=64) for _ in range(20)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(scheduler.create_claims, [requests] * 4))
        held = {found.uuid for found in store.list_claims()}
        assert len(held) == 14
        for outcomes in answers:
            assert {found.uuid for found in outcomes if isinstance(found, Claim)} == held
        for host in hosts:
            check_usage(store, host)

    def test_an_answer_that_is_lost_anywhere_changes_nothing(self, store: SqlStore) -> None:
        """Each call in turn fails before it is carried out, or its answer is lost; then all again.

        There is room for 14 of 18, of two kinds.
        """
        hosts = ("alpha", "beta")
        for host in hosts:
            make_node(store, host=host)
        number, has_failed = 0, True
        while has_failed:
            for is_done in (False, True):
                requests = [ask(VCPU=1, MEMORY_MB=64 + n % 2) for n in range(18)]
                lossy = LossyStore(store, number, is_done)
                scheduler = Scheduler(cast("Store", lossy), ADMISSION_POLICY)
                try:
                    answers = scheduler.create_claims(requests)
                except StoreUnavailableError:
                    answers = scheduler.create_claims(requests)
                has_failed = lossy.has_failed
                granted = [found for found in answers if isinstance(found, Claim)]
                active = {found.uuid for found in store.list_claims() if found.is_active}
                assert {found.uuid for found in granted} == active
                assert len(granted) == 14
                for host in hosts:
                    check_usage(store, host)
                for found in granted:
                    store.abort_claim(found.uuid)
            number += 1
        assert number > 5

    def test_more_than_one_transaction_holds_are_granted_in_some(
        self, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_node(store)
        parts: list[int] = []
        create_claims = store.create_claims

        def create(placed: Any, policy: Any) -> list[Claim | None]:
            parts.append(len(placed))
            return create_claims(placed, policy)

        monkeypatch.setattr(store, "create_claims", create)
        monkeypatch.setattr(store, "create_claim", None)  # none is left to be claimed singly
        scheduler = Scheduler(store, ADMISSION_POLICY)
        requests = [ask(MEMORY_MB=1, claim=str(uuid.uuid4())) for _ in range(120)]
        found = scheduler.create_claims(requests)
        assert [isinstance(one, Claim) and one.uuid for one in found] == [r.uuid for r in requests]
        assert parts == [50, 50, 20]
        check_usage(store, "alpha")

    def test_a_dry_run_counts_those_before_and_keeps_nothing(self, store: SqlStore) -> None:
        seen: list[StoreEvent] = []

        class Observer:
            def committed(self, event: StoreEvent) -> None:
                seen.append(event)

        hosts = ("alpha", "beta")
        for host in hosts:
            make_node(store, host=host)
        scheduler = Scheduler(store, ADMISSION_POLICY)
        known = claim(store, ask(VCPU=1, MEMORY_MB=64))
        store._observers = (Observer(),)
        before = [node(store, host) for host in hosts]
        requests = [ask(VCPU=3, MEMORY_MB=64) for _ in range(6)]  # 6 and 7 CPUs are free
        for _ in range(2):
            tried = scheduler.try_claims(requests)
            assert [type(found).__name__ for found in tried] == [
                *["Claim"] * 4,
                *["ClaimRefusedError"] * 2,
            ]
        assert seen == []
        assert store.list_claims() == [known]
        assert [node(store, host) for host in hosts] == before
        created = scheduler.create_claims(requests)

        def describe(found: Claim | Exception) -> str:
            return f"{found.uuid} {found.host}" if isinstance(found, Claim) else str(found)

        assert list(map(describe, tried)) == list(map(describe, created))
        assert not any(isinstance(found, Claim) and found.is_repeated for found in tried)
        again = scheduler.try_claims(requests[:1])
        assert [isinstance(found, Claim) and found.is_repeated for found in again] == [True]

    def test_a_dry_run_that_loses_a_race_runs_again(self, store: SqlStore) -> None:
        make_node(store)
        request = ask(VCPU=1, MEMORY_MB=64)
        lost: list[Exception] = []

        def work(inner: SchedulerStore) -> list[Claim | None]:
            if not lost:
                lost.append(DBDuplicateEntry())
                inner.create_claims([place(request)], ADMISSION_POLICY)
                raise lost[0]
            return inner.create_claims([place(request)], ADMISSION_POLICY)

        (found,) = store.rehearse(work)
        assert (found and found.is_repeated) is False
        assert store.list_claims() == []
