"""placement show, audit, heal, adopt and remove against the real placement."""

import json
import uuid

import pytest

from nodetracker.model.service import COMPUTE_BINARY
from tests.functional.cloud import Cloud
from tests.programs import wait_until


@pytest.fixture
def cloud(tmp_path, placement):
    cloud = Cloud(tmp_path, placement)
    cloud.audit_once()
    return cloud


def test_what_differs_is_listed_healed_and_shown(cloud) -> None:
    differences = cloud.manage("audit", "--host", "host-1", code=1)
    assert differences[0] == {
        "host": "host-1", "nodename": cloud.name, "provider": cloud.uuid, "what": "provider",
        "expected": cloud.name, "found": "",
    }  # fmt: skip
    planned = cloud.manage("heal", "--dry-run")
    assert {row["result"] for row in planned} == {"would be healed"}
    assert cloud.read(cloud.uuid) is None
    healed = cloud.manage("heal")
    assert {row["result"] for row in healed} == {"healed"}
    assert [row["what"] for row in healed] == [row["what"] for row in planned]
    assert cloud.manage("audit") == []
    shown = cloud.manage("show", "host-1")
    (provider,) = shown["providers"]
    assert (provider["uuid"], provider["name"], provider["parent_uuid"]) == (
        cloud.uuid, cloud.name, None
    )  # fmt: skip
    assert provider["inventories"]["VCPU"]["total"] == 16
    assert "CUSTOM_OWNER_NODETRACKER" in provider["traits"]


def test_consumers_are_shown_with_whose_they_are_and_leaked_ones_are_healed(cloud) -> None:
    cloud.manage("heal")
    leaked, foreign = str(uuid.uuid4()), str(uuid.uuid4())
    cloud.allocate(leaked, "NODETRACKER_INSTANCE")
    cloud.allocate(foreign, "INSTANCE")
    before = cloud.read_consumer(foreign)
    owners = {c["uuid"]: c["owner"] for c in cloud.manage("show", "host-1")["consumers"]}
    assert owners == {leaked: "unknown", foreign: "other"}
    (difference,) = cloud.manage("audit", code=1)
    assert (difference["what"], difference["found"]) == (f"allocations of {leaked}", "VCPU 1")
    cloud.manage("heal")
    assert cloud.placement.get(f"/allocations/{leaked}")["allocations"] == {}
    assert cloud.read_consumer(foreign) == before
    assert cloud.manage("audit") == []


def test_an_empty_provider_with_the_nodes_name_is_adopted(cloud) -> None:
    before, other = cloud.uuid, cloud.create_rival()
    (difference,) = cloud.manage("audit", code=1)
    assert (difference["what"], difference["expected"], difference["found"]) == (
        f"name {cloud.name}", before, other
    )  # fmt: skip
    planned = cloud.manage("adopt", "host-1", "--dry-run")
    assert planned == [{"host": "host-1", "nodename": cloud.name, "before": before, "uuid": other}]
    assert cloud.uuid == before
    assert cloud.manage("adopt", "host-1") == planned
    assert cloud.uuid == other
    cloud.manage("heal")
    assert cloud.manage("audit") == []
    assert "no other provider has the name" in cloud.manage("adopt", "host-1", code=1)


def test_an_empty_provider_with_the_nodes_name_is_deleted_by_healing(cloud) -> None:
    other = cloud.create_rival()
    planned = cloud.manage("heal", "--dry-run")
    assert planned[0]["result"] == "would be deleted"
    assert cloud.read(other) is not None
    assert cloud.manage("heal")[0]["result"] == "deleted"
    assert cloud.read(other) is None
    assert cloud.manage("audit") == []


def test_a_provider_of_novas_is_left_alone(cloud) -> None:
    other = cloud.create_rival("OWNER_NOVA", "COMPUTE_NODE")
    before = cloud.read(other)
    (only,) = cloud.manage("heal", code=1)
    assert only["result"] == "kept: it has the trait OWNER_NOVA"
    assert "has the trait OWNER_NOVA" in cloud.manage("adopt", "host-1", code=1)
    assert cloud.read(other) == before
    assert cloud.manage("adopt", "host-1", "--force", "--dry-run")[0]["uuid"] == other


def test_a_child_of_another_provider_is_left_alone_and_its_tree_too(cloud) -> None:
    root, child = str(uuid.uuid4()), str(uuid.uuid4())
    for body in (
        {"uuid": root, "name": f"root of {cloud.name}"},
        {"uuid": child, "name": cloud.name, "parent_provider_uuid": root},
    ):
        assert cloud.placement.request("POST", "/resource_providers", body)[0] in (200, 201)
    before = [cloud.read(root), cloud.read(child)]
    (only,) = cloud.manage("heal", code=1)
    assert only["result"] == f"kept: it is a child of provider {root}"
    assert f"is a child of provider {root}" in cloud.manage("adopt", "host-1", code=1)
    assert [cloud.read(root), cloud.read(child)] == before


