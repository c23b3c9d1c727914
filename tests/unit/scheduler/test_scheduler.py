import dataclasses
import itertools
import uuid

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.amounts import Amounts
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    NodeBusyError,
    NotFoundError,
    RefusedError,
    RequestError,
    StoreUnavailableError,
)
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.settings import SchedulerSettings
from nodetracker.usecases import candidates
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, delete
from tests.refusals import refusing


@pytest.fixture
def fake_fleet(empty_fleet):
    fake_fleet = empty_fleet
    fake_fleet.add("h1", "large", vcpus=8)
    fake_fleet.add("h2", "middle", vcpus=6)
    fake_fleet.add("h3", "small", vcpus=1)
    return fake_fleet


class Raced:
    """A store in which others act after the candidates were read."""

    def __init__(self, store):
        self.store = store
        self.actions = []
        self.asked = []

    def __getattr__(self, name):
        return getattr(self.store, name)

    def ask(self, name, request, host, nodename, *rest):
        while self.actions:
            self.actions.pop()()
        self.asked.append((nodename, *rest[1:]))
        return getattr(self.store, name)(request, host, nodename, *rest)

    def create_claim(self, *arguments):
        return self.ask("create_claim", *arguments)

    def create_migration(self, *arguments):
        return self.ask("create_migration", *arguments)

    def try_claim(self, *arguments):
        return self.ask("try_claim", *arguments)


@pytest.fixture
def raced(fake_fleet):
    return Raced(fake_fleet.store)


@pytest.fixture
def scheduler(raced):
    return Scheduler(raced, ADMISSION_POLICY)


@pytest.mark.parametrize("fleet", ["empty_fleet", "fake_fleet"])
def test_a_request_that_no_node_could_grant_is_invalid_even_without_candidates(fleet, request):
    scheduler = Scheduler(request.getfixturevalue(fleet).store, ADMISSION_POLICY)
    move = {"migration": {"type": "migration", "source_claim": str(uuid.uuid4())}}
    for call, body in (
        (scheduler.create_claim, {}),
        (scheduler.create_claim, {"VCPU": 1, **move}),
        (scheduler.try_claim, {}),
        (scheduler.try_claim, {"VCPU": 1, **move}),
        (scheduler.create_migration, move),
    ):
        with pytest.raises(RequestError):
            call(ask(**body))


def test_the_best_candidate_takes_it(scheduler):
    assert scheduler.create_claim(ask(VCPU=1)).nodename == "large"


def fill(fake_fleet, host, nodename, cpus):
    return lambda: fake_fleet.store.create_claim(ask(VCPU=cpus), host, nodename, ADMISSION_POLICY)


def test_the_next_one_takes_what_the_best_refuses_meanwhile(fake_fleet, raced, scheduler):
    raced.actions = [fill(fake_fleet, "h1", "large", 7)]
    assert scheduler.create_claim(ask(VCPU=2)).nodename == "middle"
    raced.actions = [fill(fake_fleet, "h2", "middle", 3)]
    fake_fleet.add("h4", "late", vcpus=2)
    _, nodename, answer = scheduler.try_claim(ask(VCPU=2))
    assert (nodename, answer.reasons) == ("late", ())


def test_claims_choose_among_the_best_of_the_subset_by_their_uuids(fake_fleet):
    settings = SchedulerSettings(host_subset_size=2)
    scheduler = Scheduler(fake_fleet.store, ADMISSION_POLICY, settings)
    requests = [ask(claim=str(uuid.UUID(int=number)), VCPU=1) for number in range(16)]
    tried = [scheduler.try_claim(request)[1] for request in requests]
    assert set(tried) == {"large", "middle"}
    assert [scheduler.try_claim(request)[1] for request in requests] == tried
    listed = [candidate.nodename for candidate in scheduler.select(requests[0])]
    assert listed == ["large", "middle", "small"]


