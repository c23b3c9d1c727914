"""Reads libvirt's XML documents: elements and amounts, or an error that names the place."""

from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.errors import HostDataError
from nodetracker.model.cpuset import CpuSet, parse_cpu_set

_UNITS = {
    "b": 1, "bytes": 1,
    "KB": 1000, "k": 1024, "KiB": 1024,
    "MB": 1000**2, "M": 1024**2, "MiB": 1024**2,
    "GB": 1000**3, "G": 1024**3, "GiB": 1024**3,
    "TB": 1000**4, "T": 1024**4, "TiB": 1024**4,
}  # fmt: skip


def parse_document(text: str, root: str, source: str) -> Element:
    """Return the root element of a document.

    Raises:
        HostDataError: it is no XML, or another document.
    """
    try:
        # libvirtd is as trusted as the hypervisor; expat takes no external entities.
        element = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise HostDataError(source, f"is no XML: {error}") from error
    if element.tag != root:
        raise HostDataError(source, f"is <{element.tag}> and not <{root}>")
    return element


def parse_text(element: Element, path: str, source: str) -> str:
    """Return the text of an element that must be there.

    Raises:
        HostDataError: it is missing or empty.
    """
    text = (element.findtext(path) or "").strip()
    if not text:
        raise HostDataError(source, f"has no <{path}>")
    return text


def parse_int(text: str | None, what: str, source: str) -> int:
    """Return a number >= 0, decimal or with 0x.

    Raises:
        HostDataError: it is none.
    """
    try:
        number = int(text or "", 0) if (text or "").startswith("0x") else int(text or "")
    except ValueError:
        number = -1
    if number < 0:
        raise HostDataError(source, f"{what} {text!r} is no number")
    return number


def parse_bytes(element: Element, source: str) -> int:
    """Return an element's amount in bytes; without a unit it is KiB.

    Raises:
        HostDataError: it is no amount.

    Source: libvirt's "scaledInteger".
    """
    number = parse_int((element.text or "").strip(), f"<{element.tag}>", source)
    return number * _parse_unit(element, source)


def parse_page_bytes(element: Element, source: str) -> int:
    """Return the page size that the attributes ``size`` and ``unit`` give, in bytes.

    Raises:
        HostDataError: they give none.
    """
    return parse_int(element.get("size"), "page size", source) * _parse_unit(element, source)


def iter_enum(element: Element | None, name: str) -> Iterator[str]:
    """Give the values of ``<enum name='…'>`` in document order; none without it."""
    if element is None:
        return
    for enum in element.iter("enum"):
        if enum.get("name") == name:
            for value in enum.iter("value"):
                yield (value.text or "").strip()


def parse_cpus(text: str | None, what: str, source: str) -> CpuSet:
    """Return a set of CPUs, or of cells, as libvirt writes it, e.g. ``0-3,^2``.

    Raises:
        HostDataError: it is none.
    """
    try:
        return parse_cpu_set(text or "")
    except ValueError as error:
        raise HostDataError(source, f"{what}: {error}") from error


def _parse_unit(element: Element, source: str) -> int:
    """Return the bytes of the unit that an element's amount has."""
    unit = element.get("unit", "KiB")
    if unit not in _UNITS:
        raise HostDataError(source, f"<{element.tag}> has the unknown unit {unit!r}")
    return _UNITS[unit]
