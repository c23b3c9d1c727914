"""nodetracker-manage user set, delete and list."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from nodetracker.api.auth import users
from nodetracker.api.auth.users import is_password
from nodetracker.cmd import manage
from nodetracker.cmd.commands import user


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch):
    monkeypatch.setattr(user, "hash_password", lambda password: users.hash_password(password, 4))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "htpasswd"


@pytest.fixture
def run(path, monkeypatch, capsys):
    options = SimpleNamespace(
        http_basic_auth_user_file=str(path), http_basic_admins=["admin", "ops"]
    )
    monkeypatch.setattr(manage.ManageApp, "conf", SimpleNamespace(api=options))

    def run(*arguments: str, stdin: bytes = b"") -> SimpleNamespace:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = manage.main(arguments)
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run


def list_users(run):
    done = run("user", "list", "-f", "json")
    assert done.code == 0
    return [(row["name"], row["role"]) for row in json.loads(done.out)]


def test_users_are_created_listed_and_deleted(run, path):
    assert list_users(run) == []
    for name, role in (("eve", "reader"), ("admin", "admin")):
        done = run("user", "set", name, stdin=b"s3cret\n")
        assert (done.code, done.out) == (0, f"password of user {name} set; role {role}\n")
    assert list_users(run) == [("admin", "admin"), ("eve", "reader")]
    assert run("user", "delete", "eve").code == 0
    assert list_users(run) == [("admin", "admin")]
    assert "s3cret" not in path.read_text()


@pytest.mark.parametrize(
    ("stdin", "password"),
    [
        (b"new\n", b"new"),
        (b"new", b"new"),
        (b"new\r\n", b"new"),
        (b" n\xc3\xbc w \nx\n", b" n\xc3\xbc w "),
    ],
)
def test_the_password_is_the_first_line_of_stdin(run, path, stdin, password):
    run("user", "set", "eve", stdin=b"old\n")
    assert run("user", "set", "eve", stdin=stdin).code == 0
    [line] = path.read_text().splitlines()
    assert is_password(password, line.removeprefix("eve:"))


def test_the_terminal_s_password_is_typed_twice(monkeypatch):
    typed = iter(["one", "two", "three", "three"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(ValueError, match="the passwords differ"):
        user._read_password("eve")
    assert user._read_password("eve") == "three"


@pytest.mark.parametrize(
    ("name", "stdin", "problem"),
    [
        ("eve", b"", "the password is empty"),
        ("eve", b"x" * 73, "the password has 73 bytes: expected at most 72"),
        ("eve", b"\xff\n", "the password is not valid UTF-8"),
        ("e:ve", b"x", "invalid user name 'e:ve': expected up to 255 printable characters"),
    ],
)
def test_what_cannot_be_a_user_is_refused_and_nothing_is_written(run, path, name, stdin, problem):
    done = run("user", "set", name, stdin=stdin)
    assert done.code == 1
    assert problem in done.err
    assert not path.exists()


def test_an_unknown_user_cannot_be_deleted(run):
    done = run("user", "delete", "eve")
    assert (done.code, "no such user: eve" in done.err) == (1, True)


def test_a_file_that_cannot_be_written_is_named(run, path):
    path.mkdir()
    for arguments in (("set", "eve"), ("delete", "eve"), ("list",)):
        done = run("user", *arguments, stdin=b"x")
        assert (done.code, str(path) in done.err) == (1, True)


def test_the_option_of_a_file_without_a_directory_is_named(run, path):
    path.parent.rmdir()
    done = run("user", "set", "eve", stdin=b"x")
    expected = f"{path} cannot be changed: No such file or directory ([api] http_basic_auth_user_file names it)\n"
    assert (done.code, done.err) == (1, expected)


def test_invalid_lines_are_reported(run, path):
    path.write_text("eve:plain-secret\n")
    done = run("user", "list")
    assert f"{path}: line 1: expected NAME:BCRYPT_HASH; the line is ignored" in done.err
    assert "plain-secret" not in done.err


def test_bcrypt_is_imported_by_these_commands_alone():
    code = (
        "import sys, importlib\n"
        "from nodetracker.cmd.command_table import COMMANDS\n"
        "for place, *_ in COMMANDS.values():\n"
        "    if not place.startswith('user:'):\n"
        "        importlib.import_module('nodetracker.cmd.commands.' + place.split(':')[0])\n"
        "import nodetracker.cmd.compute, nodetracker.cmd.conductor\n"
        "print(sorted(sys.modules.keys() & {'bcrypt', 'oslo_policy', 'keystonemiddleware'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