@pytest.mark.parametrize("call", ["create_claim", "try_claim"])
def test_when_none_takes_it_every_reason_is_told_with_its_node(fake_fleet, raced, scheduler, call):
    raced.actions = [fill(fake_fleet, "h1", "large", 8), fill(fake_fleet, "h2", "middle", 5)]
    with pytest.raises(ClaimRefusedError) as caught:
        getattr(scheduler, call)(ask(VCPU=2, MEMORY_MB=1))  # which the search compares in full
    (large, of_large), (middle, of_middle), others = caught.value.parts
    assert (large, of_large.free, of_large.requested) == ("h1/large: ", 0, 2)
    assert (middle, of_middle.free, of_middle.requested) == ("h2/middle: ", 1, 2)
    assert others == ("others: cpu: 1 of 3 nodes",)


def test_without_a_candidate_the_filters_say_why(scheduler):
    for call in (scheduler.create_claim, scheduler.try_claim):
        with pytest.raises(ClaimRefusedError, match="no candidate: cpu: 3 of 3 nodes") as caught:
            call(ask(VCPU=9))
        assert caught.value.reasons[1:] == ("nearest: h1/large lacks 1 VCPU",)


def test_a_node_that_accepts_it_only_when_the_others_are_counted_is_reported(fake_fleet):
    def set_disabled(is_disabled):
        for host in ("h1", "h2", "h3"):
            change = ServiceChange(disabled=is_disabled)
            fake_fleet.store.set_service(host, COMPUTE_BINARY, change)

    class Late:
        def __getattr__(self, name):
            return getattr(fake_fleet.store, name)

        def count_exclusions(self, *arguments):
            set_disabled(False)
            return fake_fleet.store.count_exclusions(*arguments)

    set_disabled(True)
    with pytest.raises(ClaimRefusedError) as caught:
        Scheduler(Late(), ADMISSION_POLICY).create_claim(ask(VCPU=1))
    assert caught.value.reasons == (
        "no candidate: a node that accepts it has appeared since; try again",
    )


@pytest.mark.parametrize("call", ["create_claim", "try_claim"])
def test_a_node_that_is_gone_by_then_is_passed_over(fake_fleet, raced, scheduler, call):
    (record,) = fake_fleet.store.load_nodes("h1")
    changes = [delete(record)]
    agent = fake_fleet.agents["h1"]
    raced.actions = [lambda: fake_fleet.store.apply_changes(agent, changes, 60)]
    getattr(scheduler, call)(ask(VCPU=1))
    assert [nodename for nodename, *_ in raced.asked] == ["large", "middle"]


def test_as_many_are_evaluated_as_are_asked_and_twice_as_many_after_refusals(
    fake_fleet, raced, scheduler, monkeypatch
):
    """The search compares no memory of a request without any, so that nodes are in doubt."""
    evaluated = []
    load = fake_fleet.store.load_ledger_nodes

    def count(node_ids, request):
        evaluated.append(len(node_ids))
        return load(node_ids, request)

    monkeypatch.setattr(raced, "load_ledger_nodes", count, raising=False)
    scheduler.create_claim(ask(VCPU=1))
    assert evaluated == [1]
    evaluated.clear()
    raced.actions = [fill(fake_fleet, "h1", "large", 8)]
    scheduler.create_claim(ask(VCPU=1))
    assert evaluated == [1, 2]
    evaluated.clear()
    assert len(scheduler.select(ask(VCPU=1))) == 3
    assert evaluated == [3], "all that are found are wanted"


