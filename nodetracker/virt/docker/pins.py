"""Derive the CPUs, cells and devices of the host to which a container is bound."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.host import Gpu
from nodetracker.model.numa import CellPlacement, NumaTopology
from nodetracker.model.pci import PciDevice
from nodetracker.model.units import usage_units_from_milli
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.devices import ALL_GPUS

_VFIO = "/dev/vfio/"
_NVIDIA = "NVIDIA"


@dataclass(frozen=True, slots=True)
class HostTopology:
    """Last known parts of the machine to which containers can be bound."""

    topology: NumaTopology = field(default_factory=NumaTopology)
    gpus: tuple[Gpu, ...] = ()
    pci: tuple[PciDevice, ...] = ()


def derive_pins(container: Container, guest: Guest, host: HostTopology) -> GuestPins:
    """Return the pins of a container; one that does not hold resources has none.

    A container that has as many CPUs as its CPU set is pinned to each of them.
    One with fewer CPUs floats in the cell of its CPU set. Its memory is in the
    only cell of its memory set, or else in the cell of its CPUs.

    Args:
        guest: the guest built for the container.
    """
    if not container.holds_resources:
        return GuestPins()
    devices = tuple(sorted(_find_devices(container, host)))
    cell_of = {cpu: cell.id for cell in host.topology.cells for cpu in cell.cpus}
    cells = {cell_of[cpu] for cpu in container.cpus if cpu in cell_of}
    pins: dict[int, dict[int, int]] = defaultdict(dict)
    floating: dict[int, int] = {}
    vcpus = usage_units_from_milli(container.vcpu_milli)
    if vcpus == len(container.cpus):
        for vcpu, cpu in enumerate(sorted(container.cpus)):
            if cpu in cell_of:
                pins[cell_of[cpu]][vcpu] = cpu
    elif len(cells) == 1:
        floating = dict.fromkeys(cells, vcpus)
    known = {cell.id for cell in host.topology.cells}
    memory_cells = (container.cells or cells) & known
    memory = memory_cells if len(memory_cells) == 1 else set[int]()
    return GuestPins(
        tuple(
            CellPlacement(
                host_cell=cell,
                vcpus=floating.get(cell, 0),
                memory_mb=guest.memory_mb if cell in memory else 0,
                pins=pins.get(cell, {}),
            )
            for cell in sorted({*pins, *floating, *memory})
        ),
        devices,
    )


def _find_devices(container: Container, host: HostTopology) -> set[str]:
    """Return the PCI addresses of a container's GPUs and VFIO groups."""
    groups = {path.removeprefix(_VFIO) for path in container.devices if path.startswith(_VFIO)}
    found = {function.address for function in host.pci if str(function.iommu_group) in groups}
    return found | _find_gpus(container.gpu_names, host.gpus)


def _find_gpus(names: Sequence[str], gpus: Sequence[Gpu]) -> set[str]:
    """Return the addresses of GPUs that are named by uuid or number, or all.

    The engine's tools number NVIDIA's GPUs in the order of their addresses, and
    name a partition of a GPU ``NUMBER:PART``.
    """
    known = [gpu for gpu in gpus if gpu.vendor == _NVIDIA]
    if ALL_GPUS in names:
        return {gpu.address for gpu in known}
    by_name = {str(number): gpu.address for number, gpu in enumerate(known)}
    by_name |= {gpu.uuid: gpu.address for gpu in known if gpu.uuid}
    requested = (name.partition(":")[0] for name in names)
    return {by_name[name] for name in requested if name in by_name}
