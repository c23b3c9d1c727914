import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Workload
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import WorkloadKind
from tests import builders

WORKLOAD = {"uuid": builders.WORKLOAD}
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


def test_absent_keys_have_empty_defaults():
    request = parse()
    assert request.uuid == UUID
    assert request.amounts == Amounts()
    assert (request.host, request.limits, request.required_traits) == (None, {}, ())


def test_disk_is_counted_in_mib_so_that_a_small_swap_counts():
    disk = {"root_gb": 10, "ephemeral_gb": 8, "swap_mb": 512}
    assert parse(disk=disk).amounts.disk_mb == 18 * 1024 + 512


def test_a_nodename_may_be_given_as_node():
    one, two = parse(nodename="node-1"), parse(node="node-1")
    assert (two.nodename, two.request_hash) == ("node-1", one.request_hash)


def test_the_hash_ignores_the_uuid_and_the_order_of_keys():
    one = parse(uuid=UUID, resources={"VCPU": 1, "MEMORY_MB": 2})
    two = parse(resources={"MEMORY_MB": 2, "VCPU": 1}, host=None)
    assert one.request_hash == two.request_hash
    assert one.request_hash != parse(resources={"VCPU": 2, "MEMORY_MB": 2}).request_hash


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"color": "red"}, "unknown key 'color': expected one of uuid, workload, resources"),
        ({"workload": None}, "workload: expected an object, got null"),
        ({"workload": {}}, "workload.uuid: is missing"),
        ({"workload": {"uuid": "x"}}, "workload.uuid: 'x' is not a valid UUID"),
        (
            {"workload": {**WORKLOAD, "kind": "vm"}},
            "workload.kind: expected one of instance, container, got 'vm'",
        ),
        (
            {"workload": {**WORKLOAD, "size": 1}},
            "workload: unknown key 'size': expected one of uuid, kind",
        ),
        ({"uuid": 7}, "uuid: 7 is not a valid UUID"),
        ({"resources": None, "limits": None}, ""),
        (
            {"resources": []},
            "resources: expected an object of at most 64 resource classes and amounts, got []",
        ),
        (
            {"resources": ""},
            "resources: expected an object of at most 64 resource classes and amounts, got ''",
        ),
        (
            {"resources": False},
            "resources: expected an object of at most 64 resource classes and amounts, got false",
        ),
        (
            {"resources": {"": 1}},
            "resources: expected a text of 1 to 255 characters without control characters or lone surrogates, got key ''",
        ),
        (
            {"resources": {"X\ud800": 1}},
            "resources: expected a text of 1 to 255 characters without control characters or lone surrogates, got key 'X\\ud800'",
        ),
        (
            {"resources": 3},
            "resources: expected an object of at most 64 resource classes and amounts, got 3",
        ),
        (
            {"resources": {"VCPU": 1.5}},
            "resources.VCPU: expected an integer from 0 to 2147483647, got 1.5",
        ),
        (
            {"resources": {"MEMORY_MB": "512m"}},
            "resources.MEMORY_MB: expected an integer from 0 to 2147483647, got '512m'",
        ),
        (
            {"resources": {"MEMORY_MB": -1}},
            "resources.MEMORY_MB: expected an integer from 0 to 2147483647, got -1",
        ),
        (
            {"resources": {"PCPU": True}},
            "resources.PCPU: expected an integer from 0 to 2147483647, got true",
        ),
        (
            {"resources": {"CUSTOM_X": 0.5}},
            "resources.CUSTOM_X: expected an integer from 0 to 2147483647, got 0.5",
        ),
        (
            {"resources": {"VCPU": 2**31}},
            "resources.VCPU: expected an integer from 0 to 2147483647, got 2147483648",
        ),
        (
            {"disk": {"swap_mb": 2**31}},
            "disk.swap_mb: expected an integer from 0 to 2147483647, got 2147483648",
        ),
        (
            {"disk": {"root": 1}},
            "disk: unknown key 'root': expected one of root_gb, ephemeral_gb, swap_mb",
        ),
        (
            {"disk": {"swap_mb": "1"}},
            "disk.swap_mb: expected an integer from 0 to 2147483647, got '1'",
        ),
        (
            {"disk": {}, "resources": {"DISK_GB": 1}},
            "disk: cannot be combined with resources.DISK_GB",
        ),
        (
            {"limits": {"VCPU": "x"}},
            "limits.VCPU: expected an integer from 0 to 9007199254740992, got 'x'",
        ),
        (
            {"limits": {"VPCU": 1}, "resources": {"CUSTOM_X": 1}},
            "limits: unknown key 'VPCU': expected one of VCPU, PCPU, MEMORY_MB, DISK_GB, numa, CUSTOM_X",
        ),
        ({"limits": {"CUSTOM_X": 1}}, "limits: unknown key 'CUSTOM_X'"),
        ({"limits": {"CUSTOM_X": 1}, "resources": {"CUSTOM_X": 1}}, ""),
        ({"resources": {"VCPU": 10**5000}}, "numbers of thousands of digits are not accepted"),
        (
            {"resources": {"VCPU": 10**400}},
            "resources.VCPU: expected an integer from 0 to 2147483647, got a number of over 150 digits",
        ),
        ({"uuid": 10**5000}, "uuid: a number of over 150 digits is not a valid UUID"),
        (
            {"numa": {"page_size": "1" * 5000}, "resources": {"VCPU": 1}},
            f"numa.page_size: '{'1' * 99}... is not a page size",
        ),
        (
            {"host": "a\n"},
            "host: expected a text of 1 to 255 characters without control characters or lone "
            "surrogates, got 'a\\n'",
        ),
        (
            {"workload": {**WORKLOAD, "name": "a\x9bb"}},
            "workload.name: expected a text of 1 to 255 characters without control characters",
        ),
        (
            {"numa": {"networks": ["a\tb"]}},
            "numa.networks[0]: expected a text of 1 to 255 characters without control characters",
        ),
        ({"limits": []}, "limits: expected an object of resource classes and limits, got []"),
        ({"limits": 0}, "limits: expected an object of resource classes and limits, got 0"),
        (
            {"workload": {**WORKLOAD, "name": "a\0b"}},
            "workload.name: expected a text of 1 to 255 characters without control characters or lone surrogates, got 'a\\x00b'",
        ),
        (
            {"host": "\ud800"},
            "host: expected a text of 1 to 255 characters without control characters or lone surrogates, got '\\ud800'",
        ),
        (
            {"required_traits": "A"},
            "required_traits: expected a list of at most 64 traits, got 'A'",
        ),
        (
            {"required_traits": [""]},
            "required_traits[0]: expected a text of 1 to 255 characters without control characters or lone surrogates, got ''",
        ),
        ({"node": "a", "nodename": "a"}, "node: cannot be combined with nodename"),
        (
            {"host": 7},
            "host: expected a text of 1 to 255 characters without control characters or lone surrogates, got 7",
        ),
    ],
)
def test_an_error_names_the_path_of_its_key(body, message):
    if not message:
        parse(**body)  # null means that the key is absent
        return
    with pytest.raises(RequestError) as caught:
        parse(**body)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("amount", [0.0001, float("nan"), float("inf"), -0.5, 1e12])
def test_a_container_s_cpu_has_three_decimals(amount):
    with pytest.raises(RequestError, match=r"resources\.VCPU: .* got (?!.*(nan|inf|e\d|e-))"):
        parse(workload={**WORKLOAD, "kind": "container"}, resources={"VCPU": amount})


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_a_request_is_an_object(value):
    with pytest.raises(RequestError, match="expected an object, got"):
        parse_claim_request(value)