class TestLockedNodes:
    """Nodes whose rows are locked are asked after all others."""

    @pytest.fixture
    def scheduler(self, raced):
        return Scheduler(raced, ADMISSION_POLICY)

    @pytest.fixture
    def lock(self, raced, monkeypatch):
        locked = set()

        def ask_unless_locked(name, request, host, nodename, policy, skip_locked=False):
            raced.asked.append((nodename, skip_locked))
            while raced.actions and not skip_locked:
                raced.actions.pop()()
            if skip_locked and nodename in locked:
                raise NodeBusyError(host, nodename)
            return getattr(raced.store, name)(request, host, nodename, policy, skip_locked)

        monkeypatch.setattr(raced, "ask", ask_unless_locked)
        return locked.add

    def test_the_next_one_is_asked_first(self, raced, scheduler, lock):
        lock("large")
        assert scheduler.create_claim(ask(VCPU=1)).nodename == "middle"
        assert raced.asked == [("large", True), ("middle", True)]

    def test_they_are_waited_for_when_no_other_has_room(self, raced, scheduler, lock):
        lock("large")
        lock("middle")
        granted = scheduler.create_claim(ask(VCPU=6)).nodename
        (first, second, waited) = raced.asked
        assert {first, second} == {("large", True), ("middle", True)}
        assert waited == (first[0], False) == (granted, False)

    def test_the_third_is_asked_before_two_of_them(self, raced, scheduler, lock):
        lock("large")
        lock("middle")
        assert scheduler.create_claim(ask(VCPU=1)).nodename == "small"
        assert {*raced.asked} == {("large", True), ("middle", True), ("small", True)}

    def test_each_is_waited_for_until_one_has_room(self, fake_fleet, raced, scheduler, lock):
        lock("large")
        lock("middle")
        hosts = {"large": "h1", "middle": "h2"}

        def fill_first():  # by who has locked it
            first = raced.asked[-1][0]
            fill(fake_fleet, hosts[first], first, 3)()

        raced.actions = [fill_first]
        granted = scheduler.create_claim(ask(VCPU=6)).nodename
        (first,) = hosts.keys() - {granted}
        assert raced.asked[-2:] == [(first, False), (granted, False)]

    def test_of_a_move_as_well(self, raced, scheduler, lock):
        source = scheduler.create_claim(ask(VCPU=1))
        lock("middle")
        raced.asked.clear()
        migration = scheduler.create_migration(ask_move(source, "migration", VCPU=6))
        assert migration.dest_node == "middle"
        assert set(raced.asked[:2]) == {("large", True), ("middle", True)}
        assert raced.asked[2:] == [("middle", False)]


