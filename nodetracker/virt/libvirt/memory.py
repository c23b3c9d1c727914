"""Parse the placement and page sizes of a domain's memory."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from nodetracker.model.cpuset import CpuSet
from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.xml import parse_bytes, parse_cpus, parse_int, parse_page_bytes

_DEFAULT_HUGE_PAGE_KB = 2048
_RAM_MODULE_MODELS = frozenset({"dimm", "virtio-mem"})


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Memory with one placement: of one guest NUMA cell, of one module, or of the whole domain.

    Attributes:
        host_cells: host cells on which it may be, None if not restricted.
        page_kb: size of its huge pages in KiB, None for ordinary memory.
    """

    size_bytes: int
    host_cells: CpuSet | None = None
    page_kb: int | None = None


def parse_memory(root: Element, total_bytes: int, source: str) -> tuple[MemoryPart, ...]:
    """Return the memory of each guest cell and of each plugged module.

    Modules that are backed by a file do not use memory of the host's cells.

    Args:
        root: the domain's document.
        total_bytes: sum of cells and modules.

    Raises:
        HostDataError: a value is invalid.

    Source: libvirt's formatdomain, NUMA tuning, memory backing and memory devices.
    """
    cells = _parse_host_cells(root, source)
    pages = _parse_pages(root, source)
    sizes = _parse_sizes(root, source)
    modules = root.findall("devices/memory")
    if not sizes:
        in_modules = sum(_module_bytes(module, source) for module in modules)
        sizes = {0: max(0, total_bytes - in_modules)}
    parts = [
        MemoryPart(size, cells.get(number, cells.get(None)), pages.get(number, pages.get(None)))
        for number, size in sizes.items()
    ]
    for module in modules:
        if module.get("model") not in _RAM_MODULE_MODELS:
            continue
        number = parse_int(module.findtext("target/node") or "0", "<memory> <node>", source)
        mask, page = module.findtext("source/nodemask"), module.find("source/pagesize")
        parts.append(
            MemoryPart(
                _module_bytes(module, source),
                cells.get(number, cells.get(None)) if mask is None
                else parse_cpus(mask, "<nodemask>", source),
                pages.get(number, pages.get(None)) if page is None
                else parse_bytes(page, source) // 1024,
            )
        )  # fmt: skip
    return tuple(parts)


def _module_bytes(module: Element, source: str) -> int:
    size = module.find("target/size")
    if size is None:
        raise HostDataError(source, "has a <memory> module without <size>")
    return parse_bytes(size, source)


def _parse_sizes(root: Element, source: str) -> dict[int, int]:
    """Return guest cell id -> bytes."""
    nodes = {}
    for index, cell in enumerate(root.iterfind("cpu/numa/cell")):
        # The size is in attributes here; build the element that `parse_bytes` expects.
        size = Element("memory", {"unit": cell.get("unit", "KiB")})
        size.text = cell.get("memory")
        number = parse_int(cell.get("id", str(index)), "<cell id>", source)
        nodes[number] = parse_bytes(size, source)
    return nodes


def _parse_host_cells(root: Element, source: str) -> dict[int | None, CpuSet]:
    """Return guest cell id -> host cells of its memory; key None applies to all other cells."""
    found: dict[int | None, CpuSet] = {}
    memory = root.find("numatune/memory")
    if memory is not None and memory.get("nodeset"):
        found[None] = parse_cpus(memory.get("nodeset"), "<numatune>", source)
    for node in root.iterfind("numatune/memnode"):
        number = parse_int(node.get("cellid"), "<memnode cellid>", source)
        found[number] = parse_cpus(node.get("nodeset"), "<memnode>", source)
    return found


def _parse_pages(root: Element, source: str) -> dict[int | None, int]:
    """Return guest cell id -> huge page size in KiB; key None applies to all other cells."""
    huge = root.find("memoryBacking/hugepages")
    if huge is None:
        return {}
    pages = huge.findall("page")
    if not pages:
        return {None: _DEFAULT_HUGE_PAGE_KB}
    found: dict[int | None, int] = {}
    for page in pages:
        size_kb = parse_page_bytes(page, source) // 1024
        nodes = page.get("nodeset")
        numbers = [None] if nodes is None else parse_cpus(nodes, "<page nodeset>", source)
        found |= dict.fromkeys(numbers, size_kb)
    return found
