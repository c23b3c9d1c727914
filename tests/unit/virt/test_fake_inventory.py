from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import PagePool
from nodetracker.model.pci import PciDeviceType
from nodetracker.virt.fake.inventory import parse_inventory

WHOLE = """
nodes:
  - nodename: node-1
    uuid: 0B9C6C2E-0D5F-4C0E-9F5B-0A3D5E7F1A2B
    vcpus: 16
    memory_mb: 65536
    disk_gb: 500
    cells:
      - {id: 0, cpus: "0-7", memory_mb: 32768, socket: 0, siblings: [[0, 1], [2, 3]], pages: {2048: 512, 4: 8126464}}
      - {id: 1, cpus: "8-15", memory_mb: 32768}
    pci_devices:
      - {address: "0000:81:00.0", vendor_id: "8086", product_id: "10fb", dev_type: type-PF, numa_node: 1}
      - {address: "0000:81:10.0", vendor_id: "8086", product_id: "10ed", dev_type: type-VF, parent_addr: "0000:81:00.0", numa_node: 1}
    guests:
      - {uuid: 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11, name: vm-1, kind: instance, vcpus: 2, memory_mb: 2048, disk_gb: 20, power_state: running}
      - {uuid: 7a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11, kind: container, vcpus: 0.125, memory_mb: 64, disk_gb: 0}
fail: {node-2: boom, "*": hang}
"""

NODE = "{nodename: n1, vcpus: 2, memory_mb: 1024, disk_gb: 10%s}"


def one_node(extra=""):
    return "nodes: [" + NODE % extra + "]"


def test_all_documented_keys_are_parsed():
    inventory = parse_inventory(WHOLE, "fake:f")
    snapshot = inventory.snapshots["node-1"]
    assert snapshot.uuid == "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"
    assert len(snapshot.cpu.value.online) == 16
    assert (snapshot.cpu.value.cores, snapshot.cpu.value.threads) == (14, 2)
    assert snapshot.memory.value.total_mb == 65536
    assert snapshot.storage.value.instances.total_mb == 500 * 1024
    cells = snapshot.numa.value.cells
    assert [cell.id for cell in cells] == [0, 1]
    assert cells[0].pages == (PagePool(4, 8126464), PagePool(2048, 512))
    assert [device.dev_type for device in snapshot.pci.value] == [
        PciDeviceType.PF,
        PciDeviceType.VF,
    ]
    guests = snapshot.guests.value.guests
    assert [guest.vcpu_milli for guest in guests] == [2000, 125]
    assert guests[1].kind is WorkloadKind.CONTAINER
    assert snapshot.tracks_resources
    assert snapshot.netdevs == {}
    assert inventory.get_failure("node-2") == "boom"
    assert inventory.get_failure("node-1") == "hang"


