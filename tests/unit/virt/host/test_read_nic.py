"""Test reading network interfaces and their speeds."""

import pytest
from host_tree import MakeRoots

from nodetracker.model.host import HostProblem, Nic
from nodetracker.virt.host.roots import Partial
from nodetracker.virt.host.system import MAX_NICS, read_nics

PCI = "0000:81:00.0"
PF = f"sys/devices/pci0000:80/{PCI}"
VF = "sys/devices/pci0000:80/0000:81:10.0"


def add_interface(make_roots: MakeRoots, name: str, device: str, driver: str, **files: str):
    links = {
        f"sys/class/net/{name}": f"../../{device.removeprefix('sys/')}/net/{name}",
        f"{device}/net/{name}/device": f"../../../{device.rpartition('/')[2]}",
    }
    roots = make_roots({f"{device}/net/{name}/{key}": text for key, text in files.items()}, links)
    link = roots.rootfs / device / "driver"
    if not link.is_symlink():
        make_roots(links={f"{device}/driver": f"../../../bus/pci/drivers/{driver}"})
    return roots


def test_interfaces_with_a_device_are_listed(make_roots: MakeRoots) -> None:
    add_interface(make_roots, "eth1", PF, "ixgbe", operstate="up\n", speed="10000\n")
    add_interface(make_roots, "eth0", "sys/devices/pci0000:00/virtio2", "virtio_net", speed="-1\n")
    add_interface(make_roots, "eth2", VF, "ixgbevf", operstate="up\n", speed="10000\n")
    make_roots(links={f"{VF}/physfn": f"../{PCI}"})
    roots = make_roots(
        {"sys/devices/virtual/net/lo/operstate": "unknown\n", "sys/class/net/bonding_masters": ""},
        {"sys/class/net/lo": "../../devices/virtual/net/lo"},
    )
    found = read_nics(roots)
    assert found.value == (
        Nic("eth0", None, "virtio_net"),
        Nic("eth1", PCI, "ixgbe", 10000),
    )
    assert found.problems == ()


@pytest.mark.parametrize(
    ("operstate", "speed", "expected"),
    [
        ("up", "25000", 25000),
        ("unknown", "100", 100),
        ("down", "10000", None),
        ("lowerlayerdown", "10000", None),
        ("up", "-1", None),
        ("up", "4294967295", None),
        ("up", "65535", None),
        ("up", "0", None),
        ("up", "fast", None),
        ("up", "", None),
    ],
)
def test_a_speed_is_known_only_while_the_link_is_up(
    make_roots: MakeRoots, operstate: str, speed: str, expected: int | None
) -> None:
    roots = add_interface(make_roots, "eth0", PF, "ixgbe", operstate=operstate, speed=speed)
    assert read_nics(roots).value[0].speed_mbps == expected


def test_a_driver_that_cannot_be_read_is_a_problem(make_roots: MakeRoots) -> None:
    roots = add_interface(make_roots, "eth0", PF, "ixgbe", speed="1000")
    driver = roots.rootfs / PF / "driver"
    driver.unlink()
    driver.write_text("ixgbe")
    path = str(roots.sysfs / "class/net/eth0/device/driver")
    found = read_nics(roots)
    assert found.value == (Nic("eth0", PCI, "", 1000),)
    assert found.problems == (
        HostProblem(path, "Invalid argument; the interface is listed without it"),
    )


def test_at_most_so_many_are_listed(make_roots: MakeRoots) -> None:
    for number in range(MAX_NICS + 3):
        roots = add_interface(make_roots, f"eth{number:03}", PF, "ixgbe")
    names = [nic.name for nic in read_nics(roots).value]
    assert names == [f"eth{number:03}" for number in range(MAX_NICS)]


def test_a_machine_without_interfaces_has_none(make_roots: MakeRoots) -> None:
    assert read_nics(make_roots()) == Partial(())
