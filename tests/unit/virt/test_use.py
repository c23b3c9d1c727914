"""Test that names of devices are resolved to PCI functions, known to be none, or unresolved."""

from dataclasses import replace

import pytest

from nodetracker.model.guest import GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.host import Gpu
from nodetracker.model.pci import PciDevice, PciDeviceType
from nodetracker.virt.device_nodes import DeviceNodes, read_device_nodes, read_guest_devices
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.use import ABSENT, Resolved, UseResolver, bind

PASSED, FIRST, SECOND = (
    PciDevice(f"0000:{bus}:00.0", "10de", "20b2", "030200", driver=driver, iommu_group=group)
    for bus, driver, group in (("3b", "vfio-pci", 7), ("5e", "nvidia", 8), ("9e", "nvidia", 9))
)
AMD, OTHER_AMD = (
    PciDevice(f"0000:{bus}:00.0", "1002", "740f", "038000", driver="amdgpu") for bus in ("c1", "c2")
)
GPUS = (
    Gpu(PASSED.address, "NVIDIA", "10de:20b2"),
    Gpu(FIRST.address, "NVIDIA", "A100", uuid="GPU-aaaa-1", mig_uuids=("MIG-1111",)),
    Gpu(SECOND.address, "NVIDIA", "A100", uuid="GPU-bbbb-1"),
    Gpu(AMD.address, "AMD", "1002:740f"),
    Gpu(OTHER_AMD.address, "AMD", "1002:740f"),
)
NODES = DeviceNodes(
    nvidia={0: (SECOND.address, "GPU-bbbb-1"), 1: (FIRST.address, "GPU-aaaa-1")},
    drm={"renderD128": AMD.address, "card0": None, "card1": AMD.address},
    vfio={"vfio0": PASSED.address},
    cdi={
        "amd.com/gpu=1": ("/dev/kfd", "/dev/dri/renderD128"),
        "nvidia.com/gpu=x": ("/dev/nvidia0",),
    },
)
HOST = UseResolver((PASSED, FIRST, SECOND, AMD, OTHER_AMD), GPUS, NODES)
BARE = UseResolver((PASSED, FIRST, SECOND, AMD, OTHER_AMD), GPUS)


def at(*devices):
    return Resolved(frozenset(device.address for device in devices))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all", at(FIRST, SECOND)),
        ("0", at(FIRST)),
        ("1", at(SECOND)),
        ("0:1", at(FIRST)),
        ("GPU-bbbb-1", at(SECOND)),
        ("GPU-aa", at(FIRST)),
        ("MIG-1111", at(FIRST)),
        ("MIG-GPU-bbbb-1/1/0", at(SECOND)),
        ("nvidia.com/gpu=1", at(SECOND)),
        ("nvidia.com/gpu=all", at(FIRST, SECOND)),
        ("nvidia.com/gpu=x", at(SECOND)),
        ("nvidia.com/gpu=mig0:1", at(FIRST)),
        ("amd.com/gpu=1", at(AMD)),
        ("amd.com/gpu=all", at(AMD, OTHER_AMD)),
        ("intel.com/gpu=all", ABSENT),
        ("0000:5e:00.0", at(FIRST)),
    ],
)
def test_gpus_are_named_in_many_ways(name, expected):
    assert HOST.resolve_gpu(name) == expected


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("2", "NVIDIA"),
        ("GPU-cccc", "NVIDIA"),
        ("GPU-", "NVIDIA"),
        ("MIG-2222", "NVIDIA"),
        ("MIG-GPU-cccc/1/0", "NVIDIA"),
        ("nvidia.com/gpu=7", "NVIDIA"),
        ("amd.com/gpu=0", "AMD"),
    ],
)
def test_a_gpu_that_nothing_names_is_unresolved_and_not_none(name, vendor):
    use = HOST.resolve_gpu(name)
    assert isinstance(use, UnresolvedUse)
    assert (use.kind, use.name, use.within) == (ResourceKind.GPU, name, vendor)
    assert use.reason


def test_the_reason_names_what_is_missing():
    gpus = tuple(Gpu(gpu.address, gpu.vendor, gpu.name) for gpu in GPUS)
    assert "nodetracker[gpu]" in UseResolver(HOST.functions, gpus).resolve_gpu("GPU-1").reason
    broken = (*GPUS[:2], Gpu(SECOND.address, "NVIDIA", "x", problem="NVML: GPU is lost"))
    assert UseResolver(HOST.functions, broken).resolve_gpu("GPU-1").reason == "NVML: GPU is lost"


