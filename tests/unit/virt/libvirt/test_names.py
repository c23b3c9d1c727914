"""A hypervisor whose hostname changes form keeps the name of its row; two with one uuid do not mix."""

from types import SimpleNamespace

import pytest

from nodetracker.model.node import KnownNode
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.capabilities import parse_capabilities
from nodetracker.virt.libvirt.connection import ConnectionTimes
from nodetracker.virt.libvirt.driver import LibvirtDriver
from nodetracker.virt.libvirt.node_facts import derive_node_uuid
from nodetracker.virt.libvirt.types import Identity, LibvirtSettings, parse_endpoints
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner

BOARD = "5e0f3a52-6b1d-4d0e-9c57-2f7d3c1a9b10"
OTHER_BOARD = "5e0f3a52-6b1d-4d0e-9c57-2f7d3c1a9b11"
URI = "qemu+ssh://far-1/system"


def capabilities(board):
    return f"<capabilities><host><uuid>{board}</uuid></host></capabilities>"


def known(nodename, board=BOARD, source="qemu+ssh://elsewhere/system", kind="QEMU"):
    root = parse_capabilities(capabilities(board))
    return KnownNode(nodename, derive_node_uuid(root, Identity(nodename, kind, 0)), source)


class Client(SimpleNamespace):
    def __init__(self, hostname, board):
        super().__init__(
            get_identity=lambda: Identity(hostname, "QEMU", 8002001),
            get_capabilities=lambda: capabilities(board),
            set_keepalive=lambda *_: None,
            register_events=lambda _: None,
            is_alive=lambda: True,
            close=lambda: None,
        )


@pytest.fixture
def make_driver(tmp_path):
    drivers = []

    def make(hosts, board=BOARD):
        """Args: hosts: entry of connection_uris -> hostname."""
        endpoints = parse_endpoints(list(hosts))
        names = dict(zip((e.uri for e in endpoints), hosts.values(), strict=True))
        driver = LibvirtDriver(
            endpoints,
            DriverEnvironment("host-1", str(tmp_path), Roots(), ProbeRunner(5)),
            LibvirtSettings(),
            ConnectionTimes(5, 0, 3),
            lambda endpoint: Client(names[endpoint.uri], board),
        )
        driver.init_host()
        drivers.append(driver)
        driver.get_available_nodes()
        return driver

    yield make
    for driver in drivers:
        driver.close()


@pytest.mark.parametrize(
    ("hostname", "node", "name"),
    [
        ("kvm-1", known("kvm-1.example.net"), "kvm-1.example.net"),
        ("kvm-1.example.net", known("kvm-1"), "kvm-1"),
        ("KVM-1", known("kvm-1"), "kvm-1"),
        ("kvm-1.other.org", known("kvm-1.example.net"), "kvm-1.example.net"),
        ("renamed", known("kvm-1", source=URI), "kvm-1"),
        ("renamed", known("kvm-1"), "renamed"),
        ("kvm-10", known("kvm-1"), "kvm-10"),
        ("kvm-1", known("kvm-1.example.net", OTHER_BOARD), "kvm-1"),
        ("kvm-1", known("kvm-1.example.net", kind="Xen"), "kvm-1"),
        ("kvm-1", KnownNode("kvm-1.example.net", BOARD, URI), "kvm-1"),
    ],
    ids=[
        "domain lost", "domain added", "case", "other domain", "same URI", "other URI",
        "other name", "other board", "other type", "another uuid",
    ],
)  # fmt: skip
def test_a_hypervisor_keeps_the_name_of_its_row(make_driver, hostname, node, name):
    driver = make_driver({URI: hostname})
    driver.keep_names([node])
    assert driver.get_available_nodes().nodenames == (name,)


def test_a_name_that_is_configured_is_never_replaced(make_driver):
    driver = make_driver({f"n1={URI}": "kvm-1"})
    driver.keep_names([known("kvm-1.example.net", source=URI)])
    assert driver.get_available_nodes().nodenames == ("n1",)


def test_of_two_boards_with_one_uuid_each_keeps_its_own_row(make_driver):
    hosts = {"qemu+ssh://far-1/system": "kvm-1", "qemu+ssh://far-2/system": "kvm-2"}
    driver = make_driver(hosts)
    driver.keep_names([known("kvm-2.example.net"), known("kvm-1.example.net")])
    assert driver.get_available_nodes().nodenames == ("kvm-1.example.net", "kvm-2.example.net")


def test_one_row_is_kept_by_one_hypervisor(make_driver):
    """Two names that differ by their domain only, and one row."""
    hosts = {"qemu+ssh://far-1/system": "kvm.a.org", "qemu+ssh://far-2/system": "kvm.b.org"}
    driver = make_driver(hosts)
    driver.keep_names([known("kvm")])
    assert driver.get_available_nodes().nodenames == ("kvm", "kvm.b.org")
