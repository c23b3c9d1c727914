"""Choose the PCI devices for a claim's requests, or collect the reasons for refusal.

Of the devices that fit, the order of preference is: nearest to the guest (for
a guest without cells, devices without a cell); then those that make no other
device unavailable (a VF of a card that is in use before a VF of an unused
card); then those of the larger pool; then by address.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodetracker.accounting.pci.matching import Demand, is_met, match_devices
from nodetracker.accounting.pci.pools import PciPool, count_pools, pool_of
from nodetracker.accounting.pci.state import Devices
from nodetracker.accounting.pci.verdict import PciVerdict, PoolFinding, RequestFinding
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.pci import Alias, PciNumaPolicy, PciRequest, PciStatus, TrackedDevice


@dataclass(frozen=True, slots=True)
class PciAdmission:
    """The devices of one node against the requests of one claim.

    Attributes:
        devices: with derived status; they are not modified.
        requests: all requests of one claim; a device is used for one of them.
        aliases: name -> alias.
        sockets: host cell id -> its socket, None when unknown; needed only for
            the policy ``socket``.
    """

    devices: Devices
    requests: tuple[PciRequest, ...]
    aliases: Mapping[str, Alias]
    sockets: Mapping[int, int | None] = field(default_factory=dict)
    _results: dict[frozenset[int], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _preferred: dict[str, tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def accepts(self, cell_ids: Collection[int] = ()) -> bool:
        """Return whether all requests can be met for a guest on these host cells.

        Results are cached for the search over sets of cells.

        Args:
            cell_ids: empty for a guest without cells.
        """
        key = frozenset(cell_ids)
        if key not in self._results:
            demands = [self._demand(request, key) for request in self.requests]
            self._results[key] = is_met(demands, self._match(demands))
        return self._results[key]

    def evaluate(self, cell_ids: Collection[int] = ()) -> PciVerdict:
        """Choose the devices for a guest on these host cells, or return all reasons for refusal.

        Args:
            cell_ids: empty for a guest without cells.
        """
        cells = frozenset(cell_ids)
        demands = [self._demand(request, cells) for request in self.requests]
        findings = tuple(
            self._find(request, demand, cells)
            for request, demand in zip(self.requests, demands, strict=True)
        )
        reasons = [finding.reason for finding in findings if finding.reason is not None]
        possible = [
            demand
            for demand, finding in zip(demands, findings, strict=True)
            if finding.reason is None
        ]
        chosen = self._match(possible)
        if not is_met(possible, chosen):
            needed = sum(demand.count for demand in possible)
            found = sum(map(len, chosen))
            reasons.append(f"PCI devices: {found} usable together < requested {needed}")
        return PciVerdict(findings, () if reasons else chosen, tuple(reasons))

    def _match(self, demands: Sequence[Demand]) -> tuple[tuple[str, ...], ...]:
        parents = {address: device.parent_addr for address, device in self.devices.items()}
        return match_devices(demands, parents)

    def _demand(self, request: PciRequest, cells: frozenset[int]) -> Demand:
        alias = self.aliases.get(request.alias)
        if alias is None:
            return Demand(max(1, request.count), {})
        policy = request.numa_policy or alias.numa_policy
        if alias.name not in self._preferred:
            self._preferred[alias.name] = list_preferred(self.devices, alias)
        ranks = {}
        for address in self._preferred[alias.name]:
            rank = rank_affinity(self.devices[address].numa_node, policy, cells, self.sockets)
            if rank is not None:
                ranks[address] = rank
        return Demand(request.count, ranks)

    def _find(self, request: PciRequest, demand: Demand, cells: frozenset[int]) -> RequestFinding:
        alias = self.aliases.get(request.alias)
        if alias is None:
            return RequestFinding(request, False, "", ())
        statuses: dict[PciPool, Counter[PciStatus]] = {}
        usable: Counter[PciPool] = Counter()
        for address, device in self.devices.items():
            if alias.matches(device):
                pool = pool_of(device)
                statuses.setdefault(pool, Counter())[device.status] += 1
                usable[pool] += address in demand.ranks
        policy = request.numa_policy or alias.numa_policy
        return RequestFinding(
            request,
            True,
            f" by policy {policy} for cells {render_cpu_set(cells)}" if cells else "",
            tuple(
                PoolFinding(pool, usable[pool], statuses[pool])
                for pool in sorted(statuses, key=lambda pool: pool.order)
            ),
        )


def rank_affinity(
    numa_node: int | None,
    policy: PciNumaPolicy,
    cells: Collection[int],
    sockets: Mapping[int, int | None],
) -> int | None:
    """Return the distance of a device from a guest as a rank.

    A cell whose socket is unknown shares its socket with no other cell.

    Args:
        numa_node: the device's cell id, None when unknown.
        cells: ids of the guest's host cells. Empty for a guest without cells,
            which prefers devices that guests with cells do not prefer.
        sockets: host cell id -> its socket.

    Returns:
        0 is best; None: the policy forbids the device.

    >>> [rank_affinity(cell, PciNumaPolicy.LEGACY, {0}, {}) for cell in (0, None, 1)]
    [0, 1, None]
    """
    if not cells:
        return 0 if numa_node is None else 1
    if numa_node in cells:
        return 0
    if policy is PciNumaPolicy.PREFERRED:
        return 1 if numa_node is None else 2
    if policy is PciNumaPolicy.LEGACY:
        return 1 if numa_node is None else None
    if policy is PciNumaPolicy.SOCKET and numa_node is not None:
        socket = sockets.get(numa_node)
        return 1 if socket is not None and socket in map(sockets.get, cells) else None
    return None


def list_preferred(devices: Devices, alias: Alias) -> tuple[str, ...]:
    """Return the available devices of an alias in order of preference."""
    pools = count_pools(devices.values())
    displaced = _count_displaced(devices)

    def order(device: TrackedDevice) -> tuple[Any, ...]:
        pool = pool_of(device)
        card = device.parent_addr or ""
        return displaced[device.address], -pools[pool], pool.order, card, device.address

    found = [device for device in devices.values() if device.is_available and alias.matches(device)]
    return tuple(device.address for device in sorted(found, key=order))


def _count_displaced(devices: Devices) -> Counter[str]:
    """Count for each device the available others that its assignment makes unavailable."""
    displaced: Counter[str] = Counter()
    for device in devices.values():
        parent = None if device.parent_addr is None else devices.get(device.parent_addr)
        if parent is None:
            continue
        displaced[parent.address] += device.is_available
        displaced[device.address] += parent.is_available
    return displaced
