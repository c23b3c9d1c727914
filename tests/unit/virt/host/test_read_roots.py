"""Test how the text of a file is read, and how absent files are handled."""

import errno
import os
from pathlib import Path

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.host import roots as roots_module
from nodetracker.virt.host.roots import (
    Roots,
    is_this_machine,
    list_directory,
    parse_integer,
    read_label,
    read_link_name,
    read_optional_text,
    read_text,
)
from tests.functional.servers.process import skip_or_fail


def test_an_absent_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(HostDataError) as raised:
        read_text(tmp_path / "absent")
    assert raised.value.source == str(tmp_path / "absent")
    assert raised.value.reason == "No such file or directory"


def test_an_absent_optional_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert read_optional_text(tmp_path / "absent") is None
    assert read_optional_text(tmp_path / "file" / "below") is None


@pytest.mark.parametrize("read", [read_text, read_optional_text])
def test_bytes_that_are_not_text_are_an_error(read: object, tmp_path: Path) -> None:
    assert callable(read)
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    with pytest.raises(HostDataError, match="is not UTF-8 text"):
        read(tmp_path / "file")


def test_a_directory_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostDataError, match=os.strerror(errno.EISDIR)):
        read_optional_text(tmp_path)


def test_a_file_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots_module, "MAX_TEXT_BYTES", 10)
    (tmp_path / "file").write_text("x" * 11)
    with pytest.raises(HostDataError, match="is larger than 10 bytes"):
        read_text(tmp_path / "file")
    assert read_label(tmp_path / "file") == ""


def test_a_fifo_does_not_stop_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_text(tmp_path / "fifo") == ""


def test_the_nul_that_some_kernels_append_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0-31\n\0")
    assert read_text(tmp_path / "file") == "0-31\n"


def test_a_label_keeps_what_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b" Model\x01 \xff 7 \0\n")
    assert read_label(tmp_path / "file") == "Model \N{REPLACEMENT CHARACTER} 7"
    assert read_label(tmp_path / "absent") == ""


def test_a_directory_is_listed_in_order_and_its_absence_is_none(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    assert list_directory(tmp_path) == ("a", "b")
    assert list_directory(tmp_path / "absent") is None
    assert list_directory(tmp_path / "a" / "below a file") is None
    with pytest.raises(HostDataError, match="a: Not a directory"):
        list_directory(tmp_path / "a")


def test_a_link_is_read_by_its_last_name_and_a_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/ixgbe")
    (tmp_path / "file").touch()
    assert read_link_name(tmp_path / "driver") == "ixgbe"
    assert read_link_name(tmp_path / "absent") is None
    with pytest.raises(HostDataError, match="Invalid argument"):
        read_link_name(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "number"),
    [("12\n", 12), ("-1\n", -1), ("0", 0)],
    ids=["newline", "negative", "bare"],
)
def test_a_number_is_read(text: str, number: int) -> None:
    assert parse_integer(text, "file") == number


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "1_000", "0x10", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5000, "1.5", "+1"],
    ids=["empty", "two", "underscore", "hex", "foreign-digit", "huge", "fraction", "plus"],
)
def test_text_that_is_not_a_number_is_an_error(text: str) -> None:
    with pytest.raises(HostDataError) as raised:
        parse_integer(text, "file")
    assert raised.value.source == "file"


def test_the_boot_id_distinguishes_this_machine_from_another(tmp_path: Path) -> None:
    assert is_this_machine(Roots())
    assert not is_this_machine(Roots(procfs=tmp_path))
    boot_id = tmp_path / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("00000000-0000-0000-0000-000000000000\n")
    assert not is_this_machine(Roots(procfs=tmp_path))
    own = Path("/proc/sys/kernel/random/boot_id")
    if not own.exists():
        skip_or_fail("this kernel shows no boot id")
    boot_id.write_text(own.read_text())
    assert is_this_machine(Roots(procfs=tmp_path))