def test_a_gpu_that_answers_is_no_reason_for_an_unknown_uuid():
    divided = (*GPUS[:2], replace(GPUS[2], problem="is in MIG mode without MIG devices"))
    reason = UseResolver(HOST.functions, divided).resolve_gpu("GPU-1").reason
    assert reason == "no GPU of NVIDIA's driver has this uuid"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/nvidia0", at(SECOND)),
        ("/dev/nvidia1", at(FIRST)),
        ("/dev/nvidiactl", ABSENT),
        ("/dev/nvidia-uvm", ABSENT),
        ("/dev/dri/renderD128", at(AMD)),
        ("/dev/dri/card0", ABSENT),
        ("/dev/dri/by-path/pci-0000:c2:00.0-render", at(OTHER_AMD)),
        ("/dev/dri", at(AMD)),
        ("/dev/dri/", at(AMD)),
        ("/dev/kfd", at(AMD, OTHER_AMD)),
        ("/dev/vfio/7", at(PASSED)),
        ("/dev/vfio/noiommu-7", at(PASSED)),
        ("/dev/vfio/vfio", ABSENT),
        ("/dev/vfio/devices/vfio0", at(PASSED)),
        ("/dev/fuse", ABSENT),
        ("nvidia.com/gpu=0", at(FIRST)),
    ],
)
def test_device_nodes_are_resolved_by_the_kernel(path, expected):
    assert HOST.resolve_node(path) == expected


@pytest.mark.parametrize(
    ("path", "kind", "within"),
    [
        ("/dev/nvidia0", ResourceKind.GPU, "NVIDIA"),
        ("/dev/dri/renderD128", ResourceKind.GPU, ""),
        ("/dev/dri", ResourceKind.GPU, ""),
        ("/dev/vfio/77", ResourceKind.PCI, ""),
        ("/dev/vfio/devices/vfio3", ResourceKind.PCI, ""),
        ("vendor.com/nic=1", ResourceKind.PCI, ""),
    ],
)
def test_a_node_that_the_kernel_does_not_show_is_unresolved(path, kind, within):
    use = BARE.resolve_node(path)
    assert isinstance(use, UnresolvedUse)
    assert (use.kind, use.name, use.within) == (kind, path, within)


def test_kfd_gives_the_gpus_whose_nodes_the_container_has():
    assert HOST.resolve_nodes(["/dev/dri/renderD128", "/dev/kfd"]) == [at(AMD)]
    (use,) = BARE.resolve_nodes(["/dev/dri/renderD128", "/dev/kfd"])
    assert isinstance(use, UnresolvedUse)
    assert use.within == "AMD"


def test_a_directory_that_cannot_be_read_is_the_reason():
    nodes = DeviceNodes(problems={"drm": "/sys/class/drm: permission denied"})
    use = UseResolver(HOST.functions, GPUS, nodes).resolve_node("/dev/dri/renderD128")
    assert isinstance(use, UnresolvedUse)
    assert "permission denied" in use.reason


def test_pins_have_what_is_resolved_and_what_is_not():
    lost = UnresolvedUse(ResourceKind.GPU, "x", "y")
    pins = bind(GuestPins((), ("0000:01:00.0",)), [at(SECOND, FIRST), ABSENT, lost, lost])
    assert pins == GuestPins((), ("0000:01:00.0", FIRST.address, SECOND.address), (lost,))


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", "", "\ud800", "a\0b"])
def test_a_gpu_of_any_name_is_unresolved(name):
    gpus = [Gpu("0000:5e:00.0", "NVIDIA", "H100", uuid="GPU-1")]
    assert isinstance(UseResolver((), gpus).resolve_gpu(name), UnresolvedUse)


def test_a_mediated_device_is_its_parent_or_may_be_of_any_that_has_some(tmp_path):
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    uuid = "4b20d080-1b54-4048-85b3-a6a62d165c01"
    device = roots.sysfs / "devices/pci0000:80/0000:5e:00.0" / uuid
    device.mkdir(parents=True)
    bus = roots.sysfs / "bus/mdev/devices"
    bus.mkdir(parents=True)
    (bus / uuid).symlink_to(device)
    host = UseResolver(HOST.functions, GPUS, read_guest_devices(roots))
    assert host.resolve_mdev(uuid, ()) == [at(FIRST)]
    uses = host.resolve_mdev("other", {FIRST.address, SECOND.address})
    assert [use.within for use in uses] == [FIRST.address, SECOND.address]
    (use,) = host.resolve_mdev("other", ())
    assert (use.kind, use.within) == (ResourceKind.PCI, "")


