"""Choose the PCI devices for a claim's requests, or collect the reasons for refusal.

Of the devices that fit, the order of preference is: nearest to the guest (for
a guest without cells, devices without a cell); then those that make no other
device unavailable (a VF of a card that is in use before a VF of an unused
card, a device alone in its IOMMU group before one that shares it); then
those of the larger pool; then by address.

Requests that can be met together always are. Taking the first device that fits is not
sufficient for two reasons: requests compete for the same devices, and a PF and its VFs
exclude each other. The first is a bipartite matching. For the second, each card of which
both the PF and VFs are requested is used either as a PF or for its VFs, and these ways are
tried. They are few, as only the number of equal cards matters.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from nodetracker.accounting.matching import KuhnMatching
from nodetracker.accounting.pci.columns import PciPool, count_pools, pool_of
from nodetracker.accounting.pci.state import WITHHELD, Devices, list_group_users
from nodetracker.model.cpuset import render_cpu_set
from nodetracker.model.pci import (
    Alias,
    PciDeviceType,
    PciNumaPolicy,
    PciRequest,
    PciStatus,
    TrackedDevice,
)
from nodetracker.model.text import name_some

GROUP_IN_USE = "in an IOMMU group of which another guest has a device"
"""What messages have instead of the status of a device that its group keeps from a guest."""


@dataclass(frozen=True, slots=True)
class PoolFinding:
    """The devices of one pool for a request.

    Attributes:
        usable: number of devices that the request may use.
        statuses: status, ``withheld`` or `GROUP_IN_USE` -> number of the pool's devices.
    """

    pool: PciPool
    usable: int
    statuses: Mapping[str, int]

    def __str__(self) -> str:
        """Return e.g. ``8086:10ed type-VF on cell 1: 0 usable of 3 available``."""
        available = self.statuses.get(PciStatus.AVAILABLE, 0)
        others = "".join(
            f", {count} {status}"
            for status, count in sorted(self.statuses.items())
            if status != PciStatus.AVAILABLE
        )
        return f"{self.pool}: {self.usable} usable of {available} available{others}"


@dataclass(frozen=True, slots=True)
class RequestFinding:
    """The devices of the node for one request, ignoring other requests.

    Attributes:
        is_known: whether its alias is configured.
        scope: restriction of the devices' location for messages; "" for none.
        pools: every pool that its alias matches, in the pools' order.
        of_other_type: pools of devices that match but for their type, which the alias
            does not name.
        device_type: the type that its alias names, None = any but PFs.
        withheld_by: who withholds devices that its alias matches, in words.
    """

    request: PciRequest
    is_known: bool
    scope: str
    pools: tuple[PoolFinding, ...]
    of_other_type: tuple[PciPool, ...] = ()
    device_type: PciDeviceType | None = None
    withheld_by: tuple[str, ...] = ()

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
        if self.of_other_type:
            others = ", ".join(map(str, self.of_other_type))
            wanted = self.device_type or "no device_type, which excludes type-PF"
            pools += f"; of another type: {others}, while the alias has {wanted}"
        withheld = f"; withheld for {name_some(self.withheld_by)}" if self.withheld_by else ""
        return (
            f"PCI devices {self.request.alias!r}: {self.usable} usable{self.scope} "
            f"< requested {self.request.count} ({pools}{withheld})"
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


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """The need of one request and the devices that satisfy it.

    Attributes:
        count: number of devices needed.
        ranks: address -> rank of preference, 0 is best; within a rank, the
            first address is preferred.
    """

    count: int
    ranks: Mapping[str, int]


def match_devices(
    demands: Sequence[DeviceDemand], parents: Mapping[str, str | None]
) -> tuple[tuple[str, ...], ...]:
    """Choose devices for all demands together.

    Better ranks and earlier addresses are preferred, as far as all demands can
    be met. The result is deterministic.

    Args:
        parents: address -> address of its PF, of every address in the demands.

    Returns:
        Addresses for each demand, without duplicates and without a VF together
        with its PF. If not all demands can be met together, as many addresses
        as possible.
    """
    best: tuple[tuple[str, ...], ...] = ((),) * len(demands)
    needed = sum(demand.count for demand in demands)
    for excluded in _list_uses(demands, parents):
        found = _match_most(
            [
                DeviceDemand(
                    demand.count,
                    {name: rank for name, rank in demand.ranks.items() if name not in excluded},
                )
                for demand in demands
            ]
        )
        if _size(found) > _size(best):
            best = found
        if _size(best) == needed:
            break
    return best


def is_met(demands: Sequence[DeviceDemand], chosen: Sequence[Sequence[str]]) -> bool:
    """Return whether every demand got all the devices it needs."""
    return all(
        len(addresses) == demand.count for demand, addresses in zip(demands, chosen, strict=True)
    )


def _size(chosen: Sequence[Sequence[str]]) -> int:
    return sum(map(len, chosen))


def _match_most(demands: Sequence[DeviceDemand]) -> tuple[tuple[str, ...], ...]:
    """Match as many as possible; an address belongs to at most one demand."""
    matching = KuhnMatching(dict(enumerate(map(_list_tiers, demands))))
    for index, demand in enumerate(demands):
        for _ in range(demand.count):
            if not matching.add(index):
                break
    chosen: list[list[str]] = [[] for _ in demands]
    for address, index in matching.left_of.items():
        chosen[index].append(address)
    return tuple(tuple(sorted(addresses)) for addresses in chosen)


def _list_tiers(demand: DeviceDemand) -> list[list[str]]:
    """Return the addresses of each rank together, the best rank first."""
    tiers: dict[int, list[str]] = {}
    for address, rank in demand.ranks.items():
        tiers.setdefault(rank, []).append(address)
    return [tiers[rank] for rank in sorted(tiers)]


def _list_uses(
    demands: Sequence[DeviceDemand], parents: Mapping[str, str | None]
) -> Iterator[frozenset[str]]:
    """Yield the addresses to exclude, one set for each way to use the contested cards."""
    children: dict[str, list[str]] = {}
    for address in dict.fromkeys(name for demand in demands for name in demand.ranks):
        parent = parents[address]
        if parent is not None:
            children.setdefault(parent, []).append(address)
    contested = [name for demand in demands for name in demand.ranks if name in children]
    groups: dict[Hashable, list[str]] = {}
    for card in dict.fromkeys(contested):
        groups.setdefault(_describe_card(card, children[card], demands), []).append(card)
    for group in groups.values():
        group.sort(key=lambda card: len(children[card]))  # fewest VFs: used as PFs first
    whole_cards = sum(
        demand.count for demand in demands if any(name in children for name in demand.ranks)
    )
    for counts in _split(whole_cards, [len(group) for group in groups.values()]):
        excluded: set[str] = set()
        for group, count in zip(groups.values(), counts, strict=True):
            for card in group[:count]:
                excluded.update(children[card])
            excluded.update(group[count:])
        yield frozenset(excluded)


def _describe_card(card: str, vfs: Sequence[str], demands: Sequence[DeviceDemand]) -> Hashable:
    """Return what distinguishes a card for the demands; equal ones are interchangeable.

    When all VFs of a card are of the same use, cards that differ only in the
    number of VFs count as equal: assigning the smaller one is never worse.
    """

    def use_of(address: str) -> tuple[int | None, ...]:
        return tuple(demand.ranks.get(address) for demand in demands)

    uses = Counter(map(use_of, vfs))
    return use_of(card), frozenset(uses if len(uses) == 1 else uses.items())


def _split(total: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to take at most `total` items, and at most so many of each size.

    >>> list(_split(1, [2, 1]))
    [(1, 0), (0, 1), (0, 0)]
    """
    if not sizes:
        yield ()
        return
    for count in range(min(total, sizes[0]), -1, -1):
        for rest in _split(total - count, sizes[1:]):
            yield count, *rest


