"""Domain documents: resources, disks, affinity and devices of a guest."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.domain import (
    DEFAULT_PAGE_KB,
    Domain,
    DomainDisk,
    MemoryModule,
    MemoryPart,
    parse_domain,
)

UUID = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"


def document(
    devices="", more="", memory="<memory unit='KiB'>65536</memory>", vcpu="<vcpu>2</vcpu>"
):
    return f"""<domain type='qemu'><name>web</name><uuid>{UUID}</uuid>{memory}{vcpu}{more}
      <os><type>hvm</type></os><devices>{devices}</devices></domain>"""


def test_a_minimal_document_is_parsed():
    memory = (MemoryPart(64 * 2**20),)
    assert parse_domain(document()) == Domain(UUID, "web", 2, 2, 64 * 2**20, memory=memory)


def test_a_name_is_kept_exactly():
    assert parse_domain(document().replace(">web<", "> web  <")).name == " web  "


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
def test_memory_is_the_maximum_memory(memory, size):
    assert parse_domain(document(memory=memory)).memory_bytes == size


@pytest.mark.parametrize(
    ("vcpu", "now", "most"),
    [("<vcpu current='1'>4</vcpu>", 1, 4), ("<vcpu>4</vcpu>", 4, 4), ("", 1, 1)],
)
def test_vcpus_are_the_current_ones_or_else_the_maximum(vcpu, now, most):
    domain = parse_domain(document(vcpu=vcpu))
    assert (domain.vcpus, domain.vcpus_max) == (now, most)
    assert domain.unplugged == frozenset(range(now, most))


def test_any_vcpu_but_the_first_may_be_unplugged():
    vcpus = "".join(
        f"<vcpu id='{number}' enabled='{is_enabled}' hotpluggable='yes'/>"
        for number, is_enabled in enumerate(("yes", "yes", "no", "yes"))
    )
    domain = parse_domain(
        document(vcpu="<vcpu current='3'>4</vcpu>", more=f"<vcpus>{vcpus}</vcpus>")
    )
    assert domain.unplugged == frozenset({2})


DISKS = """
<disk type='file' device='disk'><source file='/a.qcow2'/><target dev='vda'/></disk>
<disk type='block' device='disk'><source dev='/dev/sdb'/><target dev='vdb'/></disk>
<disk type='network' device='disk'><source protocol='rbd' name='p/v'/><target dev='vdc'/></disk>
<disk type='volume' device='disk'><source pool='p' volume='v'/><target dev='vdd'/></disk>
<disk type='file' device='cdrom'><source file='/cd.iso'/><target dev='sda'/><readonly/></disk>
<disk type='file' device='disk'><source file='/ro.img'/><target dev='vde'/><readonly/></disk>
<disk type='file' device='cdrom'><target dev='sdb'/></disk>
"""


def test_disks_are_parsed_with_their_source_and_whether_they_are_charged():
    assert parse_domain(document(DISKS)).disks == (
        DomainDisk("vda", "file", "/a.qcow2"),
        DomainDisk("vdb", "block", "/dev/sdb"),
        DomainDisk("vdc", "network", protocol="rbd", pool="p", volume="v"),
        DomainDisk("vdd", "volume", pool="p", volume="v"),
        DomainDisk("sda", "file", "/cd.iso", is_charged=False),
        DomainDisk("vde", "file", "/ro.img", is_charged=False),
        DomainDisk("sdb", "file", "", is_charged=False),
    )


def test_pins_cells_and_pages_are_parsed():
    more = """
      <cputune><vcpupin vcpu='1' cpuset='5'/><vcpupin vcpu='0' cpuset='4,6'/></cputune>
      <numatune><memory mode='strict' nodeset='0-1'/>
        <memnode cellid='0' mode='strict' nodeset='1'/></numatune>
      <memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>
      <cpu><numa><cell id='0' cpus='0-1' memory='64' unit='MiB'/></numa></cpu>
    """
    domain = parse_domain(document(more=more))
    assert domain.affinity == {0: frozenset({4, 6}), 1: frozenset({5})}
    assert domain.memory == (MemoryPart(64 * 2**20, frozenset({1}), 1048576),)


CELLS = """<cpu><numa><cell id='0' cpus='0' memory='64' unit='MiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/></numa></cpu>"""