NIC = PciDevice("0000:81:00.0", "8086", "1572", "020000", PciDeviceType.PF, driver="ice")
PORT = PciDevice(
    "0000:81:10.0", "8086", "10ed", "020000", PciDeviceType.VF, parent_addr=NIC.address
)


def share(name, address):
    reason = "the guest uses it by the driver of the host"
    return UnresolvedUse(ResourceKind.FUNCTION, name, reason, address)


@pytest.fixture
def sysfs_host(tmp_path):
    """A host with a card, a virtual function, a bond, a bridge, vDPA and NVMe."""
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    net = roots.sysfs / "class/net"
    for name, device in (("ens1f0", NIC.address), ("ens1f0v0", PORT.address)):
        (net / name).mkdir(parents=True)
        (net / name / "device").symlink_to(f"../../../devices/{device}")
    (net / "bond0.7").mkdir()
    (net / "bond0.7/lower_bond0").symlink_to("../bond0")
    (net / "bond0").mkdir()
    (net / "bond0/lower_ens1f0").symlink_to("../ens1f0")
    (net / "br0").mkdir()
    subfunction = roots.sysfs / f"devices/{NIC.address}/mlx5_core.sf.3"
    (subfunction / "vdpa1/vhost-vdpa-1").mkdir(parents=True)
    (net / "ens1f0s3").mkdir()
    (net / "ens1f0s3/device").symlink_to(subfunction)
    vdpa = roots.sysfs / f"devices/{PORT.address}/mlx5_core.sf.2/vdpa0"
    (vdpa / "vhost-vdpa-0").mkdir(parents=True)
    bus = roots.sysfs / "bus/vdpa/devices"
    bus.mkdir(parents=True)
    (bus / "vdpa0").symlink_to(vdpa)
    (bus / "vdpa1").symlink_to(subfunction / "vdpa1")
    for name, device in {
        "nvme/nvme0": "0000:01:00.0",
        "nvme/nvme1": "virtual/nvme-fabrics/ctl",
        "infiniband_verbs/uverbs0": NIC.address,
        "infiniband_verbs/uverbs1": PORT.address,
        "accel/accel0": "0000:02:00.0",
    }.items():
        (roots.sysfs / "class" / name).mkdir(parents=True)
        (roots.sysfs / "class" / name / "device").symlink_to(f"../../../devices/{device}")
    assert read_device_nodes(roots).nodes == read_guest_devices(roots).nodes
    return UseResolver((NIC, PORT), (), read_guest_devices(roots))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ens1f0v0", [at(PORT)]),
        ("ens1f0", [share("ens1f0", NIC.address)]),
        ("bond0.7", [share("bond0.7", NIC.address)]),
        ("ens1f0s3", [share("ens1f0s3", NIC.address)]),
        ("br0", []),
    ],
)
def test_an_interface_is_its_virtual_function_or_shares_its_card(sysfs_host, name, expected):
    assert sysfs_host.resolve_interface(name) == expected


def test_an_unknown_interface_may_be_of_any_network_card(sysfs_host):
    (use,) = sysfs_host.resolve_interface("ens9")
    assert (use.kind, use.within, use.name) == (ResourceKind.PCI, "class:02", "ens9")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/vhost-vdpa-0", at(PORT)),
        ("/dev/nvme0n1p2", share("/dev/nvme0n1p2", "0000:01:00.0")),
        ("/dev/nvme0", share("/dev/nvme0", "0000:01:00.0")),
        ("/dev/nvme1n1", ABSENT),
        ("/dev/vhost-vdpa-1", share("/dev/vhost-vdpa-1", NIC.address)),
        ("/dev/infiniband/uverbs0", share("/dev/infiniband/uverbs0", NIC.address)),
        ("/dev/infiniband/uverbs1", at(PORT)),
        ("/dev/accel/accel0", share("/dev/accel/accel0", "0000:02:00.0")),
        ("/dev/mapper/vg-web", ABSENT),
    ],
)
def test_other_device_nodes_are_their_functions(sysfs_host, path, expected):
    assert sysfs_host.resolve_node(path) == expected


