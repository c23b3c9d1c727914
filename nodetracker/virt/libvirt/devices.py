"""Keeps the node's PCI functions, reading a document again only when something happened."""

import threading
import time
from collections.abc import Callable, Sequence

from nodetracker.model.pci import PciDevice
from nodetracker.virt.libvirt.nodedev import parse_pci_device

REREAD_SECONDS = 600.0


class DeviceReader:
    """What is known of one connection's PCI functions between readings.

    Args:
        read_xml: gives a node device's document, None when it is gone.
    """

    def __init__(
        self,
        read_xml: Callable[[str], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_xml = read_xml
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, PciDevice] = {}
        self._read_at: float | None = None

    def read(self, names: Sequence[str], is_dirty: bool) -> tuple[PciDevice, ...]:
        """Return every PCI function in ascending address.

        Args:
            names: of all functions that are there now.
            is_dirty: events named a device, so all documents are read again.

        Raises:
            HostDataError: a document cannot be used, or libvirt does not answer.
        """
        with self._lock:
            now = self._monotonic()
            if is_dirty or self._read_at is None or now - self._read_at >= REREAD_SECONDS:
                self._known, self._read_at = {}, None
            known = {}
            for name in names:
                device = self._known.get(name) or self._read_one(name)
                if device is not None:
                    known[name] = device
            self._known = known
            self._read_at = now if self._read_at is None else self._read_at
            return tuple(sorted(known.values(), key=_sort_key))

    def _read_one(self, name: str) -> PciDevice | None:
        text = self._read_xml(name)
        return None if text is None else parse_pci_device(text, f"node device {name}")


def _sort_key(device: PciDevice) -> tuple[int, str]:
    domain, _, rest = device.address.partition(":")
    return int(domain, 16), rest
