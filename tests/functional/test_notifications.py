"""What listeners on a real RabbitMQ are told, also after it was away."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nodetracker.rpc.transport import import_library
from tests.builders import WORKLOAD
from tests.contract.stores import make_url
from tests.functional.conductors import Conductor, Remote
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.programs import Programs, wait_until

NODE = {"nodename": "node-1", "vcpus": 8, "memory_mb": 16384, "disk_gb": 100}


class Listener:
    """Hears all notifications on a topic."""

    def __init__(self, url: str, topic: str) -> None:
        library = import_library()
        self.heard: list[tuple[str, str, dict[str, Any]]] = []
        heard = self.heard

        class Endpoint:
            def info(self, context, publisher, event_type, payload, metadata):  # type: ignore[no-untyped-def]
                heard.append((publisher, event_type, payload))

        transport = library.get_notification_transport(cfg.CONF, url=url)
        self._listener = library.get_notification_listener(
            transport, [library.Target(topic=topic)], [Endpoint()], executor="threading"
        )
        started = threading.Thread(target=self._listener.start, daemon=True)
        started.start()

    def find(self, event_type: str) -> list[dict[str, Any]]:
        """Return the payloads of one type."""
        return [payload for _, kind, payload in self.heard if kind == event_type]

    def wait_for(self, event_type: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many of a type were heard."""
        wait_until(lambda: len(self.find(event_type)) >= count, 60)
        return self.find(event_type)

    def stop(self) -> None:
        self._listener.stop()


class Host(Programs):
    """A host that tells what happens."""

    def __init__(self, directory: Path, url: str, topic: str) -> None:
        extra = (
            f"transport_url = {url}\n[oslo_messaging_notifications]\n"
            f"driver = messagingv2\ntopics = {topic}"
        )
        super().__init__(directory, extra=extra, update_resources_interval=1)
        self.list_nodes(NODE)
        self.make_schema()

    def list_nodes(self, *nodes: dict[str, Any]) -> None:
        self.inventory.write_text(json.dumps({"nodes": list(nodes)}))

    def claim(self, **resources: Any) -> Any:
        body = self.directory / "request.json"
        body.write_text(json.dumps({"workload": {"uuid": WORKLOAD}, "resources": resources}))
        return self.manage("claim", "create", str(body), "--host", self.host, "-f", "json")


@pytest.fixture
def listen() -> Iterator[Callable[[str, str], Listener]]:
    listeners: list[Listener] = []

    def make(url: str, topic: str) -> Listener:
        listeners.append(Listener(url, topic))
        return listeners[-1]

    yield make
    for listener in listeners:
        listener.stop()


def test_listeners_are_told_what_happens_to_nodes_claims_services_and_warnings(
    tmp_path: Path, rabbitmq: RabbitMQ, listen: Callable[[str, str], Listener]
) -> None:
    host = Host(tmp_path / "host", rabbitmq.url, "told")
    listener = listen(rabbitmq.url, "told")
    with host.start() as agent:
        (created,) = listener.wait_for("compute_node.create")
        assert (created["version"], created["nodename"], created["vcpus"]) == ("1.0", "node-1", 8)
        assert listener.wait_for("service.create")[0]["host"] == "host-1"
        host.list_nodes(NODE | {"vcpus": 12})
        updated = listener.wait_for("compute_node.update")[0]
        assert (updated["old"]["vcpus"], updated["new"]["vcpus"]) == (8, 12)
        claim = json.loads(host.claim(VCPU=2).stdout)
        assert listener.wait_for("claim.create")[0]["uuid"] == claim["uuid"]
        assert host.manage("claim", "abort", claim["uuid"]).returncode == 0
        assert listener.wait_for("claim.release")[0]["reason"] == "aborted"
        assert host.claim(VCPU=999).returncode == 1
        assert "Free vcpu" in listener.wait_for("claim.refuse")[0]["reasons"][0]
        assert host.manage("host", "set", "host-1", "--disable").returncode == 0
        changed = listener.wait_for("service.update")[-1]
        assert changed["old"] == {"disabled": False, "disabled_at": None, "disabled_by": None}
        assert changed["new"].keys() == changed["old"].keys()
        assert changed["new"]["disabled"] is True
        host.inventory.write_text("nodes: [")
        raised = listener.wait_for("warning.raise")
        assert {item["kind"] for item in raised} <= {"driver_not_ready", "fact_held"}
        host.list_nodes(NODE)
        listener.wait_for("warning.resolve", len(raised))
        host.list_nodes()
        assert listener.wait_for("compute_node.delete")[0]["nodename"] == "node-1"
        assert agent.stop() == 0
    publishers = {publisher for publisher, _, _ in listener.heard}
    assert publishers == {"compute:host-1", "manage:host-1"}