class TestParts:
    """Some candidates are read and weighed, then others, until one grants the claim."""

    @pytest.fixture
    def read(self, raced):
        """Return the sizes of the parts that were read."""
        read = []

        def find(request, policy, limit, after=None):
            read.append(limit)
            return raced.store.find_candidates(request, policy, limit, after)

        raced.find_candidates = find
        return read

    @pytest.fixture
    def scheduler(self, raced, monkeypatch):
        monkeypatch.setattr(candidates, "LATER_PART", 3)
        return Scheduler(raced, ADMISSION_POLICY, SchedulerSettings(nodes_to_weigh=2))

    def test_the_best_node_of_a_part_is_taken(self, fake_fleet, read, scheduler):
        requests = [ask(claim=str(uuid.UUID(int=number)), VCPU=1) for number in range(16)]
        tried = [scheduler.try_claim(request)[1] for request in requests]
        assert set(tried) == {"large", "middle"}
        assert [scheduler.try_claim(request)[1] for request in requests] == tried
        assert set(read) == {2}

    def test_later_parts_are_larger(self, fake_fleet, read, scheduler):
        for number in range(4):
            fake_fleet.add(f"f{number}", "n", inventory={"CUSTOM_FPGA": {"total": 0}})
        with pytest.raises(ClaimRefusedError, match="^no candidate: classes: 7 of 7 nodes"):
            scheduler.create_claim(ask(CUSTOM_FPGA=1))
        assert read == [2, 3]

    def test_all_nodes_of_a_name_are_weighed(self, fake_fleet, read, scheduler):
        for number in range(4):
            fake_fleet.add(f"f{number}", "n", vcpus=2 + number)
        requests = [ask(VCPU=1, nodename="n") for _ in range(8)]
        assert {scheduler.try_claim(request)[0] for request in requests} == {"f3"}
        assert len(read) == len(requests)

    def test_all_nodes_are_weighed_if_the_number_is_0(self, raced, read):
        settings = SchedulerSettings(nodes_to_weigh=0)
        scheduler = Scheduler(raced, ADMISSION_POLICY, settings)
        assert {scheduler.try_claim(ask(VCPU=1))[1] for _ in range(8)} == {"large"}

    def test_a_part_has_at_least_the_subset(self, raced, read):
        settings = SchedulerSettings(nodes_to_weigh=1, host_subset_size=3)
        Scheduler(raced, ADMISSION_POLICY, settings).try_claim(ask(VCPU=1))
        assert read == [3]

    def test_the_next_part_is_asked_when_the_ledger_s_rule_leaves_none_of_a_part(
        self, fake_fleet, raced, scheduler
    ):
        inventory = {"CUSTOM_FPGA": {"total": 1}}
        for number in range(4):
            fake_fleet.add(f"f{number}", "n", inventory=inventory, vcpus=20 - number)
        for number in range(3):
            request = ask(CUSTOM_FPGA=1)
            fake_fleet.store.create_claim(request, f"f{number}", "n", ADMISSION_POLICY)
        assert scheduler.create_claim(ask(CUSTOM_FPGA=1, VCPU=1)).host == "f3"
        assert len(raced.asked) == 1
        with pytest.raises(
            ClaimRefusedError, match="^no candidate: classes: 7 of 7 nodes; nearest"
        ):
            scheduler.create_claim(ask(CUSTOM_FPGA=1))

    def test_only_the_best_of_a_part_are_evaluated_by_the_rule(
        self, fake_fleet, raced, scheduler, monkeypatch
    ):
        monkeypatch.setattr(candidates, "EVALUATED", 1)
        for number in range(2):
            fake_fleet.add(f"f{number}", "n", inventory={"CUSTOM_FPGA": {"total": 1}})
        loaded = []

        def load(node_ids, request):
            loaded.append(len(node_ids))
            return fake_fleet.store.load_ledger_nodes(node_ids, request)

        raced.load_ledger_nodes = load
        assert scheduler.create_claim(ask(CUSTOM_FPGA=1))
        assert loaded == [1]

    @pytest.mark.parametrize("of_all", [False, True])
    def test_further_nodes_of_a_part_are_evaluated_when_those_before_refuse(
        self, fake_fleet, raced, monkeypatch, of_all
    ):
        monkeypatch.setattr(candidates, "EVALUATED", 1)
        scheduler = Scheduler(raced, ADMISSION_POLICY)
        for number in range(4):
            fake_fleet.add(f"f{number}", "n", inventory={"CUSTOM_FPGA": {"total": 1}})
        request = ask(CUSTOM_FPGA=1)
        listed = [node.host for node in scheduler.select(request, None, of_all)]
        assert sorted(listed) == ["f0", "f1", "f2", "f3"]
        for host in listed[:3]:
            fake_fleet.store.create_claim(ask(CUSTOM_FPGA=1), host, "n", ADMISSION_POLICY)
        assert [node.host for node in scheduler.select(request, None, of_all)] == listed[3:]
        assert scheduler.create_claim(request).host == listed[3]

    @pytest.mark.parametrize("of_all", [False, True])
    @pytest.mark.parametrize("limit", [1, 2, 3, 4])
    def test_pages_go_on_where_the_one_before_ended_in_its_part(
        self, fake_fleet, scheduler, limit, of_all
    ):
        """Nodes that refuse are among them, so that pages end within parts, and at their ends."""
        for number in range(9):
            fake_fleet.add(f"f{number}", "n", inventory={"CUSTOM_FPGA": {"total": number % 3}})
        request = ask(CUSTOM_FPGA=1)
        pages, after = [], None
        while not pages or after is not None:
            page, after = scheduler.select_page(request, limit, of_all, after)
            pages.append([node.host for node in page])
            assert len(pages) < 9, "the pages do not get on"
        assert sorted(itertools.chain(*pages)) == ["f1", "f2", "f4", "f5", "f7", "f8"]
        assert all(len(page) == limit for page in pages[:-1])

    def test_the_next_part_is_asked_when_others_filled_the_first(
        self, fake_fleet, raced, scheduler
    ):
        def fill_all(*nodes):
            raced.actions = [fill(fake_fleet, *node) for node in nodes]

        fill_all(("h1", "large", 8), ("h2", "middle", 6))
        assert scheduler.create_claim(ask(VCPU=1)).nodename == "small"
        assert {nodename for nodename, _ in raced.asked} >= {"small"}

    def test_nodes_that_accept_no_claims_are_not_counted(self, fake_fleet, read, scheduler):
        for host in ("h1", "h2"):
            fake_fleet.store.set_service(host, COMPUTE_BINARY, ServiceChange(disabled=True))
        assert [node.nodename for node in scheduler.select(ask(VCPU=1), 2)] == ["small"]
        assert scheduler.create_claim(ask(VCPU=1)).nodename == "small"
        assert read == [2, 2]

    @pytest.mark.parametrize("of_all", [False, True])
    def test_a_list_has_the_candidates_of_all_pages(self, scheduler, monkeypatch, of_all):
        monkeypatch.setattr(candidates, "PAGE_SIZE", 2)
        listed = [node.nodename for node in scheduler.select(ask(VCPU=1), None, of_all)]
        assert sorted(listed) == ["large", "middle", "small"]
        if of_all:
            assert listed == ["large", "middle", "small"]

    def test_a_list_weighs_a_part_or_all_nodes(self, scheduler):
        requests = [ask(claim=str(uuid.UUID(int=number)), VCPU=1) for number in range(16)]
        first = {scheduler.select(request, 1)[0].nodename for request in requests}
        assert first == {"large", "middle"}
        assert {scheduler.select(request, 1, True)[0].nodename for request in requests} == {"large"}


