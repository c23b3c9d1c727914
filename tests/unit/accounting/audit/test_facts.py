import pytest

from nodetracker.accounting.audit.view import find_unseen_kinds, track_facts
from nodetracker.model.fact import Fact, FactEntry, FactState, failed, fresh
from nodetracker.model.guest import GuestListing, WorkloadKind
from tests.builders import NOW, later

FRESH = FactEntry(FactState.FRESH, "s", later(-3000))
HELD = FactEntry(FactState.HELD, "s", later(-300), "boom")
UNKNOWN = FactEntry(FactState.UNKNOWN, "s", later(-5000), "boom")


@pytest.mark.parametrize(
    ("stored", "fact", "expected"),
    [
        (None, fresh("s", 1), FactEntry(FactState.FRESH, "s", NOW)),
        (FRESH, fresh("s", 1), FRESH),
        (HELD, fresh("s", 1), FactEntry(FactState.FRESH, "s", NOW)),
        (None, failed("s", "boom"), FactEntry(FactState.UNKNOWN, "s", NOW, "boom")),
        (FRESH, failed("s", "boom"), FactEntry(FactState.HELD, "s", NOW, "boom")),
        (HELD, failed("s", "boom"), HELD),
        (UNKNOWN, failed("s", "boom"), UNKNOWN),
        (
            FactEntry(FactState.HELD, "s", later(-601), "boom"),
            failed("s", "boom"),
            FactEntry(FactState.UNKNOWN, "s", NOW, "boom"),
        ),
    ],
    ids=[
        "a first good reading is fresh from now",
        "a fact that stays fresh keeps its time",
        "a held fact that is read again is fresh from now",
        "a fact that was never read is unknown immediately",
        "a fact that fails is held from now",
        "a held fact keeps its time",
        "an unknown fact stays so and keeps its time",
        "a fact held for longer than the expiry is unknown",
    ],
)
def test_a_failing_fact_is_held_and_unknown_after_its_expiry(stored, fact, expected):
    entries = {} if stored is None else {"cpu": stored}
    assert track_facts({"cpu": fact}, entries, NOW, 600) == {"cpu": expected}


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (fresh("s", GuestListing()), ()),
        (failed("s", "boom"), tuple(WorkloadKind)),
        (Fact("s", GuestListing(unreadable=("vm-1: boom",)), "vm-1: boom"), ()),
        (
            Fact("s", GuestListing((), unseen_kinds=frozenset({WorkloadKind.CONTAINER})), "boom"),
            (WorkloadKind.CONTAINER,),
        ),
        (Fact("s", GuestListing(has_unread=True), "vm-1: boom"), tuple(WorkloadKind)),
    ],
    ids=[
        "all are listed",
        "none is listed",
        "one is unreadable",
        "one source of two fails",
        "one was never read",
    ],
)
def test_kinds_are_unseen_while_their_source_lists_none(fact, expected):
    assert find_unseen_kinds(fact) == expected


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, (FactState.HELD, NOW)),
        (FRESH, (FactState.HELD, NOW)),
        (HELD, (FactState.HELD, HELD.since)),
        (FactEntry(FactState.HELD, "s", later(-9000), "boom"), (FactState.HELD, later(-9000))),
        (UNKNOWN, (FactState.HELD, NOW)),
    ],
)
def test_guests_that_are_all_listed_are_held_without_expiry_though_one_is_unreadable(
    stored, expected
):
    fact = Fact("s", GuestListing(), "domain web: its emulator does not answer")
    entry = track_facts({"guests": fact}, {} if stored is None else {"guests": stored}, NOW, 600)
    assert (entry["guests"].state, entry["guests"].since) == expected
    part = Fact("s", GuestListing(unseen_kinds=frozenset({WorkloadKind.CONTAINER})), "boom")
    old = {"guests": FactEntry(FactState.HELD, "s", later(-9000), "boom")}
    assert track_facts({"guests": part}, old, NOW, 600)["guests"].state is FactState.UNKNOWN
