"""Test that the host's memory is MemTotal in whole MiB."""

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import MemoryInfo
from nodetracker.virt.host.memory import parse_meminfo, read_default_page_kb, read_memory_info
from nodetracker.virt.host.roots import Roots

MEMINFO = """MemTotal:       527031224 kB
MemFree:        470642660 kB
MemAvailable:   478155232 kB
Buffers:          308488 kB
Cached:          9472868 kB
SwapTotal:       2097151 kB
SwapFree:        1048576 kB
HugePages_Total:       0
"""


def test_amounts_are_rounded_down_to_mib(make_roots: MakeRoots) -> None:
    roots = make_roots({"proc/meminfo": MEMINFO})
    assert read_memory_info(roots) == MemoryInfo(514678, 466948, 2047, 1024)


def test_a_control_group_does_not_shrink_the_total(make_roots: MakeRoots) -> None:
    roots = make_roots(
        {
            "proc/meminfo": MEMINFO,
            "sys/fs/cgroup/memory.max": "1048576\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576\n",
        }
    )
    assert read_memory_info(roots).total_mb == 514678


def test_available_memory_is_estimated_on_an_old_kernel() -> None:
    text = "MemTotal: 1000000 kB\nMemFree: 1000 kB\nBuffers: 200 kB\nCached: 30 kB\n"
    assert parse_meminfo(text).available_kb == 1230
    assert parse_meminfo(f"{text}Shmem: 20 kB\n").available_kb == 1210


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("MemTotal: 4096 kB\nMemAvailable:\n", "has no usable MemAvailable"),
        ("MemTotal: 4096 kB\n", "has no usable MemAvailable"),
        ("MemTotal: 4096 kB\nMemFree: 1 kB\nSwapTotal: x kB\n", "has no usable SwapTotal"),
    ],
)
def test_the_total_is_known_without_other_amounts(
    text: str, reason: str, make_roots: MakeRoots
) -> None:
    roots = make_roots({"proc/meminfo": text})
    memory = read_memory_info(roots)
    assert memory.total_mb == 4
    (problem,) = memory.problems
    assert problem.path == str(roots.procfs / "meminfo")
    assert problem.text == f"{reason}; that memory or swap space is not measured"


def test_available_memory_never_exceeds_the_total() -> None:
    assert parse_meminfo("MemTotal: 4096 kB\nMemAvailable: 9999 kB").available_kb == 4096


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "MemTotal is missing or zero"),
        ("MemFree: 1 kB\n", "MemTotal is missing or zero"),
        ("MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal is missing or zero"),
        ("MemTotal: 1023 kB\nMemAvailable: 0 kB\n", "MemTotal is missing or zero"),
        ("MemTotal: many kB\n", "MemTotal is not an amount in kB"),
        ("MemTotal: -1 kB\n", "MemTotal is not an amount in kB"),
        ("MemTotal: 4 MB\n", "MemTotal is not an amount in kB"),
        ("MemTotal: 40961234", "MemTotal is not an amount in kB"),
    ],
    ids=[
        "empty",
        "no-total",
        "zero",
        "less-than-a-mib",
        "garbage",
        "negative",
        "other-unit",
        "cut-off",
    ],
)
def test_malformed_text_is_an_error_that_names_the_file(
    text: str, reason: str, make_roots: MakeRoots
) -> None:
    roots = make_roots({"proc/meminfo": text})
    with pytest.raises(HostDataError) as raised:
        read_memory_info(roots)
    assert raised.value.source == str(roots.procfs / "meminfo")
    assert raised.value.reason == reason


@given(st.text() | st.lists(st.sampled_from([*MEMINFO.split(), "\n", "-", ":"])).map(" ".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        meminfo = parse_meminfo(text)
    except HostDataError:
        return
    assert meminfo.available_kb is None or 0 <= meminfo.available_kb <= meminfo.total_kb


@pytest.mark.parametrize(
    ("text", "size_kb"),
    [
        ("HugePages_Total:       4\nHugepagesize:    1048576 kB\n", 1048576),
        ("Hugepagesize:       2048 kB\n", 2048),
        ("MemTotal: 1 kB\n", None),
        ("Hugepagesize: 0 kB\n", None),
        (None, None),
    ],
)
def test_the_default_size_of_huge_pages_is_the_kernel_s(tmp_path, text, size_kb):
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    assert read_default_page_kb(Roots(procfs=tmp_path)) == size_kb
