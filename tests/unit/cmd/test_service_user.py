"""Whether the service's user can run the installation, tried as a user without any rights."""

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from nodetracker.cmd.service_user import find_barrier, find_closed_file

USER = "nobody"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as another user")


@pytest.fixture
def closed():
    """A directory as root's home is, and a program in it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "open").mkdir()
        program = directory / "open" / "python3"
        program.symlink_to("/bin/true")
        yield directory


def test_a_program_that_everybody_may_run():
    assert find_barrier(USER, ["/bin/true"], ["/bin/true"]) is None


def test_a_user_that_does_not_exist():
    assert find_barrier("no-such-user", ["/nowhere"], ["/nowhere"]) is None


def test_a_directory_that_the_user_may_not_enter(closed):
    program = str(closed / "open" / "python3")
    barrier = find_barrier(USER, [program], [program])
    assert (barrier.user, barrier.program, barrier.directory) == (USER, program, str(closed))
    assert barrier.problem == "Permission denied"


def test_a_link_to_a_directory_that_the_user_may_not_enter(closed):
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        program = Path(name) / "python3"
        program.symlink_to(closed / "open" / "python3")
        (closed / "open" / "python3").unlink()
        (closed / "open" / "python3").write_text("#!/bin/true\n")
        assert find_barrier(USER, [str(program)], [str(program)]).directory == str(closed)


def test_something_else_that_fails_is_quoted():
    command = ["/bin/sh", "-c", "echo first >&2; echo 'No module named nodetracker' >&2; exit 1"]
    barrier = find_barrier(USER, command, ["/bin/sh"])
    assert (barrier.directory, barrier.problem) == (None, "No module named nodetracker")


def test_this_python_as_root():
    assert find_barrier("root") is None


def test_a_file_that_the_user_of_the_state_directory_cannot_read(closed):
    state, token = closed / "state", Path("/etc/passwd")
    state.mkdir()
    own = closed / "token"
    own.touch()
    assert find_closed_file(str(own), state) is None  # root's directory, so root's agent
    account = pwd.getpwnam(USER)
    os.chown(state, account.pw_uid, account.pw_gid)
    assert find_closed_file(str(own), state) == f"user {USER} cannot read it"
    assert find_closed_file(str(token), state) is None
    assert find_closed_file(str(own), closed / "nowhere") is None
