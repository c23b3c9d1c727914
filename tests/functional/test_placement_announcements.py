"""What other processes change reaches placement within a second where there is a broker."""

import json
import urllib.request
import uuid

from tests.builders import WORKLOAD
from tests.functional.servers.process import find_free_port
from tests.programs import Programs, wait_until


def send(port, method, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


def test_a_disabled_host_and_a_claim_are_reported_without_an_audits_interval(
    tmp_path, placement, rabbitmq
) -> None:
    name, port = f"n-{uuid.uuid4()}", find_free_port()
    programs = Programs(tmp_path)
    programs.make_schema()
    node = {"nodename": name, "vcpus": 4, "memory_mb": 4096, "disk_gb": 10}
    programs.inventory.write_text(json.dumps({"nodes": [node]}))
    programs.configure(
        f"transport_url = {rabbitmq.make_virtual_host('announcements')}\n"
        f"[api]\nport = {port}\nauth_strategy = noauth\n{placement.configuration()}",
        update_resources_interval=-1,  # audits only on demand
    )
    with programs.start() as agent, programs.start("nodetracker-api") as api:
        agent.wait_for("RPC is served")
        api.wait_for("Serving")
        record = programs.ask("node", "list", "--long")[0]
        path = f"/resource_providers/{record['uuid']}"

        def has_trait(trait):
            status, document = placement.request("GET", f"{path}/traits")
            return status == 200 and trait in document["traits"]

        wait_until(lambda: has_trait("COMPUTE_NODE"))
        (service,) = [s for s in send(port, "GET", "/services")["services"] if s["host"] == "host-1"
                      and s["binary"] == "nodetracker-compute"]  # fmt: skip
        for is_disabled in (True, False):
            send(port, "PATCH", f"/services/{service['id']}", {"disabled": is_disabled})
            wait_until(lambda: has_trait("COMPUTE_STATUS_DISABLED") is is_disabled)  # noqa: B023
        body = {"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 2}, "host": "host-1"}
        send(port, "POST", "/claims", body)
        wait_until(lambda: WORKLOAD in placement.get(f"{path}/allocations")["allocations"])
        assert "Traceback" not in agent.output() + api.output()