class TestTheSameRequest:
    """A request that was granted before returns its claim, wherever it would go now."""

    def test_returns_the_same_claim(self, fake_fleet, scheduler):
        request = ask(claim=str(uuid.uuid4()), VCPU=1)
        granted = scheduler.create_claim(request)
        fill(fake_fleet, granted.host, granted.nodename, 7)()
        assert scheduler.create_claim(request) == granted
        with pytest.raises(ClaimConflictError):
            scheduler.create_claim(ask(claim=granted.uuid, VCPU=2))
        assert len(fake_fleet.store.list_claims()) == 2

    def test_does_so_without_a_candidate(self, fake_fleet, scheduler):
        request = ask(claim=str(uuid.uuid4()), VCPU=8)
        granted = scheduler.create_claim(request)
        assert scheduler.select(request) == []
        assert scheduler.create_claim(request) == granted
        with pytest.raises(ClaimConflictError):
            scheduler.create_claim(ask(claim=granted.uuid, VCPU=9))

    def test_is_refused_once_its_claim_is_released(self, fake_fleet, scheduler):
        request = ask(claim=str(uuid.uuid4()), VCPU=1)
        scheduler.create_claim(request)
        fake_fleet.store.abort_claim(request.uuid)
        with pytest.raises(RefusedError, match=r"is released \(aborted\)"):
            scheduler.create_claim(request)


def test_a_request_that_names_a_node_asks_only_that_node(fake_fleet, scheduler):
    request = ask(host="h3", VCPU=9)
    host, nodename, answer = scheduler.try_claim(request)
    assert (host, nodename) == ("h3", "small")
    assert answer.reasons
    with pytest.raises(ClaimRefusedError) as caught:
        scheduler.create_claim(request)
    assert caught.value.reasons == answer.reasons
    assert scheduler.create_claim(ask(host="h3", nodename="small", VCPU=1)).nodename == "small"
    with pytest.raises(NotFoundError, match="host h9 has no nodes"):
        scheduler.create_claim(ask(host="h9", VCPU=1))


def test_a_store_that_fails_is_no_refusal(fake_fleet):
    class Away:
        def __getattr__(self, name):
            return getattr(fake_fleet.store, name)

        def create_claim(self, *arguments):
            raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        Scheduler(Away(), ADMISSION_POLICY).create_claim(ask(VCPU=1))


def test_an_overfull_node_takes_what_costs_nothing_of_it(empty_fleet):
    empty_fleet.add(charge=Amounts(99000))
    scheduler = Scheduler(empty_fleet.store, ADMISSION_POLICY)
    assert scheduler.create_claim(ask(DISK_GB=1)).nodename == "n1"


def ask_move(source, kind, **resources):
    body = {"workload": {"uuid": source.workload.uuid}, "resources": resources}
    return parse_claim_request(body | {"migration": {"type": kind, "source_claim": source.uuid}})


