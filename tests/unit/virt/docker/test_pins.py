"""Pins of containers: CPUs, cells, GPUs and VFIO groups of the host."""

import pytest

from nodetracker.model.guest import CpuAffinity, GuestPins
from nodetracker.model.host import Gpu
from nodetracker.model.numa import CellAssignment, NumaCell, NumaTopology
from nodetracker.model.pci import PciDevice
from nodetracker.virt.docker.containers import parse_container
from nodetracker.virt.docker.guests import HostTopology, build_guest, derive_pins
from tests.engine_stub import describe_container

TOPOLOGY = NumaTopology(
    (NumaCell(0, frozenset({0, 1, 2, 3}), 8192), NumaCell(4, frozenset({4, 5, 6, 7}), 8192))
)
GPUS = (
    Gpu("0000:41:00.0", "AMD", "1002:744c"),
    Gpu("0000:81:00.0", "NVIDIA", "H200", uuid="GPU-1"),
    Gpu("0000:a1:00.0", "NVIDIA", "H200", uuid="GPU-2"),
)
PCI = (
    PciDevice("0000:05:00.0", "8086", "10fb", iommu_group=12),
    PciDevice("0000:05:00.1", "8086", "10fb", iommu_group=12),
    PciDevice("0000:06:00.0", "8086", "10fb"),
)
MACHINE = HostTopology(TOPOLOGY, GPUS, PCI)


def bind(machine=MACHINE, status="running", **host_config):
    raw = describe_container(1, **{"NanoCpus": 0} | host_config)
    raw["State"]["Status"] = status
    container = parse_container(raw)
    return derive_pins(container, build_guest(container, "u", 64), machine)


def test_an_unbound_container_has_no_pins():
    assert bind(NanoCpus=10**9) == GuestPins()


@pytest.mark.parametrize(
    ("given", "milli"),
    [({}, 2000), ({"NanoCpus": 2 * 10**9}, 2000), ({"CpuQuota": 150_000}, 1500)],
)
def test_the_cpus_of_a_container_are_in_its_set(given, milli):
    found = bind(CpusetCpus="4,6", **given)
    assert found.cells == (CellAssignment(4, 0, 64),)
    assert found.affinities == (CpuAffinity(frozenset({4, 6}), milli),)


def test_memory_is_unbound_when_the_set_is_in_several_cells():
    found = bind(CpusetCpus="3-4")
    assert found == GuestPins(affinities=(CpuAffinity(frozenset({3, 4}), 2000),))


def test_memory_is_in_the_cell_of_the_memory_set():
    assert bind(CpusetMems="4", NanoCpus=10**9).cells == (CellAssignment(4, 0, 64),)
    assert bind(CpusetCpus="0", CpusetMems="4").cells == (CellAssignment(4, 0, 64),)
    assert bind(CpusetMems="0,4", NanoCpus=10**9) == GuestPins()


def test_unknown_cpus_and_cells_are_ignored():
    assert bind(CpusetCpus="9", CpusetMems="9") == GuestPins()
    assert bind(HostTopology(), CpusetCpus="0") == GuestPins()


@pytest.mark.parametrize(
    ("request_", "addresses"),
    [
        ({"Count": -1}, ["0000:81:00.0", "0000:a1:00.0"]),
        ({"Count": 1}, ["0000:81:00.0"]),
        ({"Count": 5}, ["0000:81:00.0", "0000:a1:00.0"]),
        ({"DeviceIDs": ["1"]}, ["0000:a1:00.0"]),
        ({"DeviceIDs": ["GPU-2", "1:0"]}, ["0000:a1:00.0"]),
        ({"DeviceIDs": ["GPU-9"]}, []),
    ],
)
def test_gpus_are_those_that_the_engine_assigns(request_, addresses):
    found = bind(DeviceRequests=[{"Driver": "nvidia", **request_}])
    assert found.devices == tuple(addresses)
    assert bool(found.unresolved) == (request_ in ({"Count": 5}, {"DeviceIDs": ["GPU-9"]}))


def test_gpus_are_numbered_without_nvml():
    gpus = tuple(Gpu(gpu.address, gpu.vendor, "10de:2335") for gpu in GPUS)
    found = bind(HostTopology(gpus=gpus), DeviceRequests=[{"Driver": "nvidia", "Count": 1}])
    assert found.devices == ("0000:81:00.0",)


def test_a_vfio_group_has_all_of_its_functions():
    found = bind(Devices=[{"PathOnHost": "/dev/vfio/12"}, {"PathOnHost": "/dev/vfio/vfio"}])
    assert found.devices == ("0000:05:00.0", "0000:05:00.1")


def test_a_stopped_container_has_no_pins():
    requests = [{"Driver": "nvidia", "Count": -1}]
    assert bind(status="exited", CpusetCpus="0", DeviceRequests=requests) == GuestPins()
