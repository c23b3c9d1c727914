"""What osc-placement's commands show of a node agrees with its row and its ledger."""

import json
import uuid
from pathlib import Path

import pytest

from nodetracker.model.errors import ClaimRefusedError
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType
from tests.functional.read_back import Card, ReadBack
from tests.hosts.captures import HERE, unpack
from tests.programs import Programs

CAPTURE = "8amd64-1pa2n2c2t-sriov"
CARD, GPU = "0000:81:00.0", "0000:c1:00.0"
NICS = [
    {"address": f"0000:81:10.{number}", "vendor_id": "8086", "product_id": "10ed",
     "dev_type": "type-VF", "parent_addr": CARD}
    for number in (0, 2)
]  # fmt: skip
DEVICES = [
    {"address": CARD, "vendor_id": "8086", "product_id": "10fb", "dev_type": "type-PF"},
    *NICS,
    {"address": GPU, "vendor_id": "10de", "product_id": "2335", "dev_type": "type-PCI"},
]
PCI = """\
[pci]
report_in_placement = true
device_spec = {"product_id": "10ed", "traits": "gold"}
device_spec = {"product_id": "2335", "resource_class": "gpu", "one_time_use": "true"}
"""
ALIASES = {
    "nic": Alias("nic", (AliasSpec("8086", "10ed"),), PciDeviceType.VF),
    "gpu": Alias("gpu", (AliasSpec("10de", "2335"),)),
}
LICENSES = """\
meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [CUSTOM_LICENSE: {total: 10, reserved: 1}]}
    traits: {additional: [CUSTOM_LICENSED]}
"""


def describe_machine(directory: Path, driver: str) -> str:
    """Give a driver a machine with an SR-IOV card and a GPU; return its configuration."""
    if driver == "fake":
        node = {"nodename": "n1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500,
                "pci_devices": DEVICES}  # fmt: skip
        (directory / "inventory.yaml").write_text(json.dumps({"nodes": [node]}))
        return ""
    unpack(HERE / f"{CAPTURE}.tar.xz", directory)
    root = directory / CAPTURE
    return f"[host]\nprocfs = {root}/proc\nsysfs = {root}/sys\nrootfs = {root}\n"


HUGE_PAGES = "\n[placement]\nwithhold_huge_pages = true\n"
"""The ledger gives claims without a page size no memory that only huge pages can take."""


@pytest.mark.parametrize("driver", ["fake", "local"])
def test_a_machine_with_cards_and_licenses_agrees_with_its_row(tmp_path, placement, driver) -> None:
    """Of the local driver it is a captured one."""
    machine = describe_machine(tmp_path, driver)
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "licenses.yaml").write_text(LICENSES)
    programs = Programs(tmp_path, host=f"h-{uuid.uuid4().hex[:8]}")
    programs.make_schema()
    programs.configure(
        "service_down_time = 9999\n" + placement.configuration() + HUGE_PAGES + PCI + machine, driver,
        update_resources_interval=1, provider_config_location=tmp_path / "providers",
        instances_path=tmp_path,
    )  # fmt: skip
    host = ReadBack(programs, placement, ALIASES)
    try:
        with programs.start() as agent:
            agent.wait_for("is ready")
            [node] = host.store.load_nodes(programs.host)
            devices = [{"alias": "nic"}, {"alias": "gpu"}]
            resources = {"VCPU": 2, "MEMORY_MB": 2048, "CUSTOM_LICENSE": 4}
            claim = host.claim(node.nodename, resources=resources, pci_requests=devices)
            nic = Card("CUSTOM_PCI_8086_10ED", 2, 1, traits=frozenset({"CUSTOM_GOLD"}))
            gpu = Card("CUSTOM_GPU", 1, 1, 1, frozenset({"HW_PCI_ONE_TIME_USE"}))
            host.wait()
            host.check(node.nodename, {CARD: nic, GPU: gpu})
            assert not has_candidate(host, node, CUSTOM_PCI_8086_10ED=2)
            check_licenses(host, node, 5)
            host.store.abort_claim(claim.uuid)
            host.wait()
            assert has_candidate(host, node, CUSTOM_PCI_8086_10ED=2)
            assert not has_candidate(host, node, CUSTOM_GPU=1)  # used once
    finally:
        host.close()


def has_candidate(host: ReadBack, node, **amounts: int) -> bool:
    return host.openstack.has_candidate(node.uuid, VCPU=1, **amounts)


def check_licenses(host: ReadBack, node, free: int) -> None:
    """Check that a claim, candidates and placement's candidates agree on the licenses left."""
    for amount in (free, free + 1):
        resource = f"--resource=CUSTOM_LICENSE={amount}"
        listed = host.programs.manage("candidate", "list", resource, "-f", "json")
        assert (listed.returncode == 0) == (amount <= free), listed.stderr
        assert has_candidate(host, node, CUSTOM_LICENSE=amount) == (amount <= free)
    with pytest.raises(ClaimRefusedError, match=f"Free CUSTOM_LICENSE {free}.00 < requested"):
        host.claim(node.nodename, resources={"CUSTOM_LICENSE": free + 1})
