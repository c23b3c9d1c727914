"""Claims from the command line, beside a running agent."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import WORKLOAD
from tests.programs import Programs, wait_until

GUEST = {
    "uuid": WORKLOAD,
    "name": "vm-1",
    "vcpus": 2,
    "memory_mb": 2048,
    "disk_gb": 20,
    "project_id": "p1",
}
NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    programs = Programs(tmp_path, update_resources_interval=1)
    write(programs)
    programs.make_schema()
    return programs


def write(programs: Programs, *guests: Any) -> None:
    programs.inventory.write_text(yaml.safe_dump({"nodes": [NODE | {"guests": list(guests)}]}))


def ask(programs: Programs, **body: Any) -> str:
    path = programs.directory / "request.json"
    path.write_text(json.dumps({"workload": {"uuid": GUEST["uuid"], "project_id": "p1"}} | body))
    return str(path)


def memory_used(programs: Programs) -> int:
    return int(programs.ask("node", "list")[0]["memory_mb_used"])


def test_a_claim_from_its_birth_to_its_end(programs: Programs) -> None:
    with programs.start() as agent:
        agent.wait_for("is ready")
        request = ask(programs, resources={"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20})
        claim = programs.ask("claim", "create", request, "--host", "host-1")
        assert (claim["state"], claim["host"], claim["nodename"]) == ("held", "host-1", "node-1")
        assert (claim["vcpus"], claim["memory_mb"], claim["disk_gb"]) == (2, 2048, 20)
        assert memory_used(programs) == 512 + 2048
        write(programs, GUEST)
        wait_until(lambda: programs.ask("claim", "show", claim["uuid"])["state"] == "confirmed")
        assert memory_used(programs) == 512 + 2048
        (workload,) = programs.ask("workload", "list")
        assert (workload["claimed"], workload["power_state"]) == (True, "running")
        assert programs.ask("workload", "list", "--unclaimed") == []
        aborted = programs.ask("claim", "abort", claim["uuid"])
        assert (aborted["state"], aborted["reason"]) == ("released", "aborted")
        assert memory_used(programs) == 512 + 2048  # the guest counts by itself
        (workload,) = programs.ask("workload", "list", "--unclaimed")
        assert workload["uuid"] == GUEST["uuid"]
        shown = {row["project"]: row["memory_mb"] for row in programs.ask("host", "show", "host-1")}
        assert (shown["(used_now)"], shown["(unclaimed)"], shown["p1"]) == (2560, 2048, 2048)
        write(programs)
        wait_until(lambda: memory_used(programs) == 512)
        assert agent.stop() == 0
        assert "Traceback" not in agent.output()


def test_claims_are_reconciled_with_guests_only_on_demand(programs: Programs) -> None:
    other = GUEST | {"uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b12", "memory_mb": 40960}
    with programs.start() as agent:
        agent.wait_for("is ready")
        claim = programs.ask("claim", "create", ask(programs, resources={"MEMORY_MB": 2048}))
        programs.ask("claim", "confirm", claim["uuid"])
        write(programs, GUEST)
        wait_until(lambda: programs.ask("workload", "list")[0]["power_state"] == "running")
        assert programs.ask("db", "reconcile") == []
        write(programs, other)
        wait_until(lambda: len(programs.ask("db", "reconcile", "--host", "host-1")) == 2)
        missing, unclaimed = programs.ask("db", "reconcile")
        assert (missing["what"], missing["claim_uuid"]) == ("missing_guest", claim["uuid"])
        assert (unclaimed["what"], unclaimed["uuid"]) == ("unclaimed_guest", other["uuid"])
        assert (missing["result"], unclaimed["result"]) == ("", "")
        missing, unclaimed = programs.ask("db", "reconcile", "--release", "--adopt")
        assert (missing["result"], unclaimed["result"]) == ("released", "adopted")
        (adopted,) = programs.ask("claim", "list")
        assert (adopted["uuid"], adopted["state"]) == (unclaimed["claim_uuid"], "confirmed")
        assert (adopted["workload_uuid"], adopted["memory_mb"]) == (other["uuid"], 40960)
        assert programs.ask("db", "reconcile") == []
        assert memory_used(programs) == 512 + 40960
        assert agent.stop() == 0
    assert "host host-1 is down" in programs.manage("db", "reconcile").stderr
    assert programs.manage("db", "reconcile", "--host", "nowhere").returncode == 1


def test_claims_of_a_node_that_is_no_longer_listed_are_released_once_somebody_agrees(
    programs: Programs,
) -> None:
    stays, gone = NODE, NODE | {"nodename": "node-2", "guests": [GUEST]}
    programs.inventory.write_text(yaml.safe_dump({"nodes": [stays, gone]}))
    with programs.start() as agent:
        agent.wait_for("is ready")
        claims = []
        for number in range(2):
            workload = {"uuid": GUEST["uuid"][:-1] + str(number)}
            request = ask(programs, workload=workload, resources={"VCPU": 1})
            options = "--host", "host-1", "--node", "node-2"
            claims.append(programs.ask("claim", "create", request, *options)["uuid"])
        programs.ask("claim", "confirm", claims[0])
        programs.inventory.write_text(yaml.safe_dump({"nodes": [stays]}))
        wait_until(lambda: len(programs.ask("db", "reconcile")) == 2)
        found = programs.ask("db", "reconcile", "--release", "--adopt")
        assert {row["claim_uuid"] for row in found} == set(claims)
        assert {(row["what"], row["result"]) for row in found} == {("orphan_node", "")}
        asked = programs.manage("db", "reconcile", "--release-orphans")
        assert asked.returncode == 2
        assert "Node node-2 of host host-1 is no longer listed: 2 claims" in asked.stderr
        assert len(programs.ask("claim", "list")) == 2
        found = programs.ask("db", "reconcile", "--release-orphans", "--yes")
        assert [row["result"] for row in found] == ["released", "released"]
        wait_until(lambda: [n["nodename"] for n in programs.ask("node", "list")] == ["node-1"])
        assert programs.ask("db", "reconcile", "--release-orphans") == []
        assert agent.stop() == 0
