"""Which losses of hosts the fleet survives."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger import packing
from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.db.schema import tables
from nodetracker.model.claim import ClaimKind, ClaimState
from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.tolerance import Verdict
from nodetracker.usecases.tolerance import ToleranceCheck
from tests.builders import ask, make_device, make_empty_values, make_guest
from tests.packing_fleets import POLICY
from tests.statements import count_statements
from tests.stores import SqliteStore
from tests.unit.usecases.test_plans import GOES, add_host_that_goes, add_node, carry_out, plan


def add_host(store, host, vcpus=8, guests=(), **values):
    add_node(store, host, make_empty_values(vcpus=vcpus, **values), guests)


def make_vm(number, cpus=1, memory_mb=512, **given):
    return make_guest(number, vcpu_milli=cpus * 1000, memory_mb=memory_mb, disk_mb=1024, **given)


def check(store, stored=()):
    """Return host -> answer: those that are found anew, and the stored ones that hold."""
    found = ToleranceCheck(store, POLICY).check({item.host: item for item in stored})
    return {item.host: item for item in (*stored, *found)}


def find_anew(store, stored):
    return [item.host for item in ToleranceCheck(store, POLICY).check(stored)]


@pytest.fixture
def store():
    """Hosts a and b have a guest of 2 CPUs each on 8."""
    store = SqliteStore()
    add_host(store, "a", guests=[make_vm(1, 2)])
    add_host(store, "b", guests=[make_vm(2, 2)])
    return store


def verdicts(answers):
    return {host: item.verdict for host, item in answers.items()}


def test_a_host_is_survived_if_all_its_guests_fit_on_the_others(store):
    found = check(store)
    assert set(verdicts(found).values()) == {Verdict.SURVIVED}
    (place,) = found["a"].plan.places
    assert (place.host, place.guests) == ("b", (make_guest(1).uuid,))


def test_a_loss_that_is_not_survived_names_the_guests_and_the_nearest_node(store):
    add_host(store, "big", vcpus=16, guests=[make_vm(3, 9, name="db"), make_vm(4, 1)])
    found = check(store)["big"]
    (lost,) = found.plan.lost
    assert (found.verdict, found.lost) == (Verdict.NOT_SURVIVED, "1 guest of 512 MiB")
    assert (lost.name, lost.uuid) == ("db", make_guest(3).uuid)
    assert lost.reason.startswith("no node was found for it; the nearest is n of ")


def test_guests_take_from_each_other_on_their_new_nodes():
    store = SqliteStore()
    add_host(store, "goes", vcpus=16, guests=[make_vm(n, 5) for n in range(1, 4)])
    for host in ("a", "b"):
        add_host(store, host)
    found = check(store)["goes"]
    assert (found.verdict, len(found.plan.lost)) == (Verdict.NOT_SURVIVED, 1)


@pytest.mark.parametrize("column", ["disabled", "maintenance", "forced_down"])
def test_no_guest_goes_to_a_host_out_of_use(store, column):
    set_service(store, "b", **{column: True})
    assert check(store)["a"].verdict is Verdict.NOT_SURVIVED


def test_a_host_that_is_down_already_counts_as_lost(store):
    set_service(store, "b", forced_down=True)
    assert list(check(store)) == ["a"]
    set_service(store, "b", forced_down=False, disabled=True)
    assert sorted(check(store)) == ["a", "b"]


def set_service(store, host, **columns):
    with store.engine.begin() as connection:
        connection.execute(
            sa.update(tables.services).where(tables.services.c.host == host).values(**columns)
        )


def test_a_guest_of_which_nobody_knows_what_it_requires_makes_the_answer_unknown(store):
    lost = UnresolvedUse(ResourceKind.GPU, "MIG-5f1c", "nothing explains it")
    add_host(store, "c", guests=[make_vm(7, pins=GuestPins(unresolved=(lost,)))])
    found = check(store)["c"]
    assert (found.verdict, found.lost) == (
        Verdict.UNKNOWN, "1 guest with unknown requirements",
    )  # fmt: skip


def test_claims_that_do_not_run_on_the_host_are_not_lost_with_it(store):
    store.create_claim(ask(VCPU=6), "a", "n", POLICY)
    assert check(store)["a"].verdict is Verdict.SURVIVED


def test_a_stored_plan_holds_while_nothing_changed(store):
    assert find_anew(store, check(store)) == []


def test_a_stored_plan_is_kept_where_its_destination_still_has_room(store):
    stored = check(store)
    store.create_claim(ask(VCPU=1), "b", "n", POLICY)
    found = check(store, stored.values())["a"]
    assert replace(found, plan=None) == replace(stored["a"], plan=None)
    (before,), (after,) = stored["a"].plan.places, found.plan.places
    assert after == replace(before, generation=before.generation + 1)
    assert find_anew(store, check(store, stored.values())) == []


def test_a_plan_is_made_anew_where_its_destination_is_full(store):
    stored = check(store)
    store.create_claim(ask(VCPU=5), "b", "n", POLICY)
    assert check(store, stored.values())["a"].verdict is Verdict.NOT_SURVIVED
    add_host(store, "c")
    (place,) = check(store, stored.values())["a"].plan.places
    assert place.host == "c"


def test_a_plan_is_made_anew_where_its_destination_is_out_of_use(store):
    add_host(store, "c")
    stored = check(store)
    (place,) = stored["a"].plan.places
    set_service(store, place.host, disabled=True)
    (other,) = check(store, stored.values())["a"].plan.places
    assert other.host != place.host


def test_a_plan_is_made_anew_for_other_guests(store):
    stored = check(store)
    confirmed = store.create_claim(ask(make_guest(1).uuid, VCPU=7), "a", "n", POLICY)
    store.confirm_claim(confirmed.uuid)
    assert check(store, stored.values())["a"].verdict is Verdict.NOT_SURVIVED


def test_a_stored_no_is_found_anew_once_a_node_has_more_room():
    store = SqliteStore()
    add_host(store, "a", guests=[make_vm(1, 6)])
    add_host(store, "b")
    claim = store.create_claim(ask(VCPU=4), "b", "n", POLICY)
    stored = check(store)
    assert stored["a"].verdict is Verdict.NOT_SURVIVED
    assert find_anew(store, stored) == []
    store.create_claim(ask(VCPU=1), "b", "n", POLICY)
    assert "a" not in find_anew(store, stored)
    store.abort_claim(claim.uuid)
    assert check(store, stored.values())["a"].verdict is Verdict.SURVIVED


def test_a_stored_no_is_found_anew_once_a_host_comes_up(store):
    set_service(store, "b", disabled=True)
    stored = check(store)
    assert stored["a"].verdict is Verdict.NOT_SURVIVED
    set_service(store, "b", disabled=False)
    stored = check(store, stored.values())
    assert stored["a"].verdict is Verdict.SURVIVED


def test_of_a_trait_only_its_hosts_and_the_guests_that_require_it_count(store):
    add_host(store, "x", traits=("CUSTOM_X",), guests=[make_vm(3)])
    wanted = ask(make_guest(3).uuid, VCPU=1, required_traits=["CUSTOM_X"])
    store.confirm_claim(store.create_claim(wanted, "x", "n", POLICY).uuid)
    (found,) = ToleranceCheck(store, POLICY).check_trait("CUSTOM_X")
    assert (found.host, found.verdict) == ("x", Verdict.NOT_SURVIVED)
    add_host(store, "y", traits=("CUSTOM_X",))
    found = ToleranceCheck(store, POLICY).check_trait("CUSTOM_X")
    assert {item.host: item.verdict for item in found} == dict.fromkeys("xy", Verdict.SURVIVED)


def test_pairs_lose_the_guests_of_both_hosts(store):
    (found,) = ToleranceCheck(store, POLICY).check_pairs()
    assert (found.host, found.verdict) == ("a and b", Verdict.NOT_SURVIVED)
    add_host(store, "c")
    found = {item.host: item for item in ToleranceCheck(store, POLICY).check_pairs()}
    assert found["a and b"].verdict is Verdict.SURVIVED
    assert {place.host for place in found["a and b"].plan.places} == {"c"}


def test_the_number_of_statements_does_not_depend_on_the_number_of_hosts(store):
    def count():
        with count_statements(store) as statements:
            check(store)
        return len(statements)

    before = count()
    for number in range(20):
        add_host(store, f"h{number}", guests=[make_vm(100 + number)])
    assert count() <= before


def test_guests_are_placed_or_lost_where_more_is_promised_than_a_node_has():
    store = SqliteStore()
    add_host(store, "goes", vcpus=100, guests=[make_vm(n, 1, 64) for n in range(70)])
    for host in ("a", "b"):
        add_host(store, host, vcpus=8, cpu_allocation_ratio=4.0)
    plan = check(store)["goes"].plan
    assert [len(place.guests) for place in plan.places] == [32, 32]
    assert len(plan.lost) == 6


def test_all_hosts_share_what_nodes_refuse(monkeypatch):
    tried, grant = [], packing.try_grant
    monkeypatch.setattr(
        packing, "try_grant", lambda request, *rest: tried.append(request) or grant(request, *rest)
    )
    store = SqliteStore()
    for number in range(12):
        device = make_device("0000:81:00.1", numa_node=0, parent_addr=None)
        values = make_empty_values(vcpus=8, **pci_columns([device]))
        guest = make_vm(number, project_id="p1")
        add_node(store, f"h{number}", values, [guest], [device])
        request = ask(guest.uuid, VCPU=1, MEMORY_MB=512, pci_requests=[{"alias": "nic"}])
        store.create_claim(request, f"h{number}", "n", POLICY)
        tried.clear()
    assert set(verdicts(check(store)).values()) == {Verdict.NOT_SURVIVED}
    assert len(tried) <= 12


def test_a_guest_counts_where_it_is_once_the_destination_of_its_migration_is_lost(store):
    add_host_that_goes(store, [ask(VCPU=1)])
    carry_out(store, plan(store))
    assert check(store)[GOES].plan.places == ()
    is_destination = tables.claims.c.kind == ClaimKind.MOVE
    with store.engine.begin() as connection:  # as it expires
        connection.execute(
            sa.update(tables.claims).where(is_destination).values(state=ClaimState.RELEASED)
        )
    answer = check(store)[GOES]
    assert answer.verdict is Verdict.SURVIVED
    assert [len(place.guests) for place in answer.plan.places] == [1]
