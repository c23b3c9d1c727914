"""PCI devices of small hosts, and hypothesis strategies for them."""

from hypothesis import strategies as st

from nodetracker.accounting.pci.state import sync_devices
from nodetracker.model.amounts import Amounts
from nodetracker.model.pci import DeviceSpec, PciDevice, PciDeviceType
from tests import builders
from tests.builders import make_guest

ALL = (DeviceSpec(tags={}),)
CLAIM = "44444444-4444-4444-8444-444444444444"
OTHER_CLAIM = "55555555-5555-4555-8555-555555555555"


def make_gpu(number=0, numa_node=None, product_id="2335"):
    """Build a card without virtual functions, on a separate bus from 0xc0 on."""
    return PciDevice(f"0000:{0xC0 + number:02x}:00.0", "10de", product_id, numa_node=numa_node)


def make_card(number=0, vfs=2, numa_node=None):
    """Build a PF and its VFs, on a separate bus from 0x80 on."""
    bus = f"0000:{0x80 + number:02x}"
    pf = PciDevice(
        f"{bus}:00.0", "8086", "10fb", dev_type=PciDeviceType.PF, numa_node=numa_node, vf_total=8
    )
    return (
        pf,
        *(
            PciDevice(
                f"{bus}:10.{index}",
                "8086",
                "10ed",
                dev_type=PciDeviceType.VF,
                numa_node=numa_node,
                parent_addr=pf.address,
            )
            for index in range(vfs)
        ),
    )


def make_devices(*devices, specs=ALL):
    """Return devices as an agent stores them initially."""
    return sync_devices({}, devices, specs, {})


def statuses(devices):
    """Return address -> status."""
    return {address: str(device.status) for address, device in devices.items()}


CELLS = st.sampled_from([None, 0, 1, 2])
HOSTS = st.tuples(
    st.lists(st.tuples(st.integers(0, 3), CELLS), max_size=3),
    st.lists(st.tuples(st.sampled_from(["2335", "1db6"]), CELLS), max_size=3),
).map(
    lambda host: (
        tuple(
            device
            for number, (vfs, cell) in enumerate(host[0])
            for device in make_card(number, vfs, cell)
        )
        + tuple(make_gpu(number, cell, product) for number, (product, cell) in enumerate(host[1]))
    )
)


def make_claim(number, gpus=0, devices=()):
    amounts = Amounts(resources={"PGPU": gpus} if gpus else {})
    changes = {"amounts": amounts, "devices": devices}
    return builders.make_claim(f"c-{number}", make_guest(number).uuid, **changes)
