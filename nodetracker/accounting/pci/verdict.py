"""What an admission of PCI devices says: what each request gets, or what each pool lacks."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodetracker.accounting.pci.pools import PciPool
from nodetracker.model.pci import PciStatus
from nodetracker.model.pci_request import PciRequest


@dataclass(frozen=True, slots=True)
class PoolFinding:
    """What one pool has for a request.

    Attributes:
        usable: devices that the request may have.
        statuses: how many of the pool's devices have which status.
    """

    pool: PciPool
    usable: int
    statuses: Mapping[PciStatus, int]

    def __str__(self) -> str:
        """Say it, e.g. ``8086:10ed type-VF on cell 1: 0 usable of 3 available``."""
        available = self.statuses.get(PciStatus.AVAILABLE, 0)
        others = "".join(
            f", {count} {status}"
            for status, count in sorted(self.statuses.items())
            if status is not PciStatus.AVAILABLE
        )
        return f"{self.pool}: {self.usable} usable of {available} available{others}"


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """What the node has for one request alone.

    Attributes:
        is_known: whether its alias is configured.
        scope: where the devices must be, in words; "" for anywhere.
        pools: every pool that its alias stands for, in the pools' order.
    """

    request: PciRequest
    is_known: bool
    scope: str
    pools: tuple[PoolFinding, ...]

    @property
    def usable(self) -> int:
        """How many devices the request may have."""
        return sum(pool.usable for pool in self.pools)

    @property
    def reason(self) -> str | None:
        """Why it cannot be met, None when it can."""
        if not self.is_known:
            return f"PCI alias {self.request.alias!r} is not configured"
        if self.usable >= self.request.count:
            return None
        pools = ", ".join(map(str, self.pools)) or "no managed device is of this kind"
        return (
            f"PCI devices {self.request.alias!r}: {self.usable} usable{self.scope} "
            f"< requested {self.request.count} ({pools})"
        )


@dataclass(frozen=True, slots=True)
class PciVerdict:
    """The outcome of one admission.

    Attributes:
        findings: one for each request, in the requests' order.
        addresses: what each request gets; empty when they are refused.
        reasons: every reason for refusal; empty when they are accepted.
    """

    findings: tuple[RequestFinding, ...]
    addresses: tuple[tuple[str, ...], ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def all_addresses(self) -> tuple[str, ...]:
        """What all requests get together."""
        return tuple(address for part in self.addresses for address in part)

    @property
    def summary(self) -> str:
        """Say it in one line, e.g. ``nic: 2 requested, 5 usable; gpu: 1 requested, 0 usable``."""
        return "; ".join(
            f"{finding.request.alias}: {finding.request.count} requested, {finding.usable} usable"
            for finding in self.findings
        )
