"""Read the node's PCI functions; documents are cached until an event or their maximum age."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nodetracker.host.problems import Partial, Problems
from nodetracker.model.pci import MdevType, PciDevice
from nodetracker.virt.libvirt.nodedev import parse_mdev_types, parse_pci_device

REREAD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Function:
    device: PciDevice
    mdev_types: tuple[MdevType, ...]


class DeviceReader:
    """Reads PCI functions and caches one connection's documents between readings.

    Args:
        read_xml: returns a node device's document, None when the device does not exist any more;
            raises HostDataError when it cannot be read for this device only.
    """

    def __init__(
        self,
        read_xml: Callable[[str], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_xml = read_xml
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[str, _Function] = {}
        self._read_at: float | None = None

    def read(self, names: Sequence[str], have_changed: bool) -> Partial[tuple[PciDevice, ...]]:
        """Return all PCI functions, ordered by address.

        One whose document is invalid or cannot be read is left out, and read
        again next time.

        Args:
            names: of all functions that exist now.
            have_changed: a device had an event, so all documents are read again.

        Raises:
            DriverUnavailableError: libvirt does not answer.
        """
        problems = Problems("node devices")
        with self._lock:
            now = self._monotonic()
            if have_changed or self._read_at is None or now - self._read_at >= REREAD_SECONDS:
                self._known, self._read_at = {}, None
            known = {}
            for name in names:
                function = self._known.get(name) or self._read_one(name, problems)
                if function is not None:
                    known[name] = function
            self._known = known
            self._read_at = now if self._read_at is None else self._read_at
            devices = sorted((function.device for function in known.values()), key=_sort_key)
            return Partial(tuple(devices), problems.list_all())

    def mdev_types(self) -> dict[str, tuple[MdevType, ...]]:
        """Return the mediated device types of functions as last read, by address."""
        with self._lock:
            return {
                function.device.address: function.mdev_types
                for function in self._known.values()
                if function.mdev_types
            }

    def _read_one(self, name: str, problems: Problems) -> _Function | None:
        return problems.attempt(partial(self._read_function, name), None, "the device is left out")

    def _read_function(self, name: str) -> _Function | None:
        text, source = self._read_xml(name), f"node device {name}"
        if text is None:
            return None
        return _Function(parse_pci_device(text, source), parse_mdev_types(text, source))


def _sort_key(device: PciDevice) -> tuple[int, str]:
    domain, _, rest = device.address.partition(":")
    return int(domain, 16), rest
