import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.cpuset import parse_cpu_set, render_cpu_set


@given(st.frozensets(st.integers(0, 4096), max_size=200))
def test_a_rendered_set_is_parsed_back(cpus):
    assert parse_cpu_set(render_cpu_set(cpus)) == cpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3\n", {0, 1, 2, 3}),
        (" 1 , 3 - 4 ", {1, 3, 4}),
        ("^2,0-3", {0, 1, 3}),
        ("0-7,^4-6", {0, 1, 2, 3, 7}),
    ],
)
def test_valid_notations_are_parsed(text, expected):
    assert parse_cpu_set(text) == expected


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1-2-3", "0x1", "99999999", "1;2", "²"])
def test_invalid_text_is_an_error_that_names_the_part(text):
    with pytest.raises(ValueError, match="is not a CPU id|is less than its start"):
        parse_cpu_set(text)