@dataclass(frozen=True, slots=True)
class PciAdmission:
    """The devices of one node against the requests of one claim.

    Attributes:
        devices: with derived status; they are not modified.
        requests: all requests of one claim; a device is used for one of them.
        aliases: name -> alias.
        near: host cell id -> ids of the cells that a device of it is near, see `find_near_cells`.
        sockets: host cell id -> its socket, None when unknown; needed only for
            the policy ``socket``.
        is_container: its guest uses devices by the host's drivers where they have one,
            and not by VFIO.
    """

    devices: Devices
    requests: tuple[PciRequest, ...]
    aliases: Mapping[str, Alias]
    near: Mapping[int, Set[int]] = field(default_factory=dict)
    sockets: Mapping[int, int | None] = field(default_factory=dict)
    is_container: bool = False
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

    def _match(self, demands: Sequence[DeviceDemand]) -> tuple[tuple[str, ...], ...]:
        parents = {address: device.parent_addr for address, device in self.devices.items()}
        return match_devices(demands, parents)

    def _demand(self, request: PciRequest, cells: frozenset[int]) -> DeviceDemand:
        alias = self.aliases.get(request.alias)
        if alias is None:
            return DeviceDemand(max(1, request.count), {})
        policy = request.numa_policy or alias.numa_policy
        if alias.name not in self._preferred:
            kept = self._kept_by_groups
            self._preferred[alias.name] = tuple(
                address for address in list_preferred(self.devices, alias) if address not in kept
            )
        ranks = {}
        for address in self._preferred[alias.name]:
            numa_node = self.devices[address].numa_node
            near = frozenset[int]() if numa_node is None else self.near.get(numa_node, frozenset())
            rank = rank_affinity(near, policy, cells, self.sockets)
            if rank is not None:
                ranks[address] = rank
        return DeviceDemand(request.count, ranks)

    @property
    def _kept_by_groups(self) -> set[str]:
        """Free devices that the guest would use by VFIO, in IOMMU groups that others use."""
        groups = list_group_users(self.devices)
        return {
            address
            for address, device in self.devices.items()
            if device.shared_group in groups
            and device.status in {PciStatus.AVAILABLE, PciStatus.UNAVAILABLE}
            and (device.is_for_vfio or not self.is_container)
        }

    def _find(
        self, request: PciRequest, demand: DeviceDemand, cells: frozenset[int]
    ) -> RequestFinding:
        alias = self.aliases.get(request.alias)
        if alias is None:
            return RequestFinding(request, False, "", ())
        kept = self._kept_by_groups
        statuses: dict[PciPool, Counter[str]] = {}
        usable: Counter[PciPool] = Counter()
        of_other_type = set()
        withheld_by: dict[str, None] = {}
        for address, device in self.devices.items():
            if alias.is_of_other_type(device):
                of_other_type.add(pool_of(device))
            if alias.matches(device):
                pool = pool_of(device)
                status = WITHHELD if device.is_withheld else device.status.value
                status = GROUP_IN_USE if address in kept else status
                statuses.setdefault(pool, Counter())[status] += 1
                withheld_by |= dict.fromkeys(device.withheld_by if device.is_withheld else ())
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
            tuple(sorted(of_other_type, key=lambda pool: pool.order)),
            alias.device_type,
            tuple(withheld_by),
        )


