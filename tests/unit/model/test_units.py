import pytest

from nodetracker.model.units import (
    capacity_gib_from_mib,
    capacity_mib_from_bytes,
    capacity_mib_from_kib,
    parse_page_size_kb,
    usage_gib_from_mib,
    usage_mib_from_bytes,
    usage_units_from_milli,
)


@pytest.mark.parametrize(
    ("convert", "amount", "expected"),
    [
        (capacity_mib_from_kib, 1023, 0),
        (capacity_mib_from_bytes, 2**20 * 3 - 1, 2),
        (capacity_gib_from_mib, 1023, 0),
        (usage_gib_from_mib, 1, 1),
        (usage_mib_from_bytes, 1, 1),
        (usage_units_from_milli, 1, 1),
        (usage_units_from_milli, 2000, 2),
    ],
)
def test_capacity_is_rounded_down_and_usage_up(convert, amount, expected):
    assert convert(amount) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("2048", 2048), ("2MB", 2048), ("1GB", 1 << 20), ("64kb", 64)]
)
def test_a_page_size_without_a_suffix_is_in_kib(text, expected):
    assert parse_page_size_kb(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "2MM", "2TB", "x", "-1"])
def test_an_invalid_page_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a page size"):
        parse_page_size_kb(text)
