"""Read the document of a domain that libvirt is about to start, as its hook gets it.

libvirt holds the domain's lock until the hook has answered, so nothing here asks libvirt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from nodetracker.model.errors import HostDataError
from nodetracker.model.guest import Guest
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.device_nodes import read_guest_devices
from nodetracker.virt.host.pci import read_pci_devices
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.domain import parse_domain
from nodetracker.virt.libvirt.guests import build_starting
from nodetracker.virt.libvirt.pages import choose_default_page_kb, read_page_settings
from nodetracker.virt.use import UseResolver


@dataclass(frozen=True, slots=True)
class DomainStartReader:
    """A `StartReader` of libvirt's hook ``qemu``, whose standard input has the document."""

    roots: Roots
    hears_ends: ClassVar[bool] = True

    def read(self, question: Mapping[str, Any], topology: NumaTopology) -> Guest:
        document = question.get("document")
        if not isinstance(document, str):
            raise HostDataError("hook", "the question has no document")
        domain = parse_domain(document, "hook")
        if domain.needs_default_pages:
            pages = choose_default_page_kb(topology, read_page_settings(self.roots))
            topology = replace(topology, default_page_kb=pages)
        resolver = UseResolver()
        if domain.mdevs or domain.interfaces or domain.nodes:
            functions = read_pci_devices(self.roots).value
            resolver = UseResolver(functions, (), read_guest_devices(self.roots, domain.nodes))
        return build_starting(domain, topology, resolver, ())