@pytest.mark.parametrize(
    ("pages", "sizes"),
    [
        ("<page size='2048' nodeset='0'/><page size='1' unit='GiB' nodeset='1'/>", [2048, 1048576]),
        ("<page size='2048' nodeset='0'/>", [2048, None]),
        ("<page size='2048'/><page size='1' unit='GiB' nodeset='1'/>", [2048, 1048576]),
        ("<page size='2' unit='MiB' nodeset='0-1'/>", [2048, 2048]),
    ],
)
def test_each_cell_has_its_own_pages(pages, sizes):
    more = f"<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>{CELLS}"
    assert [part.page_kb for part in parse_domain(document(more=more)).memory] == sizes


def test_modules_are_memory_of_their_cell():
    devices = """
      <memory model='dimm'><target><size unit='MiB'>128</size><node>1</node></target></memory>
      <memory model='dimm'><source><pagesize unit='KiB'>2048</pagesize><nodemask>0,2</nodemask>
        </source><target><size unit='MiB'>256</size><node>0</node></target></memory>
      <memory model='nvdimm'><source><path>/f</path></source>
        <target><size unit='MiB'>512</size><node>0</node></target></memory>
      <memory model='virtio-mem'><target><size unit='MiB'>32</size><node>0</node>
        <requested unit='MiB'>16</requested></target></memory>
    """
    more = f"{CELLS}<numatune><memnode cellid='1' mode='strict' nodeset='3'/></numatune>"
    memory = f"<memory unit='MiB'>{1088 + 128 + 256 + 512 + 32}</memory>"
    mib = 2**20
    assert parse_domain(document(devices, more, memory)).memory == (
        MemoryPart(64 * mib),
        MemoryPart(1024 * mib, frozenset({3})),
        MemoryPart(128 * mib, frozenset({3})),
        MemoryPart(256 * mib, frozenset({0, 2}), 2048),
        MemoryPart(32 * mib),
    )


@pytest.mark.parametrize("cells", [CELLS, ""], ids=["with cells", "without"])
def test_memory_in_files_or_devices_is_not_the_host_s(cells):
    """libvirt counts it in the domain's <memory>; virtio-mem is charged its maximum."""
    devices = """
      <memory model='nvdimm'><source><path>/dev/dax0.0</path></source>
        <target><size unit='GiB'>500</size><node>0</node></target></memory>
      <memory model='virtio-pmem'><source><path>/srv/pmem</path></source>
        <target><size unit='GiB'>1</size></target></memory>
      <memory model='virtio-mem'><target><size unit='MiB'>512</size><node>0</node>
        <requested unit='MiB'>256</requested><current unit='KiB'>131072</current></target></memory>
    """
    memory = f"<memory unit='MiB'>{501 * 1024 + 1088 + 512}</memory>"
    domain = parse_domain(document(devices, cells, memory))
    mib = 2**20
    assert domain.memory_bytes == (1088 + 512) * mib
    assert sum(part.size_bytes for part in domain.memory) == domain.memory_bytes
    assert domain.persistent_bytes == 501 * 1024 * mib
    assert domain.modules == (MemoryModule(512 * mib, 256 * mib, 128 * mib),)


def test_the_emulator_and_each_io_thread_have_their_sets():
    more = """<cputune><emulatorpin cpuset='3'/><iothreadpin iothread='1' cpuset='4-5'/>
      <iothreadpin iothread='2' cpuset='6'/></cputune>"""
    sets = {frozenset({3}), frozenset({4, 5}), frozenset({6})}
    assert parse_domain(document(more=more)).helper_sets == sets


def test_an_emulator_without_a_set_runs_where_the_vcpus_may():
    named = document().replace("<vcpu", "<vcpu cpuset='2-3'", 1)
    assert parse_domain(named).helper_sets == {frozenset({2, 3})}
    pinned = document(more="<cputune><emulatorpin cpuset='3'/></cputune>")
    pinned = pinned.replace("<vcpu", "<vcpu cpuset='2-3'", 1)
    assert parse_domain(pinned).helper_sets == {frozenset({3})}
    assert parse_domain(document()).helper_sets == frozenset()


def test_a_cpuset_applies_to_each_vcpu():
    domain = parse_domain(document(vcpu="<vcpu cpuset='2-3'>2</vcpu>"))
    assert domain.affinity == {0: frozenset({2, 3}), 1: frozenset({2, 3})}


