"""Passwords of users: right, wrong, remembered, and checked in queues."""

import asyncio
import base64
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from nodetracker.api.auth.http_basic import (
    MAX_REMEMBERED,
    REMEMBER_SECONDS,
    HttpBasicAuthenticator,
    parse_basic,
)
from nodetracker.api.auth.login_queue import CONCURRENT_CHECKS, FREE_FAILURES
from nodetracker.api.auth.users import get_rounds, hash_password, is_password
from nodetracker.api.context import CLIENT_ADDRESS
from nodetracker.model.errors import AuthenticationError, ThrottledError
from tests.builders import Clock

HASHES = {name: hash_password(f"{name}-secret", rounds=4) for name in ("admin", "eve", "üser")}


class Checks:
    """Counts bcrypt's checks."""

    def __init__(self) -> None:
        self.hashes: list[str] = []

    def __call__(self, password: bytes, password_hash: str) -> bool:
        self.hashes.append(password_hash)
        return is_password(password, password_hash)


def write_users(path: Path, **hashes: str) -> None:
    path.write_text("".join(f"{name}:{value}\n" for name, value in hashes.items()))


def request(name: str, password: str | bytes) -> dict[str, Any]:
    raw = password.encode() if isinstance(password, str) else password
    encoded = base64.b64encode(name.encode() + b":" + raw).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {encoded}"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "htpasswd"
    write_users(path, **HASHES)
    return path


@pytest.fixture
def checks():
    return Checks()


@pytest.fixture
def authenticator(path, checks):
    return HttpBasicAuthenticator(path, ["admin"], lambda: 0.0, checks)


def test_an_admin_administers_the_fleet(authenticator):
    identity = authenticator.identify(request("admin", "admin-secret"))
    assert (identity.user_id, identity.is_system) == ("admin", True)
    assert identity.roles == {"admin", "reader"}


@pytest.mark.parametrize("name", ["eve", "üser"])
def test_others_read_the_fleet(authenticator, name):
    identity = authenticator.identify(request(name, f"{name}-secret"))
    assert (identity.user_id, identity.roles) == (name, {"reader"})
    assert identity.is_system


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HTTP_AUTHORIZATION": ""},
        {"HTTP_AUTHORIZATION": "Bearer abc"},
        {"HTTP_AUTHORIZATION": "Basic"},
        {"HTTP_AUTHORIZATION": "Basic =!"},
        {"HTTP_AUTHORIZATION": "Basic \xe9"},  # bytes of headers are Latin-1 in WSGI
        {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(b"no colon").decode()},
        {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(b"\xff:x").decode()},
        request("admin", ""),
        request("admin", "eve-secret"),
        request("nobody", "admin-secret"),
        request("admin", "x" * 73),
        request("admin", b"\xff\0"),
        request("", ""),
    ],
)
def test_whoever_has_no_right_password_is_challenged(authenticator, environ):
    with pytest.raises(AuthenticationError) as caught:
        authenticator.identify(environ)
    assert caught.value.challenge.startswith("Basic realm=")
    assert "secret" not in str(caught.value)


def test_a_password_longer_than_bcrypt_reads_is_wrong_even_if_its_beginning_is_right(tmp_path):
    path = tmp_path / "users"
    write_users(path, long=hash_password("x" * 72, rounds=4))
    authenticator = HttpBasicAuthenticator(path, [])
    authenticator.identify(request("long", "x" * 72))
    with pytest.raises(AuthenticationError):
        authenticator.identify(request("long", "x" * 73))


def test_a_wrong_password_takes_as_long_as_the_slowest_user_s_whoever_is_named(path, checks):
    slow = hash_password("x", rounds=6)
    write_users(path, **HASHES, slow=slow)
    authenticator = HttpBasicAuthenticator(path, [], check=checks)
    for name in ("nobody", "eve", "slow"):
        checks.hashes.clear()
        with pytest.raises(AuthenticationError):
            authenticator.identify(request(name, "wrong"))
        assert sum(2 ** get_rounds(found) for found in checks.hashes) == 2**6


def test_a_right_password_is_not_hashed_again_for_a_minute(path, checks):
    clock = Clock()
    authenticator = HttpBasicAuthenticator(path, [], clock, checks)
    for clock.seconds in (0.0, 1.0, REMEMBER_SECONDS - 1):
        authenticator.identify(request("eve", "eve-secret"))
    assert len(checks.hashes) == 1
    clock.seconds = REMEMBER_SECONDS
    authenticator.identify(request("eve", "eve-secret"))
    assert len(checks.hashes) == 2


def test_a_remembered_password_makes_no_other_one_right(authenticator, checks):
    authenticator.identify(request("eve", "eve-secret"))
    for name, password in (("eve", "admin-secret"), ("admin", "eve-secret")):
        with pytest.raises(AuthenticationError):
            authenticator.identify(request(name, password))
    assert len(checks.hashes) == 3


def test_a_wrong_password_is_hashed_every_time(authenticator, checks):
    for _ in range(2):
        with pytest.raises(AuthenticationError):
            authenticator.identify(request("eve", "wrong"))
    assert len(checks.hashes) == 2


