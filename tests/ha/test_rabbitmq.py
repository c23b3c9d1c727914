"""Agents whose message broker is a cluster with quorum queues, members of which fail."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from tests.functional.conductors import NODE
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.functional.test_notifications import Listener
from tests.functional.test_rpc import with_rabbit, without_rabbit
from tests.ha.load import is_over
from tests.ha.rabbitmq import RabbitCluster
from tests.programs import Programs, Running, wait_until

INTERVAL = 20
"""Seconds between heartbeats, so that an answer within less came by a wake-up."""
OPTIONS = {"rabbit_quorum_queue": True, "rabbit_transient_quorum_queue": True}


class Host(Programs):
    """A host that is woken, and tells what happens, through the cluster."""

    def __init__(
        self,
        directory: Path,
        cluster: RabbitCluster,
        topic: str,
        name: str,
        connection: str,
        report_interval: int = 1,
    ) -> None:
        options = "".join(f"{option} = {value}\n" for option, value in OPTIONS.items())
        extra = (
            f"transport_url = {cluster.url}\n[oslo_messaging_rabbit]\n{options}"
            f"[oslo_messaging_notifications]\ndriver = messagingv2\ntopics = {topic}"
        )
        super().__init__(directory, connection, name, extra=extra, update_resources_interval=1)
        text = self.path.read_text()
        if report_interval > 1:  # and whose audits take no calls
            text = text.replace("report_interval = 1\n", f"report_interval = {report_interval}\n")
            text = text.replace("resources_interval = 1\n", "resources_interval = -1\n")
        self.path.write_text(text)
        self.set_vcpus(8)

    def set_vcpus(self, vcpus: int) -> None:
        """Change the node."""
        self.inventory.write_text(json.dumps({"nodes": [NODE | {"vcpus": vcpus}]}))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitCluster]:
    cluster = RabbitCluster()
    yield cluster
    cluster.remove()


@pytest.fixture
def quorum() -> Iterator[None]:
    with_rabbit(**OPTIONS)
    yield
    without_rabbit()


def find_member(cluster: RabbitCluster, agent: Running) -> RabbitMQ:
    """Return the member to which most connections of an agent lead."""
    ports = [
        connection.raddr.port
        for connection in psutil.Process(agent.process.pid).net_connections()
        if connection.raddr
    ]
    return max(cluster.members, key=lambda member: ports.count(member.process.port))


def kill(count: int) -> Callable[[RabbitCluster, RabbitMQ], Callable[[], None]]:
    def break_it(cluster: RabbitCluster, first: RabbitMQ) -> Callable[[], None]:
        others = [member for member in cluster.members if member is not first]
        killed = [first, *others][:count]
        cluster.kill(killed)
        return lambda: cluster.start(killed)

    return break_it


def set_apart(cluster: RabbitCluster, first: RabbitMQ) -> Callable[[], None]:
    cluster.set_apart(first, True)
    return lambda: cluster.set_apart(first, False)


FAULTS = {"one killed": kill(1), "two killed": kill(2), "all killed": kill(3), "apart": set_apart}
AWAY = ("two killed", "all killed")
"""Those in which no broker is reached, as one without the others pauses."""


@pytest.mark.usefixtures("quorum")
@pytest.mark.parametrize("fault", FAULTS)
def test_agents_go_on_and_what_waits_arrives_when_the_cluster_is_back(
    cluster: RabbitCluster, tmp_path: Path, report: list[str], fault: str
) -> None:
    topic = fault.replace(" ", "-")
    connection = f"sqlite:///{tmp_path}/db.sqlite"
    host, slow, caller = (
        Host(tmp_path / name, cluster, topic, name, connection, interval)
        for name, interval in (("host-1", 1), ("host-2", INTERVAL), ("ctl", 1))
    )
    host.make_schema()

    def audit() -> float:
        """Let the agent with slow heartbeats audit; return how long that took."""
        began = time.monotonic()
        (row,) = caller.ask("node", "audit", slow.host)
        assert row["outcome"] in ("unchanged", "update")
        return time.monotonic() - began

    with (
        host.start() as agent,
        slow.start() as slow_agent,
        closing(open_store(DatabaseSettings(connection))) as store,
    ):
        for each in (agent, slow_agent):
            each.wait_for("RPC is served")
        follow(store, host, 9)
        assert audit() < INTERVAL
        mend = FAULTS[fault](cluster, find_member(cluster, agent))
        began = time.monotonic()
        for each in (agent, slow_agent) if fault in AWAY else ():
            each.wait_for(" The message broker cluster at ")
        for vcpus in (10, 11):
            follow(store, host, vcpus)
        during = audit()
        mend()
        mended = time.monotonic()
        follow(store, host, 12)
        woken = audit()
        while woken > INTERVAL:
            woken = audit()
        woken_after = time.monotonic() - mended
        listener = Listener(cluster.url, topic)
        wait_until(lambda: (11, 12) in list_changes(listener, "host-1"))
        heard_after = time.monotonic() - mended
        listener.stop()
        for each in (agent, slow_agent):
            wait_until(lambda each=each: is_over(each.output(), "The message broker"))
            assert each.stop() == 0, each.output()
            assert each.output().count(" The message broker") == 2 * (fault in AWAY)
            check_notifications(each.output())
    changes = list_changes(listener, "host-1")
    assert list(dict.fromkeys(changes)) == [(8, 9), (9, 10), (10, 11), (11, 12)]
    report.append(
        f"{fault}: away for {mended - began:.1f} s, a call took {during:.1f} s meanwhile; after "
        f"its end agents are woken after {woken_after:.1f} s, all notifications are there after "
        f"{heard_after:.1f} s"
    )


def follow(store: SqlStore, host: Host, vcpus: int) -> None:
    """Change a host's node, and wait until its agent has stored that and sent a heartbeat."""
    (before,) = store.list_services(host.host)
    host.set_vcpus(vcpus)
    wait_until(lambda: store.load_nodes(host.host)[0].values.vcpus == vcpus)
    wait_until(lambda: store.list_services(host.host)[0].report_count > before.report_count)


def list_changes(listener: Listener, host: str) -> list[tuple[int, int]]:
    """Return the changes of a host's CPUs that a listener heard of, in their order."""
    return [
        (payload["old"]["vcpus"], payload["new"]["vcpus"])
        for payload in listener.find("compute_node.update")
        if payload["host"] == host and "vcpus" in payload["new"]
    ]


def check_notifications(output: str) -> None:
    """Check that notifications that wait are logged once, and once that they are sent again."""
    lines = [line for line in output.splitlines() if "nodetracker.rpc.notify" in line]
    are_sent = ["are sent again" in line for line in lines]
    assert are_sent == [False, True] * (len(lines) // 2), lines
