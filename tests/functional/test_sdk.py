"""A request of each family as OpenStack's SDK sends it; tox -e clients runs all of the clients."""

import json

import openstack
import pytest
from keystoneauth1.adapter import Adapter

from tests.functional.servers.process import find_free_port
from tests.programs import Programs

NODES = [
    {"nodename": f"node-{number}", "vcpus": 4, "memory_mb": 2048, "disk_gb": 10}
    for number in (1, 2)
]


@pytest.fixture
def url(tmp_path):
    port = find_free_port()
    extra = f"service_down_time = 600\n[api]\nport = {port}\nauth_strategy = noauth"
    programs = Programs(tmp_path, extra=extra)
    programs.inventory.write_text(json.dumps({"nodes": NODES}))
    programs.make_schema()
    with programs.start() as agent, programs.start("nodetracker-api") as served:
        agent.wait_for("is ready")
        served.wait_for("Serving on")
        yield f"http://127.0.0.1:{port}"


def test_the_sdk_reads_and_changes_each_family(url):
    endpoint = f"{url}/v2.1"
    cloud = openstack.connect(
        load_yaml_config=False, load_envvars=False, auth_type="none",
        auth={"endpoint": endpoint}, compute_endpoint_override=endpoint,
    )  # fmt: skip
    compute = cloud.compute
    shown = [(found.name, found.state) for found in compute.hypervisors(details=True, limit=1)]
    assert sorted(shown) == [("node-1", "up"), ("node-2", "up")]
    assert compute.find_hypervisor("node-2", ignore_missing=False).status == "enabled"
    service = compute.find_service("nova-compute", ignore_missing=False, host="host-1")
    compute.disable_service(service, disabled_reason="new disk")
    service = compute.find_service("nova-compute", ignore_missing=False, host="host-1")
    assert (service.status, service.disabled_reason) == ("disabled", "new disk")
    assert "nova" in [zone.name for zone in compute.availability_zones(details=True)]
    container = Adapter(
        cloud.session, endpoint_override=f"{url}/container/v1", default_microversion="1.40",
        service_type="container",
    )  # fmt: skip
    hosts = container.get("/hosts/").json()["hosts"]
    assert {(host["hostname"], host["cpus"]) for host in hosts} == {("node-1", 4), ("node-2", 4)}
    agents = cloud.session.get(f"{url}/v1/services?binary=nodetracker-compute").json()
    assert [agent["disabled_reason"] for agent in agents["services"]] == ["new disk"]
