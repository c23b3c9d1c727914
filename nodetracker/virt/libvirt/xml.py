"""Parse libvirt's XML documents: elements and sizes.

What is missing or invalid raises HostDataError, which names the element; so it
does in all parsers of this package.
"""

from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.model.text import render_value

MAX_NUMBER = 2**63 - 1
"""The largest number that databases store."""

ADDRESS_PARTS = ("domain", "bus", "slot", "function")
_MIN_PAGE_BYTES = 1024

_UNITS = {
    "b": 1, "bytes": 1,
    "KB": 1000, "k": 1024, "KiB": 1024,
    "MB": 1000**2, "M": 1024**2, "MiB": 1024**2,
    "GB": 1000**3, "G": 1024**3, "GiB": 1024**3,
    "TB": 1000**4, "T": 1024**4, "TiB": 1024**4,
}  # fmt: skip


def parse_document(text: str, root: str, source: str) -> Element:
    """Return the root element of a document."""
    try:
        # libvirtd is as trusted as the hypervisor; expat does not load external entities.
        element = ElementTree.fromstring(text)  # noqa: S314
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise HostDataError(source, f"not valid XML: {error}") from error
    if element.tag != root:
        raise HostDataError(source, f"root element is <{element.tag}>, expected <{root}>")
    return element


def parse_text(element: Element, path: str, source: str) -> str:
    """Return the text of a required element, as it is."""
    text = element.findtext(path) or ""
    if not text.strip():
        raise HostDataError(source, f"has no <{path}>")
    return text


def parse_int(text: str | None, what: str, source: str, maximum: int = MAX_NUMBER) -> int:
    """Return a number from 0 to `maximum`, in decimal or with the prefix 0x."""
    try:
        number = int(text or "", 0) if (text or "").startswith("0x") else int(text or "")
    except ValueError:
        number = -1
    if not 0 <= number <= maximum:
        raise HostDataError(source, f"{what} {render_value(text)} is not a valid number")
    return number


def parse_bytes(element: Element, source: str) -> int:
    """Return an element's size in bytes; the default unit is KiB.

    Source: libvirt's "scaledInteger".
    """
    unit = _parse_unit(element, source)
    maximum = MAX_NUMBER // unit
    return parse_int((element.text or "").strip(), f"<{element.tag}>", source, maximum) * unit


def parse_page_bytes(element: Element, source: str) -> int:
    """Return the page size from the attributes ``size`` and ``unit``, in bytes."""
    unit = _parse_unit(element, source)
    size = parse_int(element.get("size"), "page size", source, MAX_NUMBER // unit) * unit
    if size < _MIN_PAGE_BYTES:
        raise HostDataError(
            source, f"page size {render_value(element.get('size'))} is not a valid number"
        )
    return size


def iter_enum(element: Element | None, name: str) -> Iterator[str]:
    """Yield the values of ``<enum name='…'>`` in document order; nothing without it."""
    if element is None:
        return
    for enum in element.iter("enum"):
        if enum.get("name") == name:
            for value in enum.iter("value"):
                yield (value.text or "").strip()


def parse_cpus(text: str | None, what: str, source: str) -> CpuSet:
    """Return a set of CPUs or cells from libvirt's notation, e.g. ``0-3,^2``."""
    try:
        return parse_cpu_set(text or "")
    except ValueError as error:
        raise HostDataError(source, f"{what}: {error}") from error


def parse_address(element: Element, source: str) -> str:
    """Return the PCI address from the attributes of an ``<address>``."""
    return format_address(
        *(
            parse_int(
                element.get(part, "0" if part == "domain" else None), f"<address {part}>", source
            )
            for part in ADDRESS_PARTS
        )
    )


def format_address(domain: int, bus: int, slot: int, function: int) -> str:
    """Return a PCI address as sysfs writes it."""
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _parse_unit(element: Element, source: str) -> int:
    """Return the size in bytes of the unit of an element's size."""
    unit = element.get("unit", "KiB")
    if unit not in _UNITS:
        raise HostDataError(source, f"<{element.tag}> has unknown unit {unit!r}")
    return _UNITS[unit]
