"""Spare hosts, which searches leave out and the ledger does not, in every store."""

import pytest

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.model.candidate import CandidateOrder
from nodetracker.model.change import EventKind
from nodetracker.model.claim import ClaimRequest, MigrationType
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.listing import HistoryQuery, ServiceQuery
from nodetracker.model.service import COMPUTE_BINARY, AdminState, ServiceChange
from nodetracker.model.settings import CandidatePolicy
from nodetracker.ports import Store
from nodetracker.usecases.candidates import CandidateFinder, evaluate_named
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import ADMISSION_POLICY, ask, claim, make_node, take_news

SPARE, OTHER = "alpha", "beta"


@pytest.fixture(autouse=True)
def fleet(store: Store) -> None:
    """A spare host and another one, with a node each."""
    for host in (SPARE, OTHER):
        make_node(store, host=host)
    store.set_service(SPARE, COMPUTE_BINARY, ServiceChange(spare=True, disabled_by="amy"))


def ask_to_move(store: Store, kind: str) -> ClaimRequest:
    source = claim(store, ask(VCPU=1), OTHER)
    move = {"type": kind, "source_claim": source.uuid}
    return ask(source.workload.uuid, VCPU=1, migration=move)


def find(store: Store, request: ClaimRequest) -> list[str]:
    policy = CandidatePolicy(60, order=CandidateOrder.NAMED)
    return sorted(node.host for node in store.find_candidates(request, policy, 10).nodes)


def test_a_search_finds_a_spare_host_for_claims_that_name_it_and_for_evacuations(
    store: Store,
) -> None:
    assert find(store, ask(VCPU=1)) == [OTHER]
    assert find(store, ask(VCPU=1, nodename="node-1")) == [OTHER]
    assert find(store, ask(VCPU=1, host=SPARE)) == [SPARE]
    for kind in MigrationType:
        expected = [SPARE, OTHER] if kind is MigrationType.EVACUATION else [OTHER]
        assert find(store, ask_to_move(store, kind.value)) == expected


def test_the_ledger_grants_what_names_it(store: Store) -> None:
    scheduler = Scheduler(store, ADMISSION_POLICY)
    assert scheduler.create_claim(ask(VCPU=1)).host == OTHER
    assert scheduler.create_claim(ask(VCPU=1, host=SPARE)).host == SPARE
    [placed] = scheduler.create_claims([ask(VCPU=1)])
    assert not isinstance(placed, Exception)
    assert placed.host == OTHER
    assert scheduler.create_migration(ask_to_move(store, "evacuation")).dest_host == SPARE
    with pytest.raises(ClaimRefusedError, match="spare: 1 of 2 nodes"):
        scheduler.create_migration(ask_to_move(store, "migration"))


def test_it_is_among_the_exclusions(store: Store) -> None:
    wanted = ask(VCPU=10_000)
    found = store.count_exclusions(wanted, ADMISSION_POLICY)
    assert found.counts == {AdmissionCheck.SPARE: 1, AdmissionCheck.CPU: 2}
    assert found.nearest is not None
    assert found.nearest.host == OTHER
    named = store.count_exclusions(ask(VCPU=10_000, host=SPARE), ADMISSION_POLICY)
    assert named.counts == {AdmissionCheck.CPU: 1}
    finder = CandidateFinder(store, ADMISSION_POLICY)
    [(_, _, admission)] = evaluate_named(store, finder, ask(VCPU=1), SPARE)
    assert admission.reasons == (f"host {SPARE} is spare",)


def test_it_is_decided_beside_what_the_version_is_of(store: Store) -> None:
    (service,) = store.list_services(SPARE)
    assert service.spare
    change = ServiceChange(spare=False, if_admin_version=service.admin_version)
    after = store.set_service(SPARE, COMPUTE_BINARY, change)
    assert (after.spare, after.admin_version) == (False, service.admin_version)
    assert find(store, ask(VCPU=1)) == [SPARE, OTHER]
    lines = store.list_history_page(HistoryQuery(host=SPARE, kinds=(EventKind.SERVICE,))).items
    diffs = [line.diff for line in lines if line.diff["event"] == "changed"]
    assert [diff["spare"] for diff in diffs] == [[True, False], [False, True]]
    assert diffs[1]["by"] == "amy"


def test_its_agent_learns_of_it(store: Store) -> None:
    assert take_news(store, SPARE).admin == AdminState(spare=True)
    assert take_news(store, OTHER).admin == AdminState()
    assert store.sum_versions(SPARE, COMPUTE_BINARY).admin == AdminState(spare=True)


def test_services_are_listed_by_it(store: Store) -> None:
    for is_spare, host in ((True, SPARE), (False, OTHER)):
        page = store.list_service_page(ServiceQuery(is_spare=is_spare))
        assert [service.host for service in page.items] == [host]