def test_one_audit_tells_what_it_wrote(
    tmp_path: Path, rabbitmq: RabbitMQ, listen: Callable[[str, str], Listener]
) -> None:
    host = Host(tmp_path / "host", rabbitmq.url, "once")
    listener = listen(rabbitmq.url, "once")
    names = [f"node-{number}" for number in range(200)]
    host.list_nodes(*(NODE | {"nodename": name} for name in names))
    done = host.run("nodetracker-compute", "--once")
    assert done.returncode == 0, done.stderr
    created = listener.wait_for("compute_node.create", len(names))
    assert sorted(node["nodename"] for node in created) == sorted(names)


def test_a_broker_that_is_away_delays_them_and_the_newest_state_arrives(
    tmp_path: Path, listen: Callable[[str, str], Listener]
) -> None:
    broker = RabbitMQ()
    try:
        host = Host(tmp_path / "host", broker.url, "away")
        with host.start() as agent:
            agent.wait_for("RPC is served")
            broker.stop()
            for vcpus in (10, 11, 12):
                host.list_nodes(NODE | {"vcpus": vcpus})
                wait_until(lambda vcpus=vcpus: host.ask("node", "list")[0]["vcpus"] == vcpus)
            done = host.manage("host", "set", "host-1", "--disable")
            assert done.returncode == 0
            assert "did not accept the notifications" in done.stderr
            broker.start()
            listener = listen(broker.url, "away")
            wait_until(
                lambda: any(
                    item["new"].get("vcpus") == 12 for item in listener.find("compute_node.update")
                ),
                90,
            )
            assert agent.stop() == 0
        lines = agent.output().splitlines()
        began, ended = (line for line in lines if "The message broker at" in line)
        assert " ERROR " in began
        assert "is back after" in ended
        assert [line for line in lines if "oslo.messaging" in line] == []
    finally:
        broker.remove()


def test_nothing_is_sent_where_none_is_wanted(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    host = Host(tmp_path / "host", rabbitmq.url, "silent")
    text = host.path.read_text().replace("driver = messagingv2\n", "")
    host.path.write_text(text)
    with host.start() as agent:
        agent.wait_for("RPC is served")
        assert agent.stop() == 0
    assert "silent" not in rabbitmq.count_messages()


def test_a_conductor_tells_what_it_writes_for_agents_without_a_broker(
    tmp_path: Path,
    rabbitmq: RabbitMQ,
    mariadb: MariaDB,
    request: pytest.FixtureRequest,
    listen: Callable[[str, str], Listener],
) -> None:
    conductor = Conductor(tmp_path / "conductor", make_url("mariadb", request, tmp_path))
    text = conductor.path.read_text().replace(
        "[conductor]",
        f"transport_url = {rabbitmq.url}\n[oslo_messaging_notifications]\n"
        "driver = messagingv2\ntopics = by-conductor\n[conductor]",
    )
    conductor.path.write_text(text)
    token = conductor.make_token()
    remote = Remote(tmp_path / "remote", conductor.endpoint, token, update_resources_interval=1)
    listener = listen(rabbitmq.url, "by-conductor")

    def list_nodes(*nodes: dict[str, Any]) -> None:
        remote.inventory.write_text(json.dumps({"nodes": list(nodes)}))

    with conductor.start_conductor() as running, remote.start() as agent:
        (created,) = listener.wait_for("compute_node.create")
        assert (created["host"], created["nodename"], created["vcpus"]) == ("host-1", "node-1", 16)
        list_nodes(NODE | {"vcpus": 12})
        updated = listener.wait_for("compute_node.update")[0]
        assert (updated["old"]["vcpus"], updated["new"]["vcpus"]) == (16, 12)
        listener.wait_for("compute.metrics.update")
        remote.inventory.write_text("nodes: [")
        raised = listener.wait_for("warning.raise")
        assert {item["kind"] for item in raised} <= {"driver_not_ready", "fact_held"}
        list_nodes(NODE)
        listener.wait_for("warning.resolve", len(raised))
        list_nodes()
        assert listener.wait_for("compute_node.delete")[0]["uuid"] == created["uuid"]
        assert agent.stop() == 0
        assert running.stop() == 0
    assert {publisher for publisher, _, _ in listener.heard} == {"conductor:c-1"}
    assert len(listener.find("compute_node.create")) == 1
