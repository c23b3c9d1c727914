"""Node device documents: PCI functions, virtual functions, mediated device types."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.pci import MdevType, PciDevice, PciDeviceType
from nodetracker.virt.libvirt.devices import (
    REREAD_SECONDS,
    DeviceReader,
    parse_mdev_types,
    parse_pci_device,
)


def document(more="", bus=129, slot=0, function=0, driver="<driver><name>ixgbe</name></driver>"):
    return f"""<device><name>pci_x</name><parent>computer</parent>{driver}
      <capability type='pci'><class>0x020000</class><domain>0</domain><bus>{bus}</bus>
      <slot>{slot}</slot><function>{function}</function>
      <product id='0x10fb'>card</product><vendor id='0x8086'>maker</vendor>{more}
      </capability></device>"""


def address(bus, slot, function):
    return f"<address domain='0x0000' bus='{bus}' slot='{slot}' function='{function}'/>"


def test_all_attributes_of_a_function_are_parsed():
    assert parse_pci_device(document("<numa node='1'/><iommuGroup number='7'/>")) == PciDevice(
        "0000:81:00.0", "8086", "10fb", "020000", driver="ixgbe", numa_node=1, iommu_group=7
    )


def test_a_physical_function_counts_its_virtual_functions():
    more = f"""<capability type='virt_functions' maxCount='63'>
      {address("0x81", "0x10", "0x0")}{address("0x81", "0x10", "0x2")}</capability>"""
    device = parse_pci_device(document(more))
    assert (device.dev_type, device.vf_total, device.vf_count) == (PciDeviceType.PF, 63, 2)


def test_a_virtual_function_has_its_physical_function_as_parent():
    more = f"<capability type='phys_function'>{address('0x81', '0x00', '0x0')}</capability>"
    device = parse_pci_device(document(more, slot=16))
    assert (device.dev_type, device.parent_addr) == (PciDeviceType.VF, "0000:81:00.0")


@pytest.mark.parametrize(
    "text",
    [
        "<device><capability type='net'/></device>",
        document().replace("<bus>129</bus>", ""),
        document().replace("0x10fb", "card"),
        document("<numa node='near'/>"),
    ],
    ids=["net", "bus", "product", "numa"],
)
def test_an_invalid_document_is_an_error(text):
    with pytest.raises(HostDataError):
        parse_pci_device(text, "node device pci_x")


class Machine:
    def __init__(self):
        self.now = 0.0
        self.slots = {"a": 1, "b": 0}
        self.read = []
        self.reader = DeviceReader(self.read_xml, lambda: self.now)

    def read_xml(self, name):
        self.read.append(name)
        return document(slot=self.slots[name]) if name in self.slots else None

    def names(self, have_changed=False):
        return [device.address for device in self.reader.read(["a", "b"], have_changed).value]


def test_documents_are_read_again_only_after_an_event_a_refresh_or_at_their_maximum_age():
    machine = Machine()
    assert machine.names() == ["0000:81:00.0", "0000:81:01.0"]
    assert machine.names() == machine.names()
    assert machine.read == ["a", "b"]
    machine.slots["a"] = 2
    assert machine.names(have_changed=True) == ["0000:81:00.0", "0000:81:02.0"]
    machine.slots["a"] = 3
    machine.now = REREAD_SECONDS
    assert machine.names() == ["0000:81:00.0", "0000:81:03.0"]
    machine.slots["a"] = 4
    machine.reader.refresh()
    assert machine.names() == ["0000:81:00.0", "0000:81:04.0"]
    machine.slots["a"] = 5
    assert machine.names() == ["0000:81:00.0", "0000:81:04.0"]


def test_a_device_that_disappears_while_it_is_read_is_left_out():
    machine = Machine()
    del machine.slots["a"]
    assert machine.names() == ["0000:81:00.0"]


def test_a_device_with_an_invalid_document_is_left_out_and_read_again():
    texts = {"a": "<device>", "b": document(slot=1)}
    reader = DeviceReader(texts.get)
    found = reader.read(["a", "b"], have_changed=False)
    assert [device.address for device in found.value] == ["0000:81:01.0"]
    assert [problem.path for problem in found.problems] == ["node device a"]
    texts["a"] = document(slot=0)
    found = reader.read(["a", "b"], have_changed=False)
    assert [device.address for device in found.value] == ["0000:81:00.0", "0000:81:01.0"]
    assert found.problems == ()


def test_a_device_that_cannot_be_read_is_left_out_and_read_again():
    failing = {"a"}

    def read_xml(name):
        if name in failing:
            raise HostDataError(f"node device {name}", "internal error")
        return document(slot="ab".index(name))

    reader = DeviceReader(read_xml)
    found = reader.read(["a", "b"], have_changed=False)
    assert [device.address for device in found.value] == ["0000:81:01.0"]
    assert [problem.path for problem in found.problems] == ["node device a"]
    failing.clear()
    found = reader.read(["a", "b"], have_changed=False)
    assert [device.address for device in found.value] == ["0000:81:00.0", "0000:81:01.0"]


MDEV_TYPES = """<capability type='mdev_types'>
  <type id='nvidia-11'><name>GRID M60-0B</name><deviceAPI>vfio-pci</deviceAPI>
    <availableInstances>16</availableInstances></type>
  <type id='i915-4'><deviceAPI>vfio-pci</deviceAPI><availableInstances>0</availableInstances></type>
</capability>"""


def test_mediated_device_types_are_parsed():
    found = parse_mdev_types(document(MDEV_TYPES))
    assert found == (
        MdevType("nvidia-11", "GRID M60-0B", "vfio-pci", 16),
        MdevType("i915-4", "", "vfio-pci", 0),
    )
    assert parse_mdev_types(document()) == ()
    with pytest.raises(HostDataError, match="availableInstances"):
        parse_mdev_types(document("<capability type='mdev_types'><type id='x'/></capability>"))


def test_mediated_device_types_are_listed_by_address():
    reader = DeviceReader(lambda name: document(MDEV_TYPES))
    (device,) = reader.read(["a"], have_changed=False).value
    assert {
        address: [kind.id for kind in kinds] for address, kinds in reader.mdev_types().items()
    } == {device.address: ["nvidia-11", "i915-4"]}
