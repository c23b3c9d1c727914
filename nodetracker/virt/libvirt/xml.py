"""Parse libvirt's XML documents: elements and sizes.

What is missing or invalid raises HostDataError, which names the element; so it
does in all parsers of this package.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.model.cpuset import CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError
from nodetracker.model.text import render_value

MAX_NUMBER = 2**63 - 1
"""The largest number that databases store."""

ADDRESS_PARTS = {"domain": 2**32 - 1, "bus": 0xFF, "slot": 0x1F, "function": 7}
"""Parts of a PCI address, and the largest number of each."""

_NUMBER = re.compile("[0-9]{1,19}|0x[0-9a-fA-F]{1,16}")
_MIN_PAGE_BYTES = 1024

_UNITS = {
    "b": 1, "bytes": 1,
    "KB": 1000, "k": 1024, "KiB": 1024,
    "MB": 1000**2, "M": 1024**2, "MiB": 1024**2,
    "GB": 1000**3, "G": 1024**3, "GiB": 1024**3,
    "TB": 1000**4, "T": 1024**4, "TiB": 1024**4,
}  # fmt: skip


MAX_DOCUMENT_LENGTH = 4 * 1024 * 1024
"""Characters of a document; libvirt sends no longer text."""

_DOCTYPE = re.compile(r"\ufeff?(?:\s++|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)


def parse_document(text: str, root: str, source: str) -> Element:
    """Return the root element of a document, which declares no entities."""
    if len(text) > MAX_DOCUMENT_LENGTH:
        raise HostDataError(source, f"is longer than {MAX_DOCUMENT_LENGTH} characters")
    if _DOCTYPE.match(text):  # a short one could be expanded to gigabytes
        raise HostDataError(source, "has a document type declaration")
    try:
        element = ElementTree.fromstring(text)  # noqa: S314
    except (ElementTree.ParseError, ValueError) as error:  # of surrogates, or an unknown encoding
        raise HostDataError(source, f"not valid XML: {error}") from error
    if element.tag != root:
        raise HostDataError(source, f"root element is <{element.tag}>, expected <{root}>")
    return element


def find_only(element: Element, path: str, source: str) -> Element | None:
    """Return an element that a document has once at most, None without it."""
    found = element.findall(path)
    if len(found) > 1:
        raise HostDataError(source, f"has <{path}> more than once")
    return found[0] if found else None


def parse_text(element: Element, path: str, source: str) -> str:
    """Return the text of a required element, as it is."""
    found = find_only(element, path, source)
    text = "" if found is None else found.text or ""
    if not text.strip():
        raise HostDataError(source, f"has no <{path}>")
    return text


def parse_int(
    text: str | None, what: str, source: str, maximum: int = MAX_NUMBER, minimum: int = 0
) -> int:
    """Return a number of a range, in decimal or with the prefix 0x."""
    digits = (text or "").strip()
    number = int(digits, 16 if digits.startswith("0x") else 10) if _NUMBER.fullmatch(digits) else -1
    if not minimum <= number <= maximum:
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


MAX_SET_CPUS = 2**20
"""CPUs in all different sets of a document; a guest of 1024 pinned vCPUs has as many."""


class CpuSets:
    """Sets of CPUs or cells of one document; those with the same text are one object."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[str, CpuSet] = {}
        self._count = 0

    def parse(self, text: str | None, what: str) -> CpuSet:
        """Return a set from libvirt's notation, e.g. ``0-3,^2``."""
        text = text or ""
        found = self._known.get(text)
        if found is None:
            try:
                found = self._known[text] = parse_cpu_set(text)
            except ValueError as error:
                raise HostDataError(self._source, f"{what}: {error}") from error
            self._count += len(found)
            if self._count > MAX_SET_CPUS:
                raise HostDataError(self._source, f"names more than {MAX_SET_CPUS} CPUs")
        return found


def parse_address(element: Element, source: str) -> str:
    """Return the PCI address from the attributes of an ``<address>``."""
    return format_address(
        *(
            parse_int(
                element.get(part, "0" if part == "domain" else None),
                f"<address {part}>",
                source,
                most,
            )
            for part, most in ADDRESS_PARTS.items()
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
