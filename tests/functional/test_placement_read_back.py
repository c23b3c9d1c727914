"""What osc-placement's commands show of a node agrees with its row and its ledger."""

import json
import uuid
from types import SimpleNamespace

import pytest
from keystoneauth1 import session
from keystoneauth1.token_endpoint import Token
from osc_placement.http import SessionClient
from osc_placement.resources.allocation import ShowAllocation
from osc_placement.resources.allocation_candidate import ListAllocationCandidate
from osc_placement.resources.inventory import ListInventory
from osc_placement.resources.resource_provider import ListResourceProvider
from osc_placement.resources.trait import ListResourceProviderTrait
from osc_placement.resources.usage import ShowUsage

from tests.functional.servers.placement import TOKEN
from tests.functional.test_placement_commands import Cloud

CARD, GPU = "0000:81:00.0", "0000:c1:00.0"
NICS = [
    {"address": f"0000:81:10.{number}", "vendor_id": "8086", "product_id": "10ed",
     "dev_type": "type-VF", "parent_addr": CARD}
    for number in range(2)
]  # fmt: skip
DEVICES = [
    {"address": CARD, "vendor_id": "8086", "product_id": "10fb", "dev_type": "type-PF"},
    *NICS,
    {"address": GPU, "vendor_id": "10de", "product_id": "2330", "dev_type": "type-PCI"},
]
PCI = """\
[pci]
report_in_placement = true
device_spec = {"product_id": "10ed", "traits": "gold"}
device_spec = {"product_id": "2330", "resource_class": "gpu", "one_time_use": "true"}
alias = {"name": "nic", "product_id": "10ed", "vendor_id": "8086", "device_type": "type-VF"}
alias = {"name": "gpu", "product_id": "2330", "vendor_id": "10de"}
"""


class Openstack:
    """Runs osc-placement's commands in process."""

    def __init__(self, url):
        authenticated = session.Session(auth=Token(url, TOKEN))
        client = SessionClient(authenticated, {"service_type": "placement"}, api_version="1.38")
        manager = SimpleNamespace(session=authenticated, placement=client)
        self.app = SimpleNamespace(client_manager=manager)

    def list(self, command, *arguments):
        """Return the rows of a command as dicts."""
        instance = command(self.app, None)
        columns, rows = instance.take_action(instance.get_parser("openstack").parse_args(arguments))
        return [dict(zip(columns, row, strict=True)) for row in rows]


@pytest.fixture
def cloud(tmp_path, placement):
    cloud = Cloud(tmp_path, placement)
    cloud.write(cloud.name, pci_devices=DEVICES)
    cloud.programs.configure("service_down_time = 9999\n" + placement.configuration() + PCI)
    cloud.audit_once()
    return cloud


def claim(cloud, *aliases):
    """Claim CPUs and devices; return the claim."""
    body = {
        "workload": {"uuid": str(uuid.uuid4()), "project_id": "p1", "user_id": "u1"},
        "resources": {"VCPU": 2, "MEMORY_MB": 2048},
        "pci_requests": [{"alias": alias} for alias in aliases],
    }
    path = cloud.programs.directory / "claim.json"
    path.write_text(json.dumps(body))
    done = cloud.programs.manage("claim", "create", str(path), "--host", "host-1", "-f", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_inventories_traits_usages_and_candidates_agree_with_the_ledger(cloud) -> None:
    openstack = Openstack(cloud.placement.url)
    created = claim(cloud, "nic", "gpu")
    cloud.manage("heal")
    assert cloud.manage("audit") == []
    node = cloud.programs.ask("node", "show", "host-1", cloud.name)
    children = {a: str(uuid.uuid5(uuid.UUID(cloud.uuid), a)) for a in (CARD, GPU)}
    tree = openstack.list(ListResourceProvider, "--in-tree", cloud.uuid)
    assert {row["uuid"] for row in tree} == {cloud.uuid, *children.values()}

    def inventories(provider):
        found = openstack.list(ListInventory, provider)
        return {row["resource_class"]: row for row in found}

    root = inventories(cloud.uuid)
    assert {name: row["total"] for name, row in root.items()} == {
        "VCPU": node["vcpus"], "MEMORY_MB": node["memory_mb"], "DISK_GB": node["local_gb"]
    }  # fmt: skip
    assert root["VCPU"]["allocation_ratio"] == node["cpu_allocation_ratio"]
    used = {row["resource_class"]: row["usage"] for row in openstack.list(ShowUsage, cloud.uuid)}
    assert used["VCPU"] == node["vcpus_used"] == 2
    assert used["MEMORY_MB"] + root["MEMORY_MB"]["reserved"] == node["memory_mb_used"]
    nic, gpu = inventories(children[CARD])["CUSTOM_PCI_8086_10ED"], inventories(children[GPU])
    assert (nic["total"], nic["reserved"], nic["used"]) == (2, 0, 1)
    gpu = gpu["CUSTOM_GPU"]
    assert (gpu["total"], gpu["reserved"], gpu["used"]) == (1, 1, 1)
    traits = {row["name"] for row in openstack.list(ListResourceProviderTrait, children[GPU])}
    assert traits == {"COMPUTE_MANAGED_PCI_DEVICE", "HW_PCI_ONE_TIME_USE"}
    held = openstack.list(ShowAllocation, created["workload_uuid"])
    assert {row["resource_provider"]: row["resources"] for row in held} == {
        cloud.uuid: {"VCPU": 2, "MEMORY_MB": 2048},
        children[CARD]: {"CUSTOM_PCI_8086_10ED": 1},
        children[GPU]: {"CUSTOM_GPU": 1},
    }
    assert {row["consumer_type"] for row in held} == {"NODETRACKER_INSTANCE"}

    def candidates(**amounts):
        arguments = [f"--resource={name}={amount}" for name, amount in amounts.items()]
        found = openstack.list(ListAllocationCandidate, *arguments)
        return cloud.uuid in {row["resource provider"] for row in found}

    free = int(node["vcpus"] * node["cpu_allocation_ratio"]) - node["vcpus_used"]
    assert candidates(VCPU=min(free, node["vcpus"]), CUSTOM_PCI_8086_10ED=1)
    assert not candidates(VCPU=1, CUSTOM_PCI_8086_10ED=2)
    assert not candidates(VCPU=1, CUSTOM_GPU=1)
    done = cloud.programs.manage("claim", "abort", created["uuid"])
    assert done.returncode == 0, done.stderr
    cloud.manage("heal")
    assert candidates(VCPU=1, CUSTOM_PCI_8086_10ED=2)
    assert not candidates(VCPU=1, CUSTOM_GPU=1)  # used once
