import dataclasses
import os
import stat
import subprocess
import sys
import uuid

import pytest

from nodetracker.compute.identity import (
    COMPUTE_ID_FILE,
    ensure_compute_id,
    is_process_alive,
    is_same_machine,
    read_incarnation,
)
from nodetracker.errors import IdentityError


def test_the_identity_is_made_once_and_kept(tmp_path):
    state = tmp_path / "new" / "state"
    first = ensure_compute_id(state)
    assert str(uuid.UUID(first)) == first
    assert ensure_compute_id(state) == first
    assert stat.S_IMODE((state / COMPUTE_ID_FILE).stat().st_mode) == 0o600


def test_blanks_around_the_identity_do_not_matter(tmp_path):
    (tmp_path / COMPUTE_ID_FILE).write_text(" 0B9C6C2E-0D5F-4C0E-9F5B-0A3D5E7F1A2B\n\n")
    assert ensure_compute_id(tmp_path) == "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"no uuid", b"1234" * 100])
def test_a_file_that_holds_no_uuid_is_named_and_left_alone(tmp_path, content):
    path = tmp_path / COMPUTE_ID_FILE
    path.write_bytes(content)
    with pytest.raises(IdentityError, match=f"{path} holds no uuid"):
        ensure_compute_id(tmp_path)
    assert path.read_bytes() == content


def test_a_state_path_that_is_no_directory_is_named(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(
        IdentityError, match="compute_id cannot be read: Not a directory .*state_path"
    ):
        ensure_compute_id(blocker / "state")


def test_this_very_process_is_alive_and_here():
    mine = read_incarnation("id", 10)
    assert mine.pid == os.getpid()
    assert mine.process_started_at > 0
    assert is_process_alive(mine)
    assert is_same_machine(mine, mine)


def test_a_process_that_ended_is_not_alive():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    mine = read_incarnation("id", 10)
    assert not is_process_alive(dataclasses.replace(mine, pid=ended.pid))


def test_a_process_id_that_was_given_away_again_is_another_process():
    mine = read_incarnation("id", 10)
    assert not is_process_alive(dataclasses.replace(mine, process_started_at=1))


@pytest.mark.parametrize("change", [{"boot_id": "other"}, {"pid_ns": 1}])
def test_another_boot_or_namespace_is_another_machine(change):
    mine = read_incarnation("id", 10)
    assert not is_same_machine(dataclasses.replace(mine, **change), mine)


def test_machines_that_tell_no_boot_are_never_the_same():
    unknown = dataclasses.replace(read_incarnation("id", 10), boot_id="")
    assert not is_same_machine(unknown, unknown)
