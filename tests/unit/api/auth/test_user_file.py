import grp
import os
import stat
import threading

import pytest

from nodetracker.api.auth.users import edit_user_file, read_user_file


def test_a_missing_file_is_empty(tmp_path):
    assert read_user_file(tmp_path / "none") == ""


def test_a_new_file_is_readable_by_its_group_only(tmp_path):
    path = tmp_path / "htpasswd"
    own = grp.getgrgid(os.getgid()).gr_name
    edit_user_file(path, lambda text: text + "a\n", own)
    assert path.read_text() == "a\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_gid == os.getgid()
    assert list(tmp_path.iterdir()) == [path]


def test_a_group_that_does_not_exist_is_not_set(tmp_path):
    path = tmp_path / "htpasswd"
    edit_user_file(path, lambda _: "a\n", "no-such-group")
    assert path.read_text() == "a\n"


def test_the_file_is_replaced_whole(tmp_path):
    path = tmp_path / "htpasswd"
    path.write_text("old\n")
    with path.open() as before:
        edit_user_file(path, lambda _: "new\n")
        assert before.read() == "old\n"
    assert path.read_text() == "new\n"


def test_a_failed_edit_changes_nothing(tmp_path):
    path = tmp_path / "htpasswd"
    path.write_text("old\n")

    def fail(_text: str) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError):
        edit_user_file(path, fail)
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_the_file_is_kept(tmp_path):
    (tmp_path / "link").symlink_to("htpasswd")
    edit_user_file(tmp_path / "link", lambda _: "a\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "htpasswd").read_text() == "a\n"


def test_no_concurrent_edit_is_lost(tmp_path):
    path = tmp_path / "htpasswd"

    def add(name: str) -> None:
        for _ in range(5):
            edit_user_file(path, lambda text: text + f"{name}\n")

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.read_text().split()) == sorted("abcd" * 5)