@pytest.mark.parametrize(
    ("path", "within"),
    [
        ("/dev/vhost-vdpa-9", "class:02"),
        ("/dev/nvme7n1", "class:01"),
        ("/dev/infiniband/uverbs7", "class:02"),
        ("/dev/accel/accel7", "class:12"),
    ],
)
def test_a_device_node_that_nobody_knows_may_be_of_any_such_function(sysfs_host, path, within):
    use = sysfs_host.resolve_node(path)
    assert (use.kind, use.within) == (ResourceKind.PCI, within)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/infiniband", ["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"]),
        ("/dev/accel/", ["/dev/accel/accel0"]),
        ("/dev/vfio", ["/dev/vfio/7"]),
        ("/dev/mapper", ["/dev/mapper"]),
    ],
)
def test_a_directory_is_the_device_nodes_in_it(sysfs_host, path, expected):
    host = replace(sysfs_host, functions=(*sysfs_host.functions, PASSED))
    assert host.resolve_nodes([path]) == [host.resolve_node(node) for node in sorted(expected)]
    assert {*host.resolve_nodes(["/dev"])} >= {*host.resolve_nodes([path])} - {ABSENT}


def test_a_node_of_any_driver_is_the_function_that_its_class_shows(tmp_path):
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    for name, place in {
        "apex/apex_0": "devices/pci0000:00/0000:06:00.0/apex/apex_0",
        "tenstorrent/tenstorrent!0": "devices/pci0000:00/0000:07:00.0/tenstorrent!0",
        "block/nvme0n1": "devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1",
        "block/sda": "devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda",
        "davinci/davinci0": "devices/virtual/davinci/davinci0",
        "misc/fuse": "devices/virtual/misc/fuse",
    }.items():
        (roots.sysfs / place).mkdir(parents=True)
        (roots.sysfs / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (roots.sysfs / "class" / name).symlink_to(roots.sysfs / place)
    links = tmp_path / "dev/disk/by-id"
    links.mkdir(parents=True)
    (links / "nvme-eui.01").symlink_to("../../nvme0n1")
    expected = {
        "/dev/apex_0": "0000:06:00.0",
        "/dev/tenstorrent/0": "0000:07:00.0",
        "/dev/disk/by-id/nvme-eui.01": "0000:01:00.0",
        "/dev/sda": "0000:00:17.0",
        "/dev/disk/by-path/pci-0000:02:00.0-nvme-1": "0000:02:00.0",
    }
    others = ["/dev/fuse", "/dev/net/tun", "/dev/a\0b", "vendor.com/nic=1"]
    nodes = read_device_nodes(roots, [*expected, *others, "/dev/davinci0"])
    assert nodes.nodes == read_guest_devices(roots, [*expected, "/dev/davinci0"]).nodes | {
        "/dev/fuse": None
    }
    host = UseResolver((), (), nodes)
    assert {path: host.resolve_node(path) for path in expected} == {
        path: share(path, address) for path, address in expected.items()
    }
    assert [host.resolve_node(path) for path in others[:3]] == [ABSENT] * 3
    use = host.resolve_node("/dev/davinci0")
    assert (use.kind, use.within) == (ResourceKind.PCI, "class:12")


@pytest.mark.parametrize(
    ("path", "within"),
    [
        ("/dev/apex_0", "1ac1:089a"),
        ("/dev/davinci3", "class:12"),
        ("/dev/hl0", "class:12"),
        ("/dev/neuron1", "vendor:1d0f"),
        ("/dev/tenstorrent/0", "vendor:1e52"),
        ("/dev/disk/by-id/nvme-eui.02", "class:01"),
        ("habana.ai/gaudi=all", "class:12"),
        ("huawei.com/npu=0-3", "class:12"),
    ],
)
def test_an_accelerator_that_the_kernel_does_not_show_may_be_any_of_its_kind(path, within):
    use = BARE.resolve_node(path)
    assert isinstance(use, UnresolvedUse)
    assert (use.kind, use.within) == (ResourceKind.PCI, within)


def test_device_nodes_that_cannot_be_listed_are_unresolved(tmp_path):
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    (roots.sysfs / "class").mkdir(parents=True)
    (roots.sysfs / "class/nvme").write_text("")
    nodes = read_guest_devices(roots)
    for path in ("/dev/nvme0n1", "/dev/infiniband", "/dev/accel"):
        (use,) = UseResolver((), (), nodes).resolve_nodes([path])
        assert isinstance(use, UnresolvedUse)
        assert use.reason == nodes.problems["nodes"]
