"""Moves from the command line, beside two running agents."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import WORKLOAD
from tests.programs import Programs, Running, wait_until

GUEST = {
    "uuid": WORKLOAD,
    "name": "vm-1",
    "vcpus": 2,
    "memory_mb": 2048,
    "disk_gb": 20,
}
COLUMNS = [
    "uuid", "workload_uuid", "migration_type", "status", "source_host", "source_node", "dest_host",
    "dest_node", "source_claim", "dest_claim", "created_at", "workload_name",
]  # fmt: skip


class TwoHosts:
    """Two hosts on one database, and their agents."""

    def __init__(self, directory: Path) -> None:
        connection = f"sqlite:///{directory}/db.sqlite"
        self.hosts = {
            name: Programs(directory / name, connection, name, update_resources_interval=1)
            for name in ("alpha", "beta")
        }
        for name in self.hosts:
            self.write(name)
        self.manage = self.hosts["alpha"].manage
        self.ask = self.hosts["alpha"].ask
        self.hosts["alpha"].make_schema()

    def write(self, host: str, *guests: Any) -> None:
        node = {"nodename": host, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
        path = self.hosts[host].inventory
        path.write_text(yaml.safe_dump({"nodes": [node | {"guests": list(guests)}]}))

    def start(self, host: str) -> Running:
        agent = self.hosts[host].start()
        agent.wait_for("is ready")
        return agent

    def request(self, memory_mb: int, **body: Any) -> str:
        path = self.hosts["alpha"].directory / "request.json"
        resources = {"VCPU": 2, "MEMORY_MB": memory_mb, "DISK_GB": 20}
        body = {"workload": {"uuid": GUEST["uuid"]}, "resources": resources} | body
        path.write_text(json.dumps(body))
        return str(path)

    def claim(self) -> dict[str, Any]:
        claim: dict[str, Any] = self.ask("claim", "create", self.request(2048), "--host", "alpha")
        self.write("alpha", GUEST)
        wait_until(lambda: self.state(claim["uuid"]) == "confirmed")
        return claim

    def move(self, claim: dict[str, Any], kind: str, memory_mb: int = 2048) -> dict[str, Any]:
        move = {"type": kind, "source_claim": claim["uuid"]}
        request = self.request(memory_mb, migration=move, host="beta")
        migration: dict[str, Any] = self.ask("migration", "create", request)
        return migration

    def state(self, claim_uuid: str) -> str:
        return str(self.ask("claim", "show", claim_uuid)["state"])

    @property
    def used(self) -> tuple[int, int]:
        """Return what is used beyond what each host reserves."""
        alpha, beta = (row["memory_mb_used"] - 512 for row in self.ask("node", "list"))
        return alpha, beta


@pytest.fixture
def two_hosts(tmp_path: Path) -> TwoHosts:
    return TwoHosts(tmp_path)


def test_a_live_migration_and_one_that_is_reverted(two_hosts: TwoHosts) -> None:
    with two_hosts.start("alpha") as alpha, two_hosts.start("beta") as beta:
        claim = two_hosts.claim()
        migration = two_hosts.move(claim, "live-migration")
        assert list(migration) == COLUMNS
        assert (migration["status"], migration["migration_type"]) == ("accepted", "live-migration")
        assert (migration["source_host"], migration["dest_host"]) == ("alpha", "beta")
        assert two_hosts.used == (2048, 2048)
        refused = two_hosts.manage("claim", "abort", claim["uuid"])
        assert refused.returncode == 1
        assert f"is the source of migration {migration['uuid']}" in refused.stderr
        two_hosts.write("beta", GUEST)
        wait_until(lambda: two_hosts.state(migration["dest_claim"]) == "confirmed")
        status = ("migration", "set", migration["uuid"], "--status", "finished")
        assert two_hosts.ask(*status)["status"] == "finished"
        assert two_hosts.ask("migration", "confirm", migration["uuid"])["status"] == "confirmed"
        assert two_hosts.used == (2048, 2048)  # the source's guest counts by itself
        two_hosts.write("alpha")
        wait_until(lambda: two_hosts.used == (0, 2048))
        assert two_hosts.ask("migration", "confirm", migration["uuid"])["status"] == "confirmed"
        done = two_hosts.manage("migration", "revert", migration["uuid"])
        told = f"migration {migration['uuid']} is confirmed"
        assert (done.returncode, done.stderr.strip()) == (1, told)

        back = {"type": "migration", "source_claim": migration["dest_claim"]}
        request = two_hosts.request(4096, migration=back)
        second = two_hosts.ask("migration", "create", request, "--host", "alpha")
        assert two_hosts.used == (4096, 2048)
        assert two_hosts.ask("migration", "revert", second["uuid"])["status"] == "reverted"
        assert two_hosts.used == (0, 2048)
        listed = two_hosts.ask("migration", "list")
        assert [row["status"] for row in listed] == ["confirmed", "reverted"]
        assert listed[0] == two_hosts.ask("migration", "show", migration["uuid"])
        assert two_hosts.ask("migration", "list", "--status", "reverted") == [listed[1]]
        assert two_hosts.ask("warning", "list") == []
        for agent in (alpha, beta):
            assert agent.stop() == 0
            assert "Traceback" not in agent.output()


def test_an_evacuation_outlives_the_death_of_both_agents(two_hosts: TwoHosts) -> None:
    with two_hosts.start("alpha") as alpha, two_hosts.start("beta") as beta:
        claim = two_hosts.claim()
        alpha.stop(signal.SIGKILL)
        migration = two_hosts.move(claim, "evacuation", 3072)
        assert two_hosts.used == (2048, 3072)
        beta.stop(signal.SIGKILL)
        two_hosts.write("beta", GUEST)
        assert two_hosts.ask("migration", "confirm", migration["uuid"])["status"] == "done"
        assert two_hosts.used == (2048, 3072)
        assert two_hosts.state(claim["uuid"]) == "released"
    with two_hosts.start("alpha"), two_hosts.start("beta"):
        assert two_hosts.used == (2048, 3072)  # the host came back with the guest still on it
        two_hosts.write("alpha")
        wait_until(lambda: two_hosts.used == (0, 3072))
