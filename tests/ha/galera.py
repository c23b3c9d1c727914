"""A Galera cluster of real MariaDB servers."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql

from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import (
    find_free_port,
    removed_on_failure,
    require,
    require_root,
    skip_or_fail,
)
from tests.threads import repeating

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")

# An isolated member learns within seconds that it has no quorum, and gives up causal reads.
SHORT_TIMEOUTS = (
    "evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;"
    "evs.inactive_check_period=PT0.5S;repl.causal_read_timeout=PT8S"
)


class Member(MariaDB):
    """A server of a cluster, which has the rows of the others once it is ready."""

    def __init__(self, options: Sequence[str], is_first: bool) -> None:
        # As root, rsync would write the copy as nobody.
        first = ["--wsrep-new-cluster"] if is_first else []
        super().__init__(options=[*options, *first], user="mysql")
        self._options = options  # of later starts

    def isolate(self, is_isolated: bool) -> None:
        """Cut its connections to the other members, or let it connect again; clients reach it."""
        self.execute(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={is_isolated:d}'")

    def lock(self) -> Any:
        """Return a connection that holds the read lock of a backup until it is closed."""
        connection = self.connect()
        connection.cursor().execute("FLUSH TABLES WITH READ LOCK")
        return connection

    def count_connections(self) -> int:
        """Return how many connections of nodetracker lead to it."""
        statement = "SELECT id FROM information_schema.processlist WHERE user = 'nodetracker'"
        return len(self.execute(statement))

    def read_membership(self) -> str | None:
        """Return the number of the cluster's last change that it knows, None if it is not synced."""
        try:
            status = dict(self.execute("SHOW STATUS LIKE 'wsrep%'"))
        except pymysql.err.OperationalError:
            return None
        is_synced = status["wsrep_local_state"] == "4" and status["wsrep_ready"] == "ON"
        return status["wsrep_cluster_conf_id"] if is_synced else None

    def _is_ready(self) -> bool:
        return super()._is_ready() and self.read_membership() is not None


class Galera:
    """Members that replicate to each other, each with a copy of all rows.

    Args:
        provider_options: further ones of Galera's library.
    """

    def __init__(self, size: int = 3, provider_options: str = SHORT_TIMEOUTS) -> None:
        require("rsync")
        require_root("start members that copy each other's files")
        if not PROVIDER.exists():
            skip_or_fail("needs galera-4: see bindep.txt")
        ports = [find_free_port() for _ in range(size)]
        self.members: list[Member] = []
        with removed_on_failure(self):
            for port in ports:
                options = self._list_options(port, ports, provider_options)
                self.members.append(Member(options, is_first=not self.members))

    def _list_options(self, port: int, ports: list[int], provider_options: str) -> list[str]:
        cluster = ",".join(f"127.0.0.1:{number}" for number in ports)
        return [
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            "--wsrep-cluster-name=nodetracker",
            f"--wsrep-cluster-address=gcomm://{cluster}",
            f"--wsrep-node-name=db{ports.index(port) + 1}",
            "--wsrep-sst-donor=db3,db2,",
            f"--wsrep-node-address=127.0.0.1:{port}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{find_free_port()}",
            f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};"
            f"ist.recv_addr=127.0.0.1:{find_free_port()};gcache.size=8M;{provider_options}",
        ]

    def create_database(self, name: str) -> list[str]:
        """Create an empty database; return its URL through each member."""
        self.members[0].create_database(name)
        return [member.url(name) for member in self.members]

    def is_whole(self) -> bool:
        """Return whether all members belong to the cluster and apply what others commit.

        One that goes on after it was frozen takes itself for synced for seconds, until it learns
        that the others have gone on without it.
        """
        (first, *others) = {member.read_membership() for member in self.members}
        return first is not None and not others

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Start members again that end by themselves, as systemd does.

        MariaDB 10.11 was seen to do so once it goes on after it was frozen among writes.
        """

        def start_crashed() -> None:
            for member in self.members:
                if member.process.has_crashed:
                    member.start()

        with repeating(start_crashed, 0.5):
            yield

    def remove(self) -> None:
        """Stop all members and delete their files."""
        for member in self.members:
            member.remove()
