import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.errors import RequestError
from nodetracker.model.claim import Amounts, Workload
from nodetracker.model.guest import WorkloadKind

WORKLOAD = {"uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"}
UUID = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"


def parse(**body):
    return parse_claim_request({"workload": WORKLOAD} | body, lambda: UUID)


def test_a_whole_request_is_read():
    request = parse(
        uuid=UUID.upper(),
        workload={**WORKLOAD, "kind": "container", "name": "c", "project_id": "p", "user_id": "u"},
        resources={"VCPU": 0.25, "MEMORY_MB": 4096, "DISK_GB": 20, "CUSTOM_FPGA": 1},
        host="host-1",
        nodename="node-1",
        limits={"VCPU": 64, "MEMORY_MB": None},
        required_traits=["HW_CPU_X86_AVX2", "A"],
    )
    assert request.uuid == UUID
    assert request.workload == Workload(WORKLOAD["uuid"], WorkloadKind.CONTAINER, "c", "p", "u")
    assert request.amounts == Amounts(250, 0, 4096, 20 * 1024, {"CUSTOM_FPGA": 1})
    assert (request.host, request.nodename) == ("host-1", "node-1")
    assert request.limits == {"VCPU": 64, "MEMORY_MB": None}
    assert request.required_traits == ("A", "HW_CPU_X86_AVX2")


def test_what_is_not_said_is_nothing():
    request = parse()
    assert request.uuid == UUID
    assert request.amounts == Amounts()
    assert (request.host, request.limits, request.required_traits) == (None, {}, ())


def test_disk_is_counted_in_mib_so_that_a_small_swap_counts():
    disk = {"root_gb": 10, "ephemeral_gb": 8, "swap_mb": 512}
    assert parse(disk=disk).amounts.disk_mb == 18 * 1024 + 512


def test_the_same_body_has_the_same_hash_whatever_its_uuid_and_order():
    one = parse(uuid=UUID, resources={"VCPU": 1, "MEMORY_MB": 2})
    two = parse(resources={"MEMORY_MB": 2, "VCPU": 1}, host=None)
    assert one.request_hash == two.request_hash
    assert one.request_hash != parse(resources={"VCPU": 2, "MEMORY_MB": 2}).request_hash


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"color": "red"}, "color: is no known key"),
        ({"workload": None}, "workload: is missing"),
        ({"workload": {}}, "workload.uuid: is missing"),
        ({"workload": {"uuid": "x"}}, "workload.uuid: 'x' is not a valid UUID"),
        ({"workload": {**WORKLOAD, "kind": "vm"}}, "workload.kind: 'vm' is none of instance"),
        ({"workload": {**WORKLOAD, "size": 1}}, "workload.size: is no known key"),
        ({"uuid": 7}, "uuid: 7 is not a valid UUID"),
        ({"resources": None, "limits": None}, ""),
        ({"resources": []}, "resources: [] is no object"),
        ({"resources": ""}, "resources: '' is no object"),
        ({"resources": False}, "resources: False is no object"),
        ({"resources": {"": 1}}, "resources: '' is no text of 1 to 255 characters"),
        ({"resources": {"X\ud800": 1}}, "resources: 'X\\ud800' has characters that no database"),
        ({"resources": 3}, "resources: 3 is no object"),
        ({"resources": {"VCPU": 1.5}}, "resources.VCPU: 1.5 is no integer"),
        ({"resources": {"MEMORY_MB": "512m"}}, "resources.MEMORY_MB: '512m' is no integer"),
        ({"resources": {"MEMORY_MB": -1}}, "resources.MEMORY_MB: -1 is no integer that is 0"),
        ({"resources": {"PCPU": True}}, "resources.PCPU: True is no integer"),
        ({"resources": {"CUSTOM_X": 0.5}}, "resources.CUSTOM_X: 0.5 is no integer"),
        ({"resources": {"VCPU": 2**31}}, "resources.VCPU: 2147483648 is more than 2147483647"),
        ({"disk": {"swap_mb": 2**31}}, "disk.swap_mb: 2147483648 is more than 2147483647"),
        ({"disk": {"root": 1}}, "disk.root: is no known key"),
        ({"disk": {"swap_mb": "1"}}, "disk.swap_mb: '1' is no integer"),
        ({"disk": {}, "resources": {"DISK_GB": 1}}, "disk: may not stand beside resources.DISK"),
        ({"limits": {"VCPU": "x"}}, "limits.VCPU: 'x' is no integer"),
        ({"limits": []}, "limits: [] is no object"),
        ({"limits": 0}, "limits: 0 is no object"),
        ({"workload": {**WORKLOAD, "name": "a\0b"}}, "workload.name: 'a\\x00b' has characters"),
        ({"host": "\ud800"}, "host: '\\ud800' has characters that no database holds"),
        ({"required_traits": "A"}, "required_traits: 'A' is no list"),
        ({"required_traits": [""]}, "required_traits[0]: '' is no text"),
        ({"host": 7}, "host: 7 is no text"),
    ],
)
def test_what_cannot_be_meant_is_named_by_its_path(body, told):
    if not told:
        parse(**body)  # a key that is null is not said
        return
    with pytest.raises(RequestError) as caught:
        parse(**body)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("amount", [0.0001, float("nan"), float("inf"), -0.5, 1e12])
def test_a_container_s_cpu_has_three_decimals(amount):
    with pytest.raises(RequestError, match="resources.VCPU"):
        parse(workload={**WORKLOAD, "kind": "container"}, resources={"VCPU": amount})


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_a_request_is_an_object(value):
    with pytest.raises(RequestError, match="is no object"):
        parse_claim_request(value)
