"""A Galera cluster of real MariaDB servers."""

from pathlib import Path

from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import find_free_port, require, require_root, skip_or_fail

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")

# An isolated member learns within seconds that it has no quorum, and gives up causal reads.
_TIMEOUTS = (
    "evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;"
    "evs.inactive_check_period=PT0.5S;repl.causal_read_timeout=PT8S"
)


class Member(MariaDB):
    """A server of a cluster, which has the rows of the others once it is ready."""

    def _is_ready(self) -> bool:
        if not super()._is_ready():
            return False
        return self.execute("SHOW STATUS LIKE 'wsrep_ready'") == [("wsrep_ready", "ON")]


class Galera:
    """Members that replicate to each other, each with a copy of all rows."""

    def __init__(self, size: int = 3) -> None:
        require("rsync")
        require_root("start members that copy each other's files")
        if not PROVIDER.exists():
            skip_or_fail("needs galera-4: see bindep.txt")
        ports = [find_free_port() for _ in range(size)]
        self.members: list[Member] = []
        try:
            for port in ports:
                options = self._list_options(port, ports)
                # As root, rsync would write the copy as nobody.
                self.members.append(Member(options=options, user="mysql"))
        except BaseException:
            self.remove()
            raise

    def _list_options(self, port: int, ports: list[int]) -> list[str]:
        cluster = ",".join(f"127.0.0.1:{number}" for number in ports)
        options = [
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            "--wsrep-cluster-name=nodetracker",
            f"--wsrep-cluster-address=gcomm://{cluster}",
            f"--wsrep-node-address=127.0.0.1:{port}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{find_free_port()}",
            f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};"
            f"ist.recv_addr=127.0.0.1:{find_free_port()};gcache.size=8M;{_TIMEOUTS}",
        ]
        return options if self.members else [*options, "--wsrep-new-cluster"]

    def create_database(self, name: str) -> list[str]:
        """Create an empty database; return its URL through each member."""
        self.members[0].create_database(name)
        return [member.url(name) for member in self.members]

    def remove(self) -> None:
        """Stop all members and delete their files."""
        for member in self.members:
            member.remove()
