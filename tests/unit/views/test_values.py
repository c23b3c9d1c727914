"""Amounts and ages for people: the page and the terminal show the same text for the same value."""

import json
import re
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodetracker.model.amount_text import Role, render_of, render_parts, render_resource
from nodetracker.model.amounts import DISK, MEMORY, PCPU, VCPU
from nodetracker.views.values import render_age
from tests.goldens import check_golden

USED, FREE, REQUESTED = Role
GIB, TIB = 1024, 1024**2
AMOUNTS = (  # resource class, amount in its unit, role, amount beside it and its role
    (MEMORY, 0, USED, None),
    (MEMORY, 512, USED, None),
    (MEMORY, 1000, USED, None),
    (MEMORY, 1536, USED, None),
    (MEMORY, 65536, USED, None),
    (MEMORY, 1000 * GIB, USED, None),
    (MEMORY, TIB, USED, None),
    (MEMORY, -512, USED, None),
    (MEMORY, -1.5 * GIB, USED, None),
    (MEMORY, 1000 * GIB, USED, (TIB, USED)),
    (MEMORY, 17 * GIB, USED, (5 * TIB, USED)),
    (MEMORY, 600 * GIB, USED, (5 * TIB, USED)),
    (MEMORY, 0, USED, (TIB, USED)),
    (MEMORY, 127.5 * GIB, FREE, None),
    (MEMORY, 128 * GIB, REQUESTED, None),
    (MEMORY, 127.5 * GIB, FREE, (128 * GIB, REQUESTED)),
    (MEMORY, 1000 * GIB, FREE, (TIB, REQUESTED)),
    (MEMORY, 65024, FREE, (999_999, REQUESTED)),
    (MEMORY, 900, FREE, (2000, REQUESTED)),
    (MEMORY, 10 * GIB - 1, FREE, None),
    (MEMORY, -1, FREE, None),
    (MEMORY, 2000, REQUESTED, None),
    (MEMORY, 1000 * GIB, REQUESTED, None),
    (MEMORY, 1536 * GIB, REQUESTED, None),
    (MEMORY, 128 * GIB, REQUESTED, (2 * TIB, USED)),
    (DISK, 0.5, USED, None),
    (DISK, 100, USED, None),
    (DISK, 1677721.6, USED, (4 * TIB, USED)),
    (DISK, 4 * TIB, USED, None),
    (DISK, 99.99, FREE, (100, REQUESTED)),
    (VCPU, 0, USED, None),
    (VCPU, 12.25, USED, None),
    (VCPU, 0.15, USED, None),
    (VCPU, 0.004, USED, None),
    (VCPU, 99.96, USED, None),
    (VCPU, 647.877, USED, (5504, USED)),
    (VCPU, 5504, USED, None),
    (VCPU, 92434.3, USED, (256000, USED)),
    (VCPU, 0.57, FREE, None),
    (VCPU, 4.6, FREE, None),
    (VCPU, 163565.7, FREE, None),
    (VCPU, -0.25, FREE, None),
    (VCPU, 1.125, REQUESTED, None),
    (VCPU, 2000, REQUESTED, None),
    (PCPU, 64, FREE, None),
    ("CUSTOM_FPGA", 12345, USED, None),
    ("CUSTOM_FPGA", None, USED, None),
)
AGES = (
    0, 12, 119, 120, 3599, 3600, 4860, 7199, 35_999, 36_000, 50_000, 86_399, 86_400, 162_000,
    863_999, 864_000, 1_000_000, 100_000_000,
)  # fmt: skip


def test_the_page_and_the_terminal_render_amounts_and_ages_alike() -> None:
    """The page's test reads the same file."""
    amounts = [
        [*case, render_resource(resource, amount, role, beside)]
        for case in AMOUNTS
        for resource, amount, role, beside in [case]
    ]
    ages = [[seconds, render_age(seconds)] for seconds in AGES]
    lines = [
        f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in rows) + "\n  ]"
        for name, rows in (("amounts", amounts), ("ages", ages))
    ]
    check_golden("amounts.json", "{\n" + ",\n".join(lines) + "\n}\n")


_UNITS = {"": Decimal(1), **{unit: Decimal(1024) ** n for n, unit in enumerate("MGTPE")}}


def parse(text: str) -> Decimal:
    """Return an amount of MiB, or a number without a unit."""
    found = re.fullmatch(r"(-?[0-9,]+(?:\.[0-9]{1,3})?)(?: ([MGTPE])iB)?", text)
    assert found is not None, text
    assert not found[1].startswith("-0") or Decimal(found[1]), text
    return Decimal(found[1].replace(",", "")) * _UNITS[found[2] or ""]


amounts = st.integers(-(2**40), 2**40) | st.integers(-(2**20), 2**20)
resources = st.sampled_from([MEMORY, VCPU, DISK])
besides = st.none() | st.tuples(amounts, st.sampled_from(Role))


def exact(resource: str, parts: int) -> Decimal:
    return Decimal(parts) / (1000 if resource == VCPU else 1)


@example(resource=DISK, one=2**34 - 989, other=2**34 - 989, is_beside=False)  # no float in GiB
@given(resources, amounts, amounts, st.booleans())
def test_less_free_than_requested_reads_as_less(
    resource: str, one: int, other: int, is_beside: bool
) -> None:
    free, requested = sorted((one, other))
    beside = (requested, REQUESTED) if is_beside else None
    shown = parse(render_parts(resource, free, FREE, beside))
    wanted = parse(render_parts(resource, requested, REQUESTED))
    assert shown <= exact(resource, free)
    assert wanted == exact(resource, requested)
    assert shown < wanted or free == requested


@given(resources, amounts, besides)
def test_a_used_amount_is_off_by_half_of_its_last_digit_at_most(
    resource: str, amount: int, beside: tuple[int, Role] | None
) -> None:
    shown, parts = render_parts(resource, amount, USED, beside), exact(resource, amount)
    error = abs(parse(shown) - parts)
    assert error <= max(abs(parts) * Decimal("0.051"), Decimal("0.0005"))
    assert shown.split(" ")[0] != "-0"


@given(amounts, amounts)
def test_a_part_has_the_unit_of_its_whole_or_is_a_small_part(part: int, whole: int) -> None:
    part, whole = sorted((abs(part), abs(whole)))
    text = render_of(MEMORY, part, whole)
    amount, of = text.split(" of ")
    assert parse(of) == parse(render_parts(MEMORY, whole))
    if " " in amount:
        assert parse(amount) < parse(f"1 {of[-3:]}") / 8
    assert "1,000" not in text


@pytest.mark.parametrize(("part", "whole", "text"), [
    (647.877, 5504, "648 of 5,504"), (92434.3, 256000, "92,434 of 256,000"),
])  # fmt: skip
def test_shares_of_cpus_have_one_rounding(part: float, whole: float, text: str) -> None:
    assert render_of(VCPU, part, whole) == text


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_an_age_grows(one: float, other: float) -> None:
    lengths = {"s": 1, "min": 60, "h": 3600, "d": 86400}

    def seconds_of(text: str) -> int:
        words = text.replace(",", "").split(" ")
        return sum(int(n) * lengths[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    younger, older = sorted((one, other))
    assert seconds_of(render_age(younger)) <= seconds_of(render_age(older)) <= older
