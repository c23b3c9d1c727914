"""Results of the admission of PCI devices, with findings per request and pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetracker.accounting.pci.pools import PciPool
from nodetracker.model.pci import PciRequest, PciStatus


@dataclass(frozen=True, slots=True)
class PoolFinding:
    """The devices of one pool for a request.

    Attributes:
        usable: number of devices that the request may use.
        statuses: status -> number of the pool's devices.
    """

    pool: PciPool
    usable: int
    statuses: Mapping[PciStatus, int]

    def __str__(self) -> str:
        """Return e.g. ``8086:10ed type-VF on cell 1: 0 usable of 3 available``."""
        available = self.statuses.get(PciStatus.AVAILABLE, 0)
        others = "".join(
            f", {count} {status}"
            for status, count in sorted(self.statuses.items())
            if status is not PciStatus.AVAILABLE
        )
        return f"{self.pool}: {self.usable} usable of {available} available{others}"


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """The devices of the node for one request, ignoring other requests.

    Attributes:
        is_known: whether its alias is configured.
        scope: restriction of the devices' location for messages; "" for none.
        pools: every pool that its alias matches, in the pools' order.
    """

    request: PciRequest
    is_known: bool
    scope: str
    pools: tuple[PoolFinding, ...]

    @property
    def usable(self) -> int:
        """Number of devices that the request may use."""
        return sum(pool.usable for pool in self.pools)

    @property
    def reason(self) -> str | None:
        """Why the request cannot be met, None when it can."""
        if not self.is_known:
            return f"PCI alias {self.request.alias!r} is not configured"
        if self.usable >= self.request.count:
            return None
        pools = ", ".join(map(str, self.pools)) or "no managed device matches"
        return (
            f"PCI devices {self.request.alias!r}: {self.usable} usable{self.scope} "
            f"< requested {self.request.count} ({pools})"
        )


@dataclass(frozen=True, slots=True)
class PciVerdict:
    """The result of one admission.

    Attributes:
        findings: one for each request, in the requests' order.
        addresses: devices chosen for each request; empty on refusal.
        reasons: all reasons for refusal; empty on acceptance.
    """

    findings: tuple[RequestFinding, ...]
    addresses: tuple[tuple[str, ...], ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def all_addresses(self) -> tuple[str, ...]:
        """The devices chosen for all requests."""
        return tuple(address for part in self.addresses for address in part)

    @property
    def summary(self) -> str:
        """One line, e.g. ``nic: 2 requested, 5 usable; gpu: 1 requested, 0 usable``."""
        return "; ".join(
            f"{finding.request.alias}: {finding.request.count} requested, {finding.usable} usable"
            for finding in self.findings
        )
