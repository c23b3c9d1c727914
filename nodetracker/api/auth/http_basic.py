"""Authenticate users by HTTP's Basic scheme and a file of bcrypt hashes."""

import base64
import hashlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from wsgiref.types import WSGIEnvironment

from nodetracker.api.auth.login_queue import Attempt, LoginQueue
from nodetracker.api.auth.users import (
    UserFile,
    get_rounds,
    is_password,
    make_wrong_hash,
    parse_user_file,
    read_user_file,
)
from nodetracker.api.context import CLIENT_ADDRESS, Identity, make_admin, make_reader
from nodetracker.model.errors import AuthenticationError
from nodetracker.model.text import render_file_error

LOG = logging.getLogger(__name__)

CHALLENGE = 'Basic realm="nodetracker", charset="UTF-8"'

REMEMBER_SECONDS = 60.0
"""How long a password that was right is not hashed again."""

MAX_REMEMBERED = 1024


class HttpBasicAuthenticator:
    """Authenticates by user name and password.

    A wrong password takes as long as an unknown user: as one with the highest cost.

    Args:
        path: the user file; read again when it changes.
        admins: users that administer; the others read.
        seconds: monotonic time.
    """

    def __init__(
        self,
        path: Path,
        admins: Collection[str],
        seconds: Callable[[], float] = time.monotonic,
        check: Callable[[bytes, str], bool] = is_password,
        queue: LoginQueue | None = None,
    ) -> None:
        self._users = _WatchedUsers(path)
        self._admins = frozenset(admins)
        self._remembered = _RememberedPasswords(seconds)
        self._check = check
        self._queue = queue or LoginQueue(seconds=seconds)

    @property
    def problem(self) -> str | None:
        """Why nobody can log in, as of the last request; None if somebody can."""
        return self._users.problem

    def identify(self, environ: WSGIEnvironment) -> Identity:
        """Return the user of the ``Authorization`` header; raises as `Authenticator.identify`."""
        attempt = self._read(environ)
        is_right = self._is_remembered(attempt) or self._queue.check_in_thread(attempt)
        return self._decide(attempt.user, is_right)

    def recognize(self, environ: WSGIEnvironment) -> Identity:
        """Return the user of a password that was right a moment ago; it is not checked.

        Raises:
            AuthenticationError: it was not, or there is none.
        """
        attempt = self._read(environ)
        return self._decide(attempt.user, self._is_remembered(attempt))

    async def identify_early(self, environ: WSGIEnvironment) -> Identity:
        """Do the same for a request that has no thread yet."""
        attempt = self._read(environ)
        is_right = self._is_remembered(attempt) or await self._queue.check(attempt)
        return self._decide(attempt.user, is_right)

    def _read(self, environ: WSGIEnvironment) -> Attempt[bool]:
        credentials = parse_basic(environ.get("HTTP_AUTHORIZATION", ""))
        if credentials is None:
            raise AuthenticationError("a user name and a password are required", CHALLENGE)
        name, password = credentials
        hashes = self._users.read().hashes
        stored = hashes.get(name)
        key = None if stored is None else self._remembered.key_of(stored, password)
        known = key if self._remembered.has_had(key) else None
        check = partial(self._is_right, hashes, stored, password, key)
        return Attempt(name, environ.get(CLIENT_ADDRESS, ""), check, known)

    def _is_remembered(self, attempt: Attempt[bool]) -> bool:
        return attempt.known is not None and self._remembered.has(attempt.known)

    def _is_right(
        self, hashes: Mapping[str, str], stored: str | None, password: bytes, key: bytes | None
    ) -> bool:
        highest = max(map(_rounds_of, hashes.values()), default=0)
        if key is None or stored is None:
            if hashes:
                self._check(password, make_wrong_hash(highest))
            return False
        if self._remembered.has(key):  # by another request, while this one waited
            return True
        if self._check(password, stored):
            self._remembered.add(key)
            return True
        # Each doubles the time until now, which then says nothing about the user.
        for rounds in range(_rounds_of(stored), highest):
            self._check(password, make_wrong_hash(rounds))
        return False

    def _decide(self, name: str, is_right: bool) -> Identity:
        if not is_right:
            raise AuthenticationError("wrong user name or password", CHALLENGE, name)
        return make_admin(name) if name in self._admins else make_reader(name)


def parse_basic(header: str) -> tuple[str, bytes] | None:
    """Return user name and password of an ``Authorization`` header, None if it has none.

    >>> parse_basic("Basic YWRtaW46YTpi")
    ('admin', b'a:b')
    """
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:  # neither base64 nor UTF-8
        return None


def _rounds_of(password_hash: str) -> int:
    return get_rounds(password_hash) or 0


class _RememberedPasswords:
    """Passwords that were right, as keyed hashes; a changed stored hash makes one unknown.

    After their time they have to be checked again, but are not taken for guesses.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def key_of(self, password_hash: str, password: bytes) -> bytes:
        text = password_hash.encode() + b"\0" + password
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def has(self, key: bytes) -> bool:
        with self._lock:
            return self._until.get(key, 0.0) > self._seconds()

    def has_had(self, key: bytes | None) -> bool:
        with self._lock:
            return key in self._until

    def add(self, key: bytes) -> None:
        with self._lock:
            self._until[key] = self._seconds() + REMEMBER_SECONDS
            self._until.move_to_end(key)
            while len(self._until) > MAX_REMEMBERED:
                self._until.popitem(last=False)


class _WatchedUsers:
    """The users of a file that is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] | None = None
        self._users = UserFile()
        self._lock = threading.Lock()
        self.problem: str | None = None
        self.read()

    def read(self) -> UserFile:
        with self._lock:
            version = _read_version(self._path)
            if version != self._version:
                self._version, self._users = version, self._load()
            return self._users

    def _load(self) -> UserFile:
        reason: str | None = None
        try:
            users = parse_user_file(read_user_file(self._path))
        except (OSError, UnicodeError) as error:
            reason = render_file_error(error)
        if reason is not None:
            LOG.error("User file %s: cannot be read: %s; nobody can log in", self._path, reason)
            self.problem = f"{self._path} cannot be read: {reason}"
            return UserFile()
        self.problem = None if users.hashes else f"{self._path} has no user"
        for problem in users.problems:
            LOG.warning("User file %s: %s; ignoring the line", self._path, problem)
        if not users.hashes:
            LOG.warning(
                "User file %s: has no user, so nobody can log in; create one with "
                "'nodetracker-manage user set NAME'",
                self._path,
            )
        return users


def _read_version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
