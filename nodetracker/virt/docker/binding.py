"""Says which of the host's CPUs, cells and devices a container is bound to, pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodetracker.model.guest import Guest, GuestPins
from nodetracker.model.host import Gpu
from nodetracker.model.numa import NumaTopology
from nodetracker.model.numa_placement import CellPlacement
from nodetracker.model.pci import PciDevice
from nodetracker.units import usage_units_from_milli
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.devices import ALL_GPUS

_VFIO = "/dev/vfio/"
_NVIDIA = "NVIDIA"


@dataclass(frozen=True, slots=True)
class Bindable:
    """What of the machine containers may be bound to, as last known."""

    topology: NumaTopology = field(default_factory=NumaTopology)
    gpus: tuple[Gpu, ...] = ()
    pci: tuple[PciDevice, ...] = ()


def bind_container(container: Container, guest: Guest, machine: Bindable) -> GuestPins:
    """Return what a container is bound to; what does not run has nothing.

    One that is given as many CPUs as its set has is pinned to each of them.
    One that is given fewer floats in the cell that its set lies in. Its memory
    is in the only cell of its set of cells, or else where its CPUs are.

    Args:
        guest: the same container, as it is charged.
    """
    if not container.holds_resources:
        return GuestPins()
    devices = tuple(sorted(_find_devices(container, machine)))
    cell_of = {cpu: cell.id for cell in machine.topology.cells for cpu in cell.cpus}
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
    known = {cell.id for cell in machine.topology.cells}
    homes = (container.cells or cells) & known
    memory = homes if len(homes) == 1 else set[int]()
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


def _find_devices(container: Container, machine: Bindable) -> set[str]:
    """Return the PCI addresses of the GPUs and VFIO groups that a container has."""
    groups = {path.removeprefix(_VFIO) for path in container.devices if path.startswith(_VFIO)}
    found = {function.address for function in machine.pci if str(function.iommu_group) in groups}
    return found | _find_gpus(container.gpu_names, machine.gpus)


def _find_gpus(names: Sequence[str], gpus: Sequence[Gpu]) -> set[str]:
    """Return the addresses of GPUs that are named by uuid or number, or all.

    The engine's tools count NVIDIA's GPUs in the order of their addresses, and
    name a part of one as ``NUMBER:PART``.
    """
    known = [gpu for gpu in gpus if gpu.vendor == _NVIDIA]
    if ALL_GPUS in names:
        return {gpu.address for gpu in known}
    named = {str(number): gpu.address for number, gpu in enumerate(known)}
    named |= {gpu.uuid: gpu.address for gpu in known if gpu.uuid}
    wanted = (name.partition(":")[0] for name in names)
    return {named[name] for name in wanted if name in named}
