import dataclasses
import logging
import os
import resource
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nodetracker.compute.identity import (
    COMPUTE_ID_FILE,
    UNUSABLE_FILE,
    ensure_compute_id,
    find_state_problem,
    is_process_alive,
    is_same_machine,
    read_compute_id,
    read_incarnation,
)
from nodetracker.model.errors import IdentityError


def test_the_identity_is_created_once_and_kept(tmp_path):
    state = tmp_path / "new" / "state"
    first = ensure_compute_id(state)
    assert str(uuid.UUID(first)) == first
    assert ensure_compute_id(state) == first
    assert stat.S_IMODE((state / COMPUTE_ID_FILE).stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_an_identity_that_root_creates_belongs_to_the_user_of_the_directory(tmp_path):
    os.chown(tmp_path, 1234, 2345)
    ensure_compute_id(tmp_path)
    found = (tmp_path / COMPUTE_ID_FILE).stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
def test_root_follows_no_link_in_the_directory_of_another_user(tmp_path):
    state, target = tmp_path / "state", tmp_path / "target"
    state.mkdir()
    target.write_text("0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b")
    (state / COMPUTE_ID_FILE).symlink_to(target)
    assert ensure_compute_id(state) == target.read_text()  # root's own directory
    os.chown(state, 1234, 2345)
    with pytest.raises(IdentityError, match="compute_id cannot be read: a link that root does not"):
        ensure_compute_id(state)
    assert read_compute_id(state) is None


def test_a_fifo_in_place_of_the_identity_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / COMPUTE_ID_FILE)
    with pytest.raises(IdentityError, match="compute_id cannot be read: not a regular file"):
        ensure_compute_id(tmp_path)


def test_blanks_around_the_identity_are_ignored(tmp_path):
    (tmp_path / COMPUTE_ID_FILE).write_text(" 0B9C6C2E-0D5F-4C0E-9F5B-0A3D5E7F1A2B\n\n")
    assert ensure_compute_id(tmp_path) == "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"not a uuid", b"1234" * 100])
def test_a_file_without_a_valid_uuid_is_renamed_and_replaced(tmp_path, caplog, content):
    path = tmp_path / COMPUTE_ID_FILE
    path.write_bytes(content)
    made = ensure_compute_id(tmp_path)
    assert ensure_compute_id(tmp_path) == made == read_compute_id(tmp_path)
    assert (tmp_path / UNUSABLE_FILE).read_bytes() == content
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        f"{path} does not contain a valid UUID; renamed it to {UNUSABLE_FILE} and created a new one"
    ]
    assert UNUSABLE_FILE in find_state_problem(tmp_path)
    (tmp_path / UNUSABLE_FILE).unlink()
    assert find_state_problem(tmp_path) is None


def test_a_damaged_file_that_cannot_be_renamed_is_an_error_that_names_it(tmp_path):
    (tmp_path / COMPUTE_ID_FILE).write_text("not a uuid")
    (tmp_path / UNUSABLE_FILE).mkdir()
    with pytest.raises(IdentityError, match="cannot be replaced: Is a directory; restore this"):
        ensure_compute_id(tmp_path)
    assert (tmp_path / COMPUTE_ID_FILE).read_text() == "not a uuid"


@pytest.mark.parametrize("link", ["state", f"state/{COMPUTE_ID_FILE}"])
def test_a_dangling_link_is_an_error_that_names_it(tmp_path, link):
    if "/" in link:
        (tmp_path / "state").mkdir()
    (tmp_path / link).symlink_to("/nowhere/mounted")
    with pytest.raises(IdentityError, match=f"{tmp_path / link} is a dangling link"):
        ensure_compute_id(tmp_path / "state")


def test_a_state_path_that_cannot_be_created_is_an_error_that_names_it():
    with pytest.raises(
        IdentityError, match="/proc/none/compute_id does not exist and cannot be created: No such"
    ):
        ensure_compute_id(Path("/proc/none"))


def test_a_full_disk_leaves_no_empty_file(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(IdentityError, match="cannot be created: File too large"):
            ensure_compute_id(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    assert ensure_compute_id(tmp_path) == read_compute_id(tmp_path)


def test_reading_the_identity_creates_nothing(tmp_path):
    assert read_compute_id(tmp_path) is None
    (tmp_path / COMPUTE_ID_FILE).write_text("not a uuid")
    assert read_compute_id(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == [COMPUTE_ID_FILE]


def test_a_missing_state_path_is_a_problem_but_not_an_error(tmp_path):
    assert "gone is not writable" in find_state_problem(tmp_path / "gone")


def test_a_state_path_that_cannot_be_looked_up_is_a_problem_but_not_an_error(tmp_path):
    assert "cannot be read: File name too long" in find_state_problem(tmp_path / ("x" * 300))


def test_a_state_path_that_is_not_a_directory_is_an_error_that_names_it(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(
        IdentityError, match="compute_id cannot be read: Not a directory .*state_path"
    ):
        ensure_compute_id(blocker / "state")


def test_this_process_is_alive_and_on_this_machine():
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


def test_a_reused_process_id_is_another_process():
    mine = read_incarnation("id", 10)
    assert not is_process_alive(dataclasses.replace(mine, process_started_at=1))


@pytest.mark.parametrize("change", [{"boot_id": "other"}, {"pid_ns": 1}])
def test_another_boot_or_namespace_is_another_machine(change):
    mine = read_incarnation("id", 10)
    assert not is_same_machine(dataclasses.replace(mine, **change), mine)


def test_machines_with_unknown_boot_are_never_the_same():
    unknown = dataclasses.replace(read_incarnation("id", 10), boot_id="")
    assert not is_same_machine(unknown, unknown)