def test_the_uuid_of_a_driver_is_not_given_up(cloud) -> None:
    cloud.name = f"n-{uuid.uuid4()}"
    cloud.write(cloud.name, uuid=str(uuid.uuid4()))
    cloud.audit_once()
    cloud.audit_once()
    cloud.create_rival()
    error = cloud.manage("adopt", "host-1", cloud.name, code=1)
    assert "is its driver's and stays" in error


def test_a_node_that_is_no_longer_reported_is_removed_with_its_deleted_ones(cloud) -> None:
    cloud.manage("heal")
    first = cloud.uuid
    assert cloud.manage("remove", "host-1")[0]["provider"] == first
    assert cloud.read(first) is None
    cloud.manage("heal")
    cloud.programs.down_after = 3
    cloud.configure()
    delete = ("service", "delete", "host-1", COMPUTE_BINARY)
    wait_until(lambda: cloud.programs.manage(*delete).returncode == 0, interval=0.5)
    (waiting,) = cloud.manage("audit", code=1)
    assert (waiting["provider"], waiting["what"], waiting["found"]) == (
        first, "removal", "waiting"
    )  # fmt: skip
    assert cloud.manage("heal", "--dry-run")[0]["result"] == "would be removed"
    assert cloud.manage("heal")[0]["result"] == "removed"
    assert cloud.read(first) is None
    assert cloud.manage("audit") == []


def test_a_nodes_differences_have_what_placement_has(cloud) -> None:
    def diff():
        rows = cloud.programs.ask("node", "diff", "host-1")
        assert list(rows[0])[3:5] == ["hypervisor", "placement"]
        return {row["resource"]: row for row in rows}

    assert {row["placement"] for row in diff().values()} == {None}
    cloud.manage("heal")
    assert (diff()["MEMORY_MB"]["placement"], diff()["VCPU"]["placement"]) == (512, 0)
    foreign = str(uuid.uuid4())
    cloud.allocate(foreign, "INSTANCE")
    row = diff()["VCPU"]
    assert (row["placement"], row["workloads"]) == (0, f"{foreign} in placement +1")


def test_the_upgrade_check_names_a_conflict_and_a_service_that_is_away(cloud) -> None:
    def check():
        done = cloud.programs.run("nodetracker-status", "upgrade", "check", "--json")
        checks = json.loads(done.stdout)["checks"]
        return next(entry for entry in checks if entry["check"] == "Placement")

    assert check()["result"] == 0
    other = cloud.create_rival()
    found = check()
    assert (found["result"], found["details"].split(":")[0]) == (
        2, f"provider {other} has the name of node {cloud.name}, whose uuid is {cloud.uuid}"
    )  # fmt: skip
    cloud.programs.configure(cloud.placement.configuration(port=1))
    found = check()
    assert (found["result"], "Connection refused" in found["details"]) == (2, True)
    cloud.programs.configure(cloud.placement.configuration(token="nobody:nothing"))
    assert "403" in check()["details"]


def test_cards_are_providers_below_the_node_until_no_spec_matches_them(cloud) -> None:
    devices = [
        {"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "10fb",
         "dev_type": "type-PF"},
        *(
            {"address": f"0000:81:10.{number}", "vendor_id": "8086", "product_id": "10ed",
             "dev_type": "type-VF", "parent_addr": "0000:81:00.0"}
            for number in range(2)
        ),
    ]  # fmt: skip
    cloud.write(cloud.name, pci_devices=devices)
    spec = '{"product_id": "10ed", "resource_class": "fast nic", "traits": "gold"}'
    reported = f"{cloud.placement.configuration()}[pci]\nreport_in_placement = true\n"
    cloud.programs.configure(f"{reported}device_spec = {spec}\n")
    cloud.audit_once()
    cloud.manage("heal")
    cloud.configure()  # the commands of an operator whose own configuration has no devices
    assert cloud.manage("audit") == cloud.manage("heal") == []
    child = next(p for p in cloud.manage("show", "host-1")["providers"] if p["parent_uuid"])
    assert (child["name"], child["uuid"]) == (
        f"{cloud.name}_0000:81:00.0", str(uuid.uuid5(uuid.UUID(cloud.uuid), "0000:81:00.0"))
    )  # fmt: skip
    assert child["traits"] == ["COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_GOLD"]
    assert child["inventories"]["CUSTOM_FAST_NIC"]["total"] == 2
    both = f'{reported}device_spec = {spec}\ndevice_spec = {{"product_id": "10fb"}}\n'
    cloud.programs.configure(both)
    done = cloud.programs.run("nodetracker-compute", "--once")
    assert (done.returncode, "both the function and its virtual" in done.stderr) == (78, True)
    cloud.programs.configure(reported)
    cloud.audit_once()
    (difference,) = cloud.manage("audit", code=1)
    assert (difference["provider"], difference["what"]) == (child["uuid"], "provider")
    cloud.manage("heal")
    assert [p["uuid"] for p in cloud.manage("show", "host-1")["providers"]] == [cloud.uuid]