class TestMoves:
    def test_a_move_takes_the_best_node_that_may_take_it(self, fake_fleet, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        assert source.nodename == "large"
        migration = scheduler.create_migration(ask_move(source, "migration", VCPU=1))
        assert (migration.source_node, migration.dest_node) == ("large", "middle")

    @pytest.mark.parametrize(
        ("kind", "destinations"),
        [
            ("migration", ["middle"]),
            ("evacuation", ["middle"]),
            ("resize", ["large", "middle"]),
            ("rebuild", ["large"]),
        ],
    )
    def test_a_list_has_the_nodes_that_may_be_its_destination(self, scheduler, kind, destinations):
        source = scheduler.create_claim(ask(VCPU=1))
        listed = scheduler.select(ask_move(source, kind, VCPU=2))
        assert [node.nodename for node in listed] == destinations

    def test_a_resize_may_stay_and_a_rebuild_has_to(self, fake_fleet, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        grown = scheduler.create_migration(ask_move(source, "resize", VCPU=2))
        assert grown.dest_node == "large"
        other = fake_fleet.store.create_claim(ask(VCPU=1), "h3", "small", ADMISSION_POLICY)
        with refusing(VCPU=0):
            scheduler.create_migration(ask_move(other, "rebuild", VCPU=1))

    def test_nodes_are_screened_for_the_kind_of_the_source(self, empty_fleet):
        empty_fleet.add("h1", "here")
        empty_fleet.add("h2", "there", overhead_mb=8000)
        scheduler = Scheduler(empty_fleet.store, ADMISSION_POLICY)
        source = scheduler.create_claim(ask(kind="container", host="h1", MEMORY_MB=1024))
        request = ask_move(source, "migration", MEMORY_MB=1024)
        assert [node.nodename for node in scheduler.select(request)] == ["there"]
        assert scheduler.explain(request).counts == {}
        assert scheduler.create_migration(request).dest_node == "there"

    def test_the_same_request_answers_the_same_migration(self, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        request = ask_move(source, "migration", VCPU=1)
        migration = scheduler.create_migration(request)
        assert scheduler.create_migration(request) == migration

    def test_does_so_without_a_candidate_and_after_it_ended(self, fake_fleet, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        request = ask_move(source, "migration", VCPU=6)
        migration = scheduler.create_migration(request)
        fill(fake_fleet, "h1", "large", 7)()
        assert scheduler.select(request) == []
        assert scheduler.create_migration(request) == migration
        fake_fleet.store.confirm_migration(migration.uuid)
        assert scheduler.create_migration(request).uuid == migration.uuid

    def test_a_rebuild_returns_its_migration_too(self, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        request = ask_move(source, "rebuild", VCPU=1)
        migration = scheduler.create_migration(request)
        assert scheduler.create_migration(request) == migration

    def test_no_room_names_every_node(self, scheduler):
        source = scheduler.create_claim(ask(VCPU=1))
        with pytest.raises(ClaimRefusedError) as caught:
            scheduler.create_migration(ask_move(source, "migration", VCPU=7))
        assert caught.value.reasons == (
            "h1/large: node large of host h1 already has the workload",
            "others: cpu: 2 of 3 nodes",
            "nearest: h2/middle lacks 1 VCPU",
        )

    def test_a_source_that_cannot_be_moved_is_refused_by_the_first_candidate(
        self, fake_fleet, raced, scheduler
    ):
        source = scheduler.create_claim(ask(VCPU=1))
        fake_fleet.store.abort_claim(source.uuid)
        raced.asked.clear()
        with pytest.raises(ClaimRefusedError) as caught:
            scheduler.create_migration(ask_move(source, "migration", VCPU=1))
        assert caught.value.reasons == (f"claim {source.uuid} is released (aborted)",)
        assert len(raced.asked) == 1

    def test_what_is_not_there_is_said_so(self, scheduler):
        source = dataclasses.replace(scheduler.create_claim(ask(VCPU=1)), uuid=str(uuid.uuid4()))
        for kind in ("rebuild", "migration"):
            with pytest.raises(ClaimRefusedError, match=f"no such claim: {source.uuid}"):
                scheduler.create_migration(ask_move(source, kind, VCPU=1))
        with pytest.raises(RequestError, match="migration"):
            scheduler.create_migration(ask(VCPU=1))
