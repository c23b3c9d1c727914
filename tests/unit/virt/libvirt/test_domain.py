"""Domain documents: what a guest was promised, and what it is bound to."""

import pytest

from nodetracker.errors import HostDataError
from nodetracker.virt.libvirt.domain import Domain, DomainDisk, GuestNode, parse_domain

UUID = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"


def document(
    devices="", more="", memory="<memory unit='KiB'>65536</memory>", vcpu="<vcpu>2</vcpu>"
):
    return f"""<domain type='qemu'><name>web</name><uuid>{UUID}</uuid>{memory}{vcpu}{more}
      <os><type>hvm</type></os><devices>{devices}</devices></domain>"""


def test_the_least_document_makes_a_domain():
    assert parse_domain(document()) == Domain(UUID, "web", 2, 2, 64 * 2**20)


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("<memory>1024</memory>", 2**20),
        ("<memory unit='bytes'>4096</memory>", 4096),
        ("<memory unit='GiB'>2</memory>", 2 * 2**30),
        ("<memory unit='MB'>3</memory>", 3_000_000),
        ("<memory unit='KiB'>2048</memory><currentMemory unit='KiB'>1024</currentMemory>", 2**21),
    ],
)
def test_memory_is_the_most_it_may_use(memory, size):
    assert parse_domain(document(memory=memory)).memory_bytes == size


@pytest.mark.parametrize(
    ("vcpu", "now", "most"),
    [("<vcpu current='1'>4</vcpu>", 1, 4), ("<vcpu>4</vcpu>", 4, 4), ("", 1, 1)],
)
def test_the_maximum_of_vcpus_is_what_runs_unless_less_is_current(vcpu, now, most):
    domain = parse_domain(document(vcpu=vcpu))
    assert (domain.vcpus, domain.vcpus_max) == (now, most)


DISKS = """
<disk type='file' device='disk'><source file='/a.qcow2'/><target dev='vda'/></disk>
<disk type='block' device='disk'><source dev='/dev/sdb'/><target dev='vdb'/></disk>
<disk type='network' device='disk'><source protocol='rbd' name='p/v'/><target dev='vdc'/></disk>
<disk type='volume' device='disk'><source pool='p' volume='v'/><target dev='vdd'/></disk>
<disk type='file' device='cdrom'><source file='/cd.iso'/><target dev='sda'/><readonly/></disk>
<disk type='file' device='disk'><source file='/ro.img'/><target dev='vde'/><readonly/></disk>
<disk type='file' device='cdrom'><target dev='sdb'/></disk>
"""


def test_disks_by_where_they_are_and_whether_they_are_the_guest_s():
    assert parse_domain(document(DISKS)).disks == (
        DomainDisk("vda", "file", "/a.qcow2"),
        DomainDisk("vdb", "block", "/dev/sdb"),
        DomainDisk("vdc", "network", protocol="rbd", pool="p"),
        DomainDisk("vdd", "volume", pool="p"),
        DomainDisk("sda", "file", "/cd.iso", is_promised=False),
        DomainDisk("vde", "file", "/ro.img", is_promised=False),
        DomainDisk("sdb", "file", "", is_promised=False),
    )


def test_pins_cells_and_pages_are_read():
    more = """
      <cputune><vcpupin vcpu='1' cpuset='5'/><vcpupin vcpu='0' cpuset='4,6'/></cputune>
      <numatune><memory mode='strict' nodeset='0-1'/>
        <memnode cellid='0' mode='strict' nodeset='1'/></numatune>
      <memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>
      <cpu><numa><cell id='0' cpus='0-1' memory='64' unit='MiB'/></numa></cpu>
    """
    domain = parse_domain(document(more=more))
    assert domain.affinity == {0: frozenset({4, 6}), 1: frozenset({5})}
    assert domain.memory_nodes == {None: frozenset({0, 1}), 0: frozenset({1})}
    assert domain.page_kb == 1048576
    assert domain.nodes == {0: GuestNode(frozenset({0, 1}), 64 * 2**20)}


def test_a_cpuset_of_all_vcpus_is_each_one_s():
    domain = parse_domain(document(vcpu="<vcpu cpuset='2-3'>2</vcpu>"))
    assert domain.affinity == {0: frozenset({2, 3}), 1: frozenset({2, 3})}


def test_huge_pages_without_a_size_are_two_mebibytes():
    more = "<memoryBacking><hugepages/></memoryBacking>"
    assert parse_domain(document(more=more)).page_kb == 2048


def test_host_devices_as_such_and_as_interfaces():
    address = "<address type='pci' domain='0x0000' bus='0x{}' slot='0x10' function='0x1'/>"
    devices = f"""
      <hostdev mode='subsystem' type='pci'><source>{address.format("81")}</source></hostdev>
      <hostdev mode='subsystem' type='usb'><source><vendor id='1'/></source></hostdev>
      <interface type='hostdev'><source>{address.format("0a")}</source></interface>
    """
    assert parse_domain(document(devices)).devices == ("0000:0a:10.1", "0000:81:10.1")


def test_the_owner_that_nova_writes():
    more = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:owner><nova:user uuid="u1">x</nova:user><nova:project uuid="p1">y</nova:project>
      </nova:owner></nova:instance></metadata>"""
    assert parse_domain(document(more=more)).project_id == "p1"


@pytest.mark.parametrize(
    "text",
    [
        "<domain>",
        "<network/>",
        document().replace(UUID, "none"),
        document().replace("<name>web</name>", ""),
        document(memory=""),
        document(memory="<memory unit='KiB'>much</memory>"),
        document(memory="<memory unit='stone'>1</memory>"),
        document(vcpu="<vcpu>few</vcpu>"),
        document(more="<cputune><vcpupin vcpu='0' cpuset='a'/></cputune>"),
        document("<disk type='file'><source file='/a'/></disk>"),
    ],
    ids=["cut", "another", "uuid", "name", "memory", "amount", "unit", "vcpu", "pin", "target"],
)
def test_what_cannot_be_used_is_an_error_that_names_the_domain(text):
    with pytest.raises(HostDataError) as caught:
        parse_domain(text, "domain web")
    assert caught.value.source == "domain web"