def rank_affinity(
    near: Set[int],
    policy: PciNumaPolicy,
    cells: Set[int],
    sockets: Mapping[int, int | None],
) -> int | None:
    """Return the distance of a device from a guest as a rank.

    A cell whose socket is unknown shares its socket with no other cell.

    Args:
        near: ids of the host cells that the device is near; several only if its own has no CPUs.
            Empty when unknown.
        cells: ids of the guest's host cells. Empty for a guest without cells,
            which prefers devices that guests with cells do not prefer.
        sockets: host cell id -> its socket.

    Returns:
        0 is best; None: the policy forbids the device.

    >>> [rank_affinity(near, PciNumaPolicy.LEGACY, {0}, {}) for near in ({0}, set(), {1})]
    [0, 1, None]
    """
    if not cells:
        return 1 if near else 0
    if near & cells and (policy is not PciNumaPolicy.REQUIRED or len(near) == 1):
        return 0
    if policy is PciNumaPolicy.PREFERRED:
        return 2 if near else 1
    if policy is PciNumaPolicy.LEGACY:
        return None if near else 1
    if policy is PciNumaPolicy.SOCKET:
        found = {sockets.get(cell) for cell in near} - {None}
        return None if found.isdisjoint(map(sockets.get, cells)) else 1
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
    groups: Counter[int | None] = Counter(
        device.shared_group
        for device in devices.values()
        if device.is_available and device.is_for_vfio and device.shared_group is not None
    )
    for device in devices.values():
        displaced[device.address] += max(0, groups[device.shared_group] - 1)
    return displaced
