"""Test reading PCI functions, including functions that are being removed."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from host_tree import MakeRoots
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import MdevType, PciDevice, PciDeviceType
from nodetracker.virt.host.pci import (
    parse_pci_address,
    parse_pci_id,
    read_mdev_types,
    read_netdevs,
    read_pci_devices,
)
from nodetracker.virt.host.roots import observe_reads

DEVICES = "sys/bus/pci/devices"


def device(address: str, **files: str) -> dict[str, str]:
    texts = {"vendor": "0x8086", "device": "0x10fb", "class": "0x020000"} | files
    return {f"{DEVICES}/{address}/{name}": f"{text}\n" for name, text in texts.items()}


def test_without_a_pci_bus_there_are_no_devices(make_roots: MakeRoots) -> None:
    assert read_pci_devices(make_roots()).value == ()


def test_a_plain_function_is_read(make_roots: MakeRoots) -> None:
    files = device("0000:02:00.0", vendor="0x1AF4", numa_node="-1")
    (only,) = read_pci_devices(make_roots(files)).value
    assert only == PciDevice("0000:02:00.0", "1af4", "10fb", class_id="020000")


def test_driver_group_and_cell_are_read(make_roots: MakeRoots) -> None:
    links = {
        f"{DEVICES}/0000:02:00.0/driver": "../../../bus/pci/drivers/vfio-pci",
        f"{DEVICES}/0000:02:00.0/iommu_group": "../../../kernel/iommu_groups/41",
    }
    (only,) = read_pci_devices(make_roots(device("0000:02:00.0", numa_node="1"), links)).value
    assert (only.driver, only.iommu_group, only.numa_node) == ("vfio-pci", 41, 1)


def test_virtual_functions_have_their_physical_one_as_parent(make_roots: MakeRoots) -> None:
    files = device("0000:81:00.0", sriov_totalvfs="63", sriov_numvfs="1")
    files |= device("0000:81:10.0", device="0x10ed")
    links = {
        f"{DEVICES}/0000:81:10.0/physfn": "../0000:81:00.0",
        f"{DEVICES}/0000:81:00.0/virtfn0": "../0000:81:10.0",
    }
    physical, virtual = read_pci_devices(make_roots(files, links)).value
    assert physical.dev_type is PciDeviceType.PF
    assert (physical.vf_total, physical.vf_count, physical.parent_addr) == (63, 1, None)
    assert virtual.dev_type is PciDeviceType.VF
    assert (virtual.vf_total, virtual.vf_count, virtual.parent_addr) == (0, 0, "0000:81:00.0")


def test_without_interfaces_there_are_none(make_roots: MakeRoots) -> None:
    assert read_netdevs(make_roots()).value == {}


def test_interfaces_are_mapped_to_their_functions(make_roots: MakeRoots) -> None:
    net = "sys/class/net"
    files = {f"{net}/bonding_masters": "\n", f"{net}/lo/mtu": "65536\n"}
    links = {
        f"{net}/ens1f0/device": "../../../0000:81:00.0",
        f"{net}/ens1f0v3/device": "../../../0000:81:10.3",
        f"{net}/eth0/device": "../../../virtio2",
    }
    assert read_netdevs(make_roots(files, links)).value == {
        "ens1f0": "0000:81:00.0",
        "ens1f0v3": "0000:81:10.3",
    }


def test_the_mediated_device_types_of_functions_are_read(make_roots: MakeRoots) -> None:
    base = "sys/class/mdev_bus"
    kinds = f"{base}/0000:41:00.0/mdev_supported_types"
    files = {
        f"{kinds}/nvidia-11/name": "GRID M60-0B\n",
        f"{kinds}/nvidia-11/device_api": "vfio-pci\n",
        f"{kinds}/nvidia-11/available_instances": "16\n",
        f"{kinds}/i915-4/available_instances": "0\n",
        f"{base}/mtty/mdev_supported_types/mtty-1/available_instances": "24\n",
        f"{base}/0000:42:00.0/uevent": "",  # has no types now
    }
    assert read_mdev_types(make_roots(files)).value == {
        "0000:41:00.0": (
            MdevType("i915-4", "", "", 0),
            MdevType("nvidia-11", "GRID M60-0B", "vfio-pci", 16),
        )
    }


def test_a_type_of_an_invalid_number_of_mediated_devices_is_left_out(
    make_roots: MakeRoots,
) -> None:
    kinds = "sys/class/mdev_bus/0000:41:00.0/mdev_supported_types"
    names = (f"{kinds}/{kind}/available_instances" for kind in "xy")
    found = read_mdev_types(make_roots(dict(zip(names, ("many\n", "2\n"), strict=True))))
    assert [kind.id for kind in found.value["0000:41:00.0"]] == ["y"]
    assert [problem.path[-21:] for problem in found.problems] == ["x/available_instances"]


def test_an_interface_whose_device_is_no_link_selects_none(make_roots: MakeRoots) -> None:
    links = {"sys/class/net/eth1/device": "../../../0000:81:00.1"}
    found = read_netdevs(make_roots({"sys/class/net/eth0/device": ""}, links))
    assert found.value == {"eth1": "0000:81:00.1"}
    assert [problem.path[-11:] for problem in found.problems] == ["eth0/device"]


def test_an_old_kernels_physical_function_is_identified_by_its_links(make_roots: MakeRoots) -> None:
    links = {f"{DEVICES}/0000:81:00.0/virtfn{n}": f"../0000:81:10.{n}" for n in range(2)}
    (only,) = read_pci_devices(make_roots(device("0000:81:00.0"), links)).value
    assert (only.dev_type, only.vf_total, only.vf_count) == (PciDeviceType.PF, 2, 2)


def test_a_function_that_may_have_no_virtual_ones_is_plain(make_roots: MakeRoots) -> None:
    files = device("0000:81:00.0", sriov_totalvfs="0", sriov_numvfs="0")
    (only,) = read_pci_devices(make_roots(files)).value
    assert only.dev_type is PciDeviceType.PCI


def test_domains_of_five_digits_come_last_and_work(make_roots: MakeRoots) -> None:
    roots = make_roots(device("10000:e1:00.0") | device("0000:ff:1f.7"))
    assert [d.address for d in read_pci_devices(roots).value] == ["0000:ff:1f.7", "10000:e1:00.0"]


def test_the_other_devices_are_read_when_one_vanishes(make_roots: MakeRoots) -> None:
    links = {f"{DEVICES}/0000:03:00.0": "../../../devices/pci0000:00/0000:03:00.0"}
    roots = make_roots(device("0000:02:00.0") | device("0000:04:00.0"), links)
    assert [d.address for d in read_pci_devices(roots).value] == ["0000:02:00.0", "0000:04:00.0"]


GOOD, BAD = "0000:02:00.0", "0000:03:00.0"


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"vendor": "garbage"}, "vendor"),
        ({"vendor": "0x80861"}, "vendor"),
        ({"device": ""}, "device"),
    ],
    ids=["vendor", "vendor-too-wide", "device"],
)
def test_a_device_of_unknown_identity_is_left_out(
    files: Mapping[str, str], source: str, make_roots: MakeRoots
) -> None:
    roots = make_roots(device(GOOD) | device(BAD, **files))
    found = read_pci_devices(roots)
    assert [d.address for d in found.value] == [GOOD]
    assert [problem.path for problem in found.problems] == [
        str(roots.rootfs / DEVICES / BAD / source)
    ]


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"class": "network"}, "class"),
        ({"numa_node": "x"}, "numa_node"),
        ({"sriov_totalvfs": "many"}, "sriov_totalvfs"),
        ({"sriov_totalvfs": "0", "sriov_numvfs": "few"}, "sriov_numvfs"),
    ],
    ids=["class", "numa", "total", "count"],
)
def test_a_device_is_listed_without_an_unusable_property(
    files: Mapping[str, str], source: str, make_roots: MakeRoots
) -> None:
    roots = make_roots(device(BAD, **files))
    found = read_pci_devices(roots)
    (only,) = found.value
    assert (only.address, only.numa_node, only.vf_total) == (BAD, None, 0)
    assert [problem.path for problem in found.problems] == [
        str(roots.rootfs / DEVICES / BAD / source)
    ]


def test_an_existing_device_without_a_vendor_is_left_out(make_roots: MakeRoots) -> None:
    files = device(GOOD) | {f"{DEVICES}/{BAD}/device": "0x10fb\n"}
    found = read_pci_devices(make_roots(files))
    assert [d.address for d in found.value] == [GOOD]
    (problem,) = found.problems
    assert problem.path.endswith("vendor")
    assert problem.text == "No such file or directory; the device is left out"


class Removal:
    """Removes files of a machine when one of its directories is listed for the first time."""

    def __init__(self, steps: Mapping[Path, Callable[[], object]]) -> None:
        self._steps = dict(steps)

    def on_read(self, path: Path, data: bytes) -> None: ...
    def on_lookup(self, path: Path) -> None: ...
    def on_failure(self, path: Path, reason: str) -> None: ...

    def on_list(self, path: Path, names: tuple[str, ...]) -> None:
        self._steps.pop(path, lambda: None)()

    def add(self, path: Path, step: Callable[[], object]) -> None:
        self._steps[path] = step


def test_a_device_that_is_removed_while_it_is_read_is_no_problem(make_roots: MakeRoots) -> None:
    roots = make_roots(device(GOOD) | device(BAD) | device("0000:04:00.0"))
    base = roots.rootfs / DEVICES
    removal = Removal(
        {
            base / BAD: (base / BAD / "vendor").unlink,
            base / "0000:04:00.0": lambda: shutil.rmtree(base / BAD),
        }
    )
    with observe_reads(removal):
        found = read_pci_devices(roots)
    assert [d.address for d in found.value] == [GOOD, "0000:04:00.0"]
    assert found.problems == ()


def test_a_device_that_is_removed_while_it_is_read_again_is_no_problem(
    make_roots: MakeRoots,
) -> None:
    roots = make_roots(device(GOOD) | device(BAD))
    directory = roots.rootfs / DEVICES / BAD

    def damage() -> None:
        (directory / "vendor").unlink()
        removal.add(directory, lambda: shutil.rmtree(directory))

    removal = Removal({directory: damage})
    with observe_reads(removal):
        found = read_pci_devices(roots)
    assert not directory.exists()
    assert [d.address for d in found.value] == [GOOD]
    assert found.problems == ()


def test_a_function_of_an_unknown_parent_is_left_out(make_roots: MakeRoots) -> None:
    roots = make_roots(device(GOOD) | device(BAD), {f"{DEVICES}/{BAD}/physfn": "../elsewhere"})
    found = read_pci_devices(roots)
    assert [d.address for d in found.value] == [GOOD]
    assert [problem.path[-6:] for problem in found.problems] == ["physfn"]


def test_a_link_to_another_place_is_no_iommu_group(make_roots: MakeRoots) -> None:
    links = {f"{DEVICES}/{BAD}/iommu_group": "../groups/none"}
    found = read_pci_devices(make_roots(device(BAD), links))
    assert found.value[0].iommu_group is None
    assert [problem.path[-11:] for problem in found.problems] == ["iommu_group"]


def test_a_name_that_is_not_an_address_is_left_out(make_roots: MakeRoots) -> None:
    found = read_pci_devices(make_roots(device("0000:02:00") | device(GOOD)))
    assert [d.address for d in found.value] == [GOOD]
    assert [problem.text[:20] for problem in found.problems] == ["is not a PCI address"]


@given(st.text() | st.from_regex(r"\s*[0-9A-Fa-f]{3,9}:[0-9A-F]{2}:[0-9a-f]{2}\.[0-9]\s*"))
def test_any_address_is_read_or_refused(text: str) -> None:
    try:
        address = parse_pci_address(text, "file")
    except HostDataError:
        return
    assert parse_pci_address(address, "file") == address


@given(st.text() | st.from_regex(r"0x[0-9A-Fa-f]{0,9}\n"), st.sampled_from([4, 6]))
def test_any_number_has_its_width_or_is_refused(text: str, digits: int) -> None:
    try:
        number = parse_pci_id(text, digits, "file")
    except HostDataError:
        return
    assert len(number) == digits
    assert int(number, 16) >= 0