def test_at_most_1024_passwords_are_remembered(tmp_path, checks):
    path = tmp_path / "users"
    write_users(path, **{f"u{number}": HASHES["eve"] for number in range(2)})
    accepted: list[bytes] = []

    def accept(password: bytes, _hash: str) -> bool:
        accepted.append(password)
        return True

    authenticator = HttpBasicAuthenticator(path, [], lambda: 0.0, accept)
    for number in range(MAX_REMEMBERED + 1):
        authenticator.identify(request("u0", str(number)))
    authenticator.identify(request("u0", str(MAX_REMEMBERED)))
    authenticator.identify(request("u0", "1"))
    assert len(accepted) == MAX_REMEMBERED + 1
    authenticator.identify(request("u0", "0"))
    assert len(accepted) == MAX_REMEMBERED + 2


def test_a_changed_password_counts_immediately(authenticator, path):
    authenticator.identify(request("eve", "eve-secret"))
    write_users(path, eve=hash_password("new", rounds=4))
    with pytest.raises(AuthenticationError):
        authenticator.identify(request("eve", "eve-secret"))
    assert authenticator.identify(request("eve", "new")).user_id == "eve"


def test_a_deleted_user_is_out_immediately(authenticator, path):
    authenticator.identify(request("eve", "eve-secret"))
    write_users(path, admin=HASHES["admin"])
    with pytest.raises(AuthenticationError):
        authenticator.identify(request("eve", "eve-secret"))


def test_without_a_file_nobody_gets_in_and_the_log_says_how_to_make_a_user(tmp_path, caplog):
    path = tmp_path / "none"
    authenticator = HttpBasicAuthenticator(path, ["admin"])
    assert f"User file {path}" in caplog.text
    assert "nodetracker-manage user set NAME" in caplog.text
    with pytest.raises(AuthenticationError):
        authenticator.identify(request("admin", ""))
    write_users(path, **HASHES)
    assert authenticator.identify(request("admin", "admin-secret"))


def test_invalid_lines_are_named_by_number_and_never_quoted(path, caplog):
    path.write_text(f"# users\n\nadmin\neve:plain-secret\nadmin:{HASHES['admin']}\nadmin:x\n")
    authenticator = HttpBasicAuthenticator(path, [])
    lines = [record.message for record in caplog.records]
    assert [line.split(": ", 1)[1] for line in lines] == [
        "line 3: expected NAME:BCRYPT_HASH; ignoring the line",
        "line 4: expected NAME:BCRYPT_HASH; ignoring the line",
        "line 6: expected NAME:BCRYPT_HASH; ignoring the line",
    ]
    assert authenticator.identify(request("admin", "admin-secret"))


def test_a_file_that_is_not_text_lets_nobody_in_and_is_logged_once(path, caplog):
    path.write_bytes(b"\xff\xfe")
    authenticator = HttpBasicAuthenticator(path, [])
    for _ in range(2):
        with pytest.raises(AuthenticationError):
            authenticator.identify(request("admin", "admin-secret"))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_user_s_further_requests_do_not_hash_what_one_of_them_hashes(authenticator, checks):
    async def log_in() -> None:
        environ = request("eve", "eve-secret")
        await asyncio.gather(*(authenticator.identify_early(environ) for _ in range(20)))

    asyncio.run(log_in())
    assert len(checks.hashes) <= CONCURRENT_CHECKS


def test_guesses_from_an_address_delay_that_user_there_and_nowhere_else(path, checks):
    clock = Clock()
    authenticator = HttpBasicAuthenticator(path, [], clock, checks)
    here, elsewhere = ({CLIENT_ADDRESS: address} for address in ("192.0.2.66", "192.0.2.7"))
    for _ in range(FREE_FAILURES):
        with pytest.raises(AuthenticationError):
            authenticator.identify(request("eve", "guess") | here)
    with pytest.raises(ThrottledError):
        authenticator.identify(request("eve", "eve-secret") | here)
    assert authenticator.identify(request("eve", "eve-secret") | elsewhere)
    assert authenticator.identify(request("admin", "admin-secret") | here)


def test_guesses_do_not_lock_out_who_was_logged_in_at_the_same_address(path, checks):
    clock = Clock()
    authenticator = HttpBasicAuthenticator(path, [], clock, checks)
    authenticator.identify(request("eve", "eve-secret"))
    clock.seconds = 1.5 * REMEMBER_SECONDS
    for _ in range(FREE_FAILURES):
        with pytest.raises(AuthenticationError):
            authenticator.identify(request("eve", "guess"))
    with pytest.raises(ThrottledError):
        authenticator.identify(request("eve", "guess"))
    hashed = len(checks.hashes)
    assert authenticator.identify(request("eve", "eve-secret"))
    assert len(checks.hashes) == hashed + 1


def test_no_password_is_kept_in_memory(authenticator):
    authenticator.identify(request("eve", "eve-secret"))
    assert "eve-secret" not in repr(vars(authenticator._remembered))


def test_a_colon_belongs_to_the_password():
    assert parse_basic("basic " + base64.b64encode(b"a:b:c").decode()) == ("a", b"b:c")


def test_a_file_replaced_within_the_same_second_is_read_again(authenticator, path):
    before = path.stat()
    write_users(path, eve=HASHES["admin"], admin=HASHES["eve"], üser=HASHES["üser"])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert authenticator.identify(request("eve", "admin-secret"))