def test_huge_pages_without_a_size_are_2_mib():
    more = "<memoryBacking><hugepages/></memoryBacking>"
    assert parse_domain(document(more=more)).memory == (
        MemoryPart(64 * 2**20, page_kb=DEFAULT_PAGE_KB),
    )


def test_host_devices_include_interfaces_and_disks():
    address = "<address type='pci' domain='0x0000' bus='0x{}' slot='0x10' function='0x1'/>"
    devices = f"""
      <hostdev mode='subsystem' type='pci'><source>{address.format("81")}</source></hostdev>
      <hostdev mode='subsystem' type='usb'><source><vendor id='1'/></source></hostdev>
      <interface type='hostdev'><source>{address.format("0a")}</source></interface>
      <disk type='nvme'><source type='pci' namespace='1'>{address.format("02")}</source>
        <target dev='vda'/></disk>
    """
    found = parse_domain(document(devices)).devices
    assert found == ("0000:02:10.1", "0000:0a:10.1", "0000:81:10.1")


@pytest.mark.parametrize(
    ("argument", "devices", "mdevs"),
    [
        ("vfio-pci,host=3b:00.0,id=gpu", ("0000:3b:00.0",), ()),
        ("vfio-pci,host=0001:3B:00.1", ("0001:3b:00.1",), ()),
        ("vfio-pci-nohotplug,sysfsdev=/sys/bus/pci/devices/0000:3b:00.0", ("0000:3b:00.0",), ()),
        ('{"driver":"vfio-pci","host":"0000:3b:00.0","bus":1}', ("0000:3b:00.0",), ()),
        ("vfio-pci,sysfsdev=/sys/bus/mdev/devices/4B20D080-1B54", (), ("4b20d080-1b54",)),
        ("vfio-pci,fd=7", (), ("",)),
        ("virtio-net-pci,host=3b:00.0", (), ()),
        ("{vfio-pci", (), ()),
        ("[1]", (), ()),
    ],
)
def test_what_arguments_for_qemu_pass_through_is_used(argument, devices, mdevs):
    domain = parse_domain(
        f"""<domain xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'><name>a</name>
        <uuid>{UUID}</uuid><memory>1</memory><vcpu>1</vcpu>
        <q:commandline><q:arg value='-device'/><q:arg value='{argument}'/></q:commandline>
        </domain>"""
    )
    assert (domain.devices, domain.mdevs) == (devices, mdevs)


def test_other_host_devices_are_described():
    devices = """
      <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>
        <address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>
      <hostdev mode='subsystem' type='usb'><source startupPolicy='optional'>
        <vendor id='0x1234'/><product id='0xbeef'/></source></hostdev>
      <hostdev mode='subsystem' type='pci'><source>
        <address bus='0x81' slot='0x10' function='0x1'/></source></hostdev>
      <hostdev mode='capabilities' type='storage'><source><block>/dev/sdf1</block></source>
        </hostdev>
    """
    assert parse_domain(document(devices)).other_devices == (
        "mdev c2177883-f1bb-47f0-914d-32a22e3a8804",
        "storage /dev/sdf1",
        "usb 0x1234 0xbeef",
    )


def test_the_project_is_read_from_nova_s_metadata():
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
        document(memory="<memory unit='TiB'>9000000</memory>"),
        document(vcpu="<vcpu>few</vcpu>"),
        document(vcpu="<vcpu>4000000000</vcpu>"),
        document(vcpu=f"<vcpu>{'9' * 5000}</vcpu>"),
        document(vcpu="<vcpu current='5'>4</vcpu>"),
        document(more="<cputune><vcpupin vcpu='0' cpuset='a'/></cputune>"),
        document("<disk type='file'><source file='/a'/></disk>"),
    ],
    ids=[
        "cut",
        "another",
        "uuid",
        "name",
        "memory",
        "amount",
        "unit",
        "amount that overflows",
        "vcpu",
        "billions of vcpus",
        "digits",
        "more than the maximum",
        "pin",
        "target",
    ],
)
def test_an_invalid_document_is_an_error_that_names_the_domain(text):
    with pytest.raises(HostDataError) as caught:
        parse_domain(text, "domain web")
    assert caught.value.source == "domain web"
    assert len(str(caught.value)) < 200