@pytest.mark.parametrize(
    ("extra", "booted_at"),
    [
        ("", datetime(2026, 1, 1, tzinfo=UTC)),
        (", booted_at: 2026-02-03T04:05:06Z", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
        (", booted_at: 2026-02-03T04:05:06+02:00", datetime(2026, 2, 3, 2, 5, 6, tzinfo=UTC)),
        (', booted_at: "2026-02-03T04:05:06+02:00"', datetime(2026, 2, 3, 2, 5, 6, tzinfo=UTC)),
        (", booted_at: 2026-02-03 04:05:06", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ],
    ids=["default", "utc", "offset", "text", "naive"],
)
def test_a_node_boots_when_its_entry_says_or_at_a_fixed_time(extra, booted_at):
    system = parse_inventory(one_node(extra), "fake:f").snapshots["n1"].system.value
    assert (system.booted_at, system.booted_at.tzinfo) == (booted_at, UTC)


@pytest.mark.parametrize(
    "value", ["soon", "7", "true", "[]", '"2026-02-30T00:00:00Z"', '"0001-01-01T00:00:00+05:00"']
)
def test_an_invalid_boot_time_is_an_error_of_its_node(value):
    inventory = parse_inventory(one_node(f", booted_at: {value}"), "f")
    assert "nodes[0].booted_at: " in inventory.errors["n1"]
    assert "is not a valid time" in inventory.errors["n1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("nodes: [", "not valid YAML"),
        ("[1, 2]", "has no list 'nodes'"),
        ("nodes: {a: 1}", "has no list 'nodes'"),
        ("nodes: []\nnode: []", "unknown key 'node'"),
        ("nodes: []\nready: maybe", "ready: expected true or false"),
        ("nodes: []\nfail: [node-1]", "fail: expected a mapping"),
        (f"nodes: [{NODE % ''}, {NODE % ''}]", "nodes[1]: duplicate nodename 'n1'"),
    ],
)
def test_an_invalid_file_is_an_error_with_the_reason(text, reason):
    with pytest.raises(HostDataError) as caught:
        parse_inventory(text, "fake:f")
    assert caught.value.source == "fake:f"
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{nodename: n1, memory_mb: 1, disk_gb: 1}", "nodes[0].vcpus: is missing"),
        ("{nodename: n1, vcpus: 1, disk_gb: 1}", "nodes[0].memory_mb: is missing"),
        ("{nodename: n1, vcpus: 1, memory_mb: 1}", "nodes[0].disk_gb: is missing"),
        (
            "{nodename: n1, vcpus: -1, memory_mb: 1, disk_gb: 1}",
            "nodes[0].vcpus: -1 is not an integer >= 0",
        ),
        (
            "{nodename: n1, vcpus: two, memory_mb: 1, disk_gb: 1}",
            "nodes[0].vcpus: 'two' is not an integer >= 0",
        ),
        (NODE % ", uuid: x", "nodes[0].uuid: 'x' is not a valid UUID"),
        (NODE % ", memroy: 1", "nodes[0]: unknown key 'memroy'"),
        (NODE % ", cells: 1", "nodes[0].cells: expected a list"),
        (
            NODE % ", cells: [{id: 0, cpus: 0-x, memory_mb: 1}]",
            "nodes[0].cells[0]: '0-x' is not a CPU id or a range of CPU ids",
        ),
        (
            NODE % ", cells: [{id: 0, cpus: 0-2, memory_mb: 1}]",
            "nodes[0]: vcpus is 2, but its cells have 3 CPUs",
        ),
        (
            NODE % ", cells: [{id: 0, cpus: 0, memory_mb: 1}, {id: 0, cpus: 1, memory_mb: 1}]",
            "nodes[0].cells: duplicate id",
        ),
        (
            NODE % ", cells: [{id: 0, cpus: 0-1, memory_mb: 1, siblings: [[0, 5]]}]",
            "nodes[0].cells[0].siblings: CPUs are not in the cell",
        ),
        (
            NODE % ", pci_devices: [{address: x, vendor_id: '1', product_id: '2'}]",
            "nodes[0].pci_devices[0].address: 'x' is not a valid PCI address",
        ),
    ],
)
def test_a_malformed_node_is_reported_and_still_listed(entry, reason):
    inventory = parse_inventory(
        f"nodes: [{entry}, {{nodename: n2, vcpus: 1, memory_mb: 1, disk_gb: 1}}]", "f"
    )
    assert inventory.errors == {"n1": reason}
    assert set(inventory.nodenames) == {"n1", "n2"}


def test_an_entry_without_a_nodename_makes_the_list_of_nodes_incomplete():
    inventory = parse_inventory("nodes: [{vcpus: 1}, 7]", "fake:f")
    assert inventory.unnamed == (
        "fake:f: nodes[0]: has no nodename",
        "fake:f: nodes[1]: has no nodename",
    )


@pytest.mark.parametrize(
    ("guest", "reason"),
    [
        ("{}", "uuid: null is not a valid UUID"),
        ("7", "expected a mapping"),
        ("{uuid: 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11, vcpus: x, memory_mb: 1, disk_gb: 1}", "vcpus: 'x' is not a valid number of CPUs"),
        ("{uuid: 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11, vcpus: 1, memory_mb: 512m, disk_gb: 1}", "memory_mb: '512m' is not an integer >= 0"),
        ("{uuid: 6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11, vcpus: 1, memory_mb: 1, disk_gb: 1, kind: pod}", "'pod' is not a valid WorkloadKind"),
    ],
)  # fmt: skip
def test_a_malformed_guest_makes_the_listing_incomplete(guest, reason):
    inventory = parse_inventory(one_node(f", guests: [{guest}]"), "f")
    listing = inventory.snapshots["n1"].guests.value
    assert not listing.is_complete
    assert reason in listing.unreadable[0]


@given(st.text(alphabet="nodes:[]{}, -\n0123456789avcpumy_gbi\"'&*!|>", max_size=200))
def test_any_text_is_an_inventory_or_a_host_data_error(text):
    try:
        parse_inventory(text, "f")
    except HostDataError:
        pass


def test_tracks_resources_and_interface_names_are_parsed():
    devices = "pci_devices: [{address: '0000:81:00.0', vendor_id: a, product_id: b, devname: eth1}]"
    text = f"nodes: [{NODE % f', tracks_resources: false, {devices}'}]"
    snapshot = parse_inventory(text, "fake").snapshots["n1"]
    assert not snapshot.tracks_resources
    assert snapshot.netdevs == {"eth1": "0000:81:00.0"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("tracks_resources: maybe", "nodes[0].tracks_resources: expected true or false"),
        (
            "pci_devices: [{address: '0000:81:00.0', vendor_id: a, product_id: b, devname: 7}]",
            "nodes[0].pci_devices[0].devname: 7 is not a valid unique name",
        ),
    ],
)
def test_invalid_values_of_these_keys_are_reported(more, reason):
    assert parse_inventory(f"nodes: [{NODE % f', {more}'}]", "fake").errors["n1"] == reason
