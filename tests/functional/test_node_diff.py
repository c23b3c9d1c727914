"""``node diff`` next to a running agent, with a guest larger than its claim and a claim without one."""

import json
from pathlib import Path

from tests.programs import Programs, wait_until

WEB, DB, OWN = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2, 3))


def test_a_node_s_differences_are_named_with_the_workloads_that_cause_them(tmp_path: Path) -> None:
    programs = Programs(tmp_path, update_resources_interval=1)
    guests = [
        {"uuid": WEB, "name": "web", "vcpus": 4, "memory_mb": 2048, "disk_gb": 20},
        {"uuid": OWN, "name": "own", "vcpus": 1, "memory_mb": 256, "disk_gb": 1},
    ]
    node = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
    programs.inventory.write_text(json.dumps({"nodes": [node | {"guests": guests}]}))
    programs.make_schema()
    with programs.start() as agent:
        agent.wait_for("is ready")
        for workload, disk in ((WEB, {"root_gb": 20}), (DB, {"swap_mb": 512})):
            request = tmp_path / "request.json"
            wanted = {"VCPU": 2, "MEMORY_MB": 2048}
            request.write_text(
                json.dumps({"workload": {"uuid": workload}, "resources": wanted, "disk": disk})
            )
            programs.ask("claim", "create", str(request), "--host", "host-1")
        wait_until(lambda: programs.ask("node", "diff", "host-1")[0]["ledger"] == 7)
        assert programs.ask("node", "diff", "host-1", "node-1") == [
            {"resource": "VCPU", "row_used": 7, "ledger": 7, "hypervisor": 5, "placement": None, "difference": 2,
             "workloads": f"{DB} +2"},
            {"resource": "PCPU", "row_used": 0, "ledger": 0, "hypervisor": None, "placement": None, "difference": 0,
             "workloads": ""},
            {"resource": "MEMORY_MB", "row_used": 4864, "ledger": 4864, "hypervisor": 2816, "placement": None,
             "difference": 2048, "workloads": f"{DB} +2048"},
            {"resource": "DISK_GB", "row_used": 21.5, "ledger": 21.5, "hypervisor": 21, "placement": None,
             "difference": 0.5, "workloads": f"{DB} +0.5"},
        ]  # fmt: skip

        def read_drift() -> dict[str, str]:
            return {row["item"]: row["message"] for row in programs.ask("warning", "list")}

        wait_until(lambda: WEB in read_drift())
        drift = read_drift()
        assert "is larger than its claim" in drift[WEB]
        assert "4 CPUs instead of 2" in drift[WEB]
        assert agent.stop() == 0
    missing = programs.manage("node", "diff", "host-1", "ghost")
    assert (missing.returncode, missing.stderr.strip()) == (
        1,
        "no such node: ghost on host host-1",
    )
