"""An agent that is killed by SIGKILL after each single write of a move and of a removal."""

import json
import signal
import sqlite3
import uuid
from contextlib import closing

import pytest

from tests.functional.servers.faulty_proxy import FaultyProxy
from tests.programs import Programs, wait_until

CARD = {
    "address": "0000:81:00.0", "vendor_id": "8086", "product_id": "10fb", "dev_type": "type-PCI",
}  # fmt: skip
SPEC = '[pci]\nreport_in_placement = true\ndevice_spec = {"product_id": "10fb"}\n'


class Cloud:
    """An agent whose requests to placement pass a proxy, and its two nodes, one with a card."""

    def __init__(self, directory, placement):
        self.placement, self.directory = placement, directory
        self.proxy = FaultyProxy(placement.process.port)
        self.names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "dest")]
        self.programs = Programs(directory / "agent")
        self.programs.make_schema()
        configuration = placement.configuration(self.proxy.port)
        self.programs.configure(f"service_down_time = 9999\n{configuration}{SPEC}")
        self.write(*self.names)

    def write(self, *names):
        size = {"vcpus": 8, "memory_mb": 8192, "disk_gb": 80}
        nodes = [{"nodename": name, "pci_devices": [CARD]} | size for name in names]
        self.programs.inventory.write_text(json.dumps({"nodes": nodes}))

    def request(self, noun, name, **more):
        """Create a claim or a migration, as while an agent runs; return what the ledger stored."""
        self.change("UPDATE services SET ended_epoch = NULL")
        body = {"workload": {"uuid": self.workload}, "resources": {"VCPU": 2}} | more
        path = self.directory / f"{uuid.uuid4()}.json"
        path.write_text(json.dumps(body))
        where = ("--host", "host-1", "--node", name)
        return self.programs.ask(noun, "create", str(path), *where)

    def run_killed(self):
        """Audit once, killed after the first write, until there is none; return the writes."""
        writes = []
        while True:
            count = len(writes)
            with self.programs.start("nodetracker-compute", "--once") as agent:

                def kill(method, path, agent=agent, count=count):
                    subject = path.split("/")[1]
                    if method == "GET" or subject == "resource_classes":  # repeated by each process
                        return
                    if len(writes) == count:
                        writes.append(f"{method} {subject}")
                        agent.process.send_signal(signal.SIGKILL)

                self.proxy.after = kill
                code = agent.process.wait(60)
            self.end_leases()
            if len(writes) == count:
                assert code == 0, agent.output()
                return writes

    def delete(self, name):
        """Delete a node's row; return False while its agent counts as alive."""
        command = ("nodetracker-manage", "node", "delete", "host-1", name)
        done = self.programs.run(*command, OS_DEFAULT__SERVICE_DOWN_TIME="2")
        assert done.returncode == 0 or "is up" in done.stderr, done.stderr
        return done.returncode == 0

    def end_leases(self):
        """Let the time pass for which a dead process holds its removals."""
        self.change("UPDATE provider_removals SET lease_until = NULL")

    def change(self, statement):
        with closing(sqlite3.connect(self.programs.directory / "db.sqlite")) as database:
            database.execute(statement)
            database.commit()

    def find(self, name):
        """Return the uuid of a node's provider, None without it."""
        found = self.placement.get(f"/resource_providers?name={name}")["resource_providers"]
        return found[0]["uuid"] if found else None

    def read(self, consumer):
        """Return what a consumer has: uuid of a provider -> amounts."""
        allocations = self.placement.get(f"/allocations/{consumer}")["allocations"]
        return {provider: entry["resources"] for provider, entry in allocations.items()}


@pytest.fixture
def cloud(tmp_path, placement):
    cloud = Cloud(tmp_path, placement)
    cloud.workload = str(uuid.uuid4())
    yield cloud
    cloud.proxy.close()


def test_the_next_run_ends_in_the_same_state(cloud) -> None:
    source, dest = cloud.names
    assert cloud.programs.run("nodetracker-compute", "--once").returncode == 0
    claim = cloud.request("claim", source)
    assert cloud.programs.run("nodetracker-compute", "--once").returncode == 0
    first, second = cloud.find(source), cloud.find(dest)
    two = {"VCPU": 2}
    assert cloud.read(cloud.workload) == {first: two}

    move = cloud.request(
        "migration", dest, migration={"type": "migration", "source_claim": claim["uuid"]}
    )
    assert "POST allocations" in cloud.run_killed()
    assert cloud.read(move["uuid"]) == {first: two}
    assert cloud.read(cloud.workload) == {second: two}

    assert cloud.programs.manage("migration", "confirm", move["uuid"]).returncode == 0
    wait_until(lambda: cloud.delete(source))
    cloud.write(dest)
    assert cloud.run_killed() == ["POST allocations", *["DELETE resource_providers"] * 2]
    assert cloud.find(source) is None
    assert cloud.find(f"{source}_{CARD['address']}") is None
    assert cloud.read(move["uuid"]) == {}
    assert cloud.read(cloud.workload) == {second: two}
    assert cloud.programs.ask("placement", "audit") == []
