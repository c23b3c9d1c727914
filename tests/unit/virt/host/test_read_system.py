"""Test reading the machine's identity from all its sources."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import SystemInfo
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.host.system import (
    parse_boot_time,
    parse_kernel_release,
    parse_load_average,
    parse_os_release,
    read_load_average,
    read_system_info,
)


def test_every_name_is_read(make_roots: MakeRoots) -> None:
    dmi = "sys/class/dmi/id"
    files = {
        "proc/sys/kernel/hostname": "c1\n",
        "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
        "proc/sys/kernel/random/boot_id": "0e2f\n",
        "proc/stat": "cpu 1 2\nbtime 1700000000\n",
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        f"{dmi}/sys_vendor": "Dell Inc.\n",
        f"{dmi}/product_name": "PowerEdge R910 \n",
        f"{dmi}/product_version": "1\n",
        f"{dmi}/product_serial": "ABC\n",
        f"{dmi}/bios_version": "2.12.0\n",
        f"{dmi}/product_uuid": "4C4C4544-0042\n",
    }
    assert read_system_info(make_roots(files)) == SystemInfo(
        hostname="c1",
        os_type="linux",
        os="Debian GNU/Linux 12 (bookworm)",
        kernel_version="6.1.0-18-amd64",
        boot_id="0e2f",
        booted_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        vendor="Dell Inc.",
        product="PowerEdge R910",
        product_version="1",
        serial="ABC",
        uuid="4c4c4544-0042",
        firmware_version="2.12.0",
    )


def test_unknown_names_are_blank(make_roots: MakeRoots) -> None:
    assert read_system_info(make_roots()) == SystemInfo("", "linux", "", "")


def test_names_have_fallback_files(make_roots: MakeRoots) -> None:
    files: dict[str, str | bytes] = {
        "etc/hostname": "c2\n",
        "usr/lib/os-release": "NAME=Alpine\nVERSION=3.20\n",
        "proc/version": "Linux version 5.15.0-rc1 (root@x) #1\n",
        "proc/device-tree/model": b"Raspberry Pi 4 Model B\0",
    }
    system = read_system_info(make_roots(files))
    assert system.hostname == "c2"
    assert system.os == "Alpine 3.20"
    assert system.kernel_version == "5.15.0-rc1"
    assert system.product == "Raspberry Pi 4 Model B"


def test_dmi_is_found_without_its_class(make_roots: MakeRoots) -> None:
    roots = make_roots({"sys/devices/virtual/dmi/id/sys_vendor": "QEMU\n"})
    assert read_system_info(roots).vendor == "QEMU"


def test_this_machine_has_a_name_a_kernel_and_a_boot_time() -> None:
    system = read_system_info(Roots())
    assert system.hostname == os.uname().nodename
    assert system.kernel_version == os.uname().release
    assert system.booted_at is not None
    assert system.booted_at < datetime.now(UTC)


@pytest.mark.parametrize("text", ["btime x\n", "btime -1\n", "btime 999999999999\n"])
def test_an_invalid_boot_time_is_unknown_and_a_problem(text: str, make_roots: MakeRoots) -> None:
    roots = make_roots({"proc/stat": text})
    system = read_system_info(roots)
    assert system.booted_at is None
    assert [problem.path for problem in system.problems] == [str(roots.procfs / "stat")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PRETTY_NAME='A B'\n", "A B"),
        ("PRETTY_NAME=Plain\n", "Plain"),
        ('PRETTY_NAME="a \\"b\\" \\$c"\n', 'a "b" $c'),
        ('# comment\n\nnot a line\nPRETTY_NAME="x"\n', "x"),
        ('PRETTY_NAME="broken\n', '"broken'),
        ("NAME=Only\n", "Only"),
        ("", ""),
    ],
    ids=["single", "bare", "escapes", "other-lines", "unbalanced", "name", "empty"],
)
def test_the_systems_name_is_unquoted(text: str, name: str) -> None:
    assert parse_os_release(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "0.20 0.12", "a b c 1/2 3", "nan 0.1 0.1 1/2 3", "-0.1 0.1 0.1 1/2 3", "1 2 3 1/2 3"],
)
def test_load_averages_that_are_none_are_refused_and_unknown(tmp_path: Path, text: str) -> None:
    with pytest.raises(HostDataError, match="loadavg: does not start with three load averages"):
        parse_load_average(text)
    (tmp_path / "loadavg").write_text(text)
    assert read_load_average(Roots(procfs=tmp_path)) is None


def test_load_averages_are_read_below_the_configured_root(tmp_path: Path) -> None:
    assert read_load_average(Roots(procfs=tmp_path)) is None
    (tmp_path / "loadavg").write_text("3.07 12.50 104.00 5/1044 2345\n")
    assert read_load_average(Roots(procfs=tmp_path)) == (3.07, 12.5, 104.0)


@given(st.text() | st.text(alphabet="btime 0123456789\n"))
def test_any_stat_is_read_or_refused(text: str) -> None:
    try:
        booted_at = parse_boot_time(text)
    except HostDataError:
        return
    assert booted_at is None or booted_at.tzinfo is UTC


@given(st.text() | st.text(alphabet="PRETTY_NAME=\"'\\$ \n"))
def test_any_release_text_gives_a_name(text: str) -> None:
    assert isinstance(parse_os_release(text), str)
    assert isinstance(parse_kernel_release(text), str)
