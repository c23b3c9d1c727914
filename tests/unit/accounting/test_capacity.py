"""A capacity jumps by its ratio to the largest one seen, or by being implausible."""

import pytest

from nodetracker.accounting.capacity import find_jump, is_held, keep_held
from nodetracker.model.fact import FactEntry, FactState
from tests.builders import NOW

SEEN = {"cpus": 16, "memory_mb": 1000, "local_gb": 0}


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("memory_mb", 3999, ""),
        ("memory_mb", 4000, "3.9 GiB of memory, at most 0.98 GiB before"),
        ("cpus", 64, "64 CPUs, at most 16 before"),
        ("local_gb", 500, ""),  # nothing was mounted before
        ("local_gb", 100 * 2**20, ""),
        ("local_gb", 100 * 2**20 + 1, "100 PiB of disk"),
        ("cpus", 1, ""),
        ("memory_mb", 0, ""),
    ],
)
def test_a_jump_is_fourfold_or_implausible_and_is_not_seen(name, amount, text):
    present = SEEN | {name: amount}
    expected = SEEN if text else SEEN | {name: max(amount, SEEN[name])}
    assert find_jump(SEEN, present) == (expected, text)


def test_each_amount_is_judged_by_itself():
    largest, text = find_jump(SEEN, {"cpus": 32, "memory_mb": 5000, "local_gb": 2**40})
    assert largest == {"cpus": 32, "memory_mb": 1000, "local_gb": 0}
    assert text == "4.9 GiB of memory, at most 0.98 GiB before; 1,024 EiB of disk"


@pytest.mark.parametrize(
    ("present", "text"),
    [
        ({"cpus": 8192, "memory_mb": 2**26}, ""),
        ({"cpus": 8193, "memory_mb": 2**26}, "8,193 CPUs"),
        ({"cpus": 8192, "memory_mb": 2**26 + 1}, "64 TiB of memory"),
    ],
)
def test_a_new_node_jumps_only_by_being_implausible(present, text):
    assert find_jump({}, present)[1] == text


def test_what_was_accepted_is_no_jump_and_returns_from_less_without_one():
    huge = {"cpus": 9000, "memory_mb": 2**27, "local_gb": 2**28}
    assert find_jump(huge, huge) == (huge, "")
    assert find_jump(huge, {"cpus": 1, "memory_mb": 1, "local_gb": 0}) == (huge, "")
    assert find_jump(huge, huge | {"cpus": 9001})[1] == "9,001 CPUs, at most 9,000 before"


def test_audits_keep_the_facts_of_a_held_node():
    fresh = {"cpu": FactEntry(FactState.FRESH, "sysfs", NOW)}
    held = {"cpu": FactEntry(FactState.UNKNOWN, "sysfs", NOW, "held: it jumped")}
    other = {"cpu": FactEntry(FactState.UNKNOWN, "sysfs", NOW, "upheld: no")}
    assert [is_held(facts) for facts in (fresh, held, other, {})] == [False, True, False, False]
    assert keep_held(fresh, held) == held
    assert keep_held(fresh, other) == fresh
