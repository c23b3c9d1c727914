"""Find the hosts of credentials before the bodies of calls are read.

What is found here only admits a body. Each call compares its credential in its own
transaction, so that a revoked one writes nothing, however long it is remembered here.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from nodetracker.model.credential import hash_secret
from nodetracker.web.wsgi import start_threads

REMEMBERED_SECONDS = 30.0
"""Longer than agents wait between heartbeats, each of which is a use."""


class KnownHosts:
    """The hosts of credentials; those not remembered are looked up together, in one statement.

    So many strangers cost the database no more than one, and nobody queues behind them.

    Args:
        find_hosts: as `CredentialStore.find_hosts`; called in a thread.
    """

    def __init__(
        self,
        find_hosts: Callable[[Collection[str]], Mapping[str, str]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_hosts = find_hosts
        self._monotonic = monotonic
        self._executor = ThreadPoolExecutor(1, "credentials")
        self._known: dict[str, tuple[str, float]] = {}
        self._pruned_at = monotonic()
        self._wanted: dict[str, asyncio.Future[str | None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the thread; raises ExhaustedError."""
        start_threads(self._executor, 1)

    async def find(self, authorization: bytes) -> str | None:
        """Return the host of a header, None if it has no known credential.

        Raises:
            NodetrackerError: the database did not answer.
        """
        secret_hash = read_credential_hash(authorization.decode("latin-1"))
        if secret_hash is None:
            return None
        host, until = self._known.get(secret_hash, (None, 0.0))
        if self._monotonic() < until:
            return host
        wanted = self._wanted.get(secret_hash)
        if wanted is None:
            wanted = self._wanted[secret_hash] = asyncio.get_running_loop().create_future()
            wanted.add_done_callback(_note_error)
        if self._task is None:
            self._task = asyncio.create_task(self._look_up())
        return await asyncio.shield(wanted)

    def remember(self, secret_hash: str, host: str) -> None:
        """Note a credential that a call was made with; any thread may call it."""
        self._known[secret_hash] = host, self._monotonic() + REMEMBERED_SECONDS

    def forget(self, secret_hash: str) -> None:
        """Note that a credential was refused; any thread may call it."""
        self._known.pop(secret_hash, None)

    async def _look_up(self) -> None:
        """Look up what is wanted, and what was wanted meanwhile."""
        loop = asyncio.get_running_loop()
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            error: Exception | None = None
            found: Mapping[str, str] = {}
            try:
                found = await loop.run_in_executor(self._executor, self._find_hosts, [*wanted])
            except Exception as raised:  # those who wait for it raise it
                error = raised
            for secret_hash, host in found.items():
                self.remember(secret_hash, host)
            for secret_hash, future in wanted.items():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(found.get(secret_hash))
            self._prune()
        self._task = None

    def _prune(self) -> None:
        now = self._monotonic()
        if now - self._pruned_at < REMEMBERED_SECONDS:
            return
        self._pruned_at = now
        for secret_hash, (_, until) in [*self._known.items()]:
            if until <= now:
                self.forget(secret_hash)


def read_credential_hash(authorization: str) -> str | None:
    """Return what is stored of the credential in a header, None if it has none."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        return None
    return hash_secret(secret.strip())


def _note_error(future: "asyncio.Future[str | None]") -> None:
    """Read the error of a future for which nobody waits any more, or asyncio logs it."""
    if not future.cancelled():
        future.exception()
