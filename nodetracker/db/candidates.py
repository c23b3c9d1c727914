"""Find candidates: read nodes that pass by their numbers and accept claims, weigh and order them.

The database finds nodes in the order of their places; `accounting.ledger.candidates` weighs them.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, overload

import sqlalchemy as sa

from nodetracker.accounting.ledger.admission import AMOUNT_CHECKS
from nodetracker.accounting.ledger.candidates import (
    PLACES,
    STALE,
    WEIGHED,
    Weigher,
    hash_nodes,
    place_of,
    scale_between,
)
from nodetracker.db.schema import tables
from nodetracker.db.schema.tables import CANDIDATE_INDEX
from nodetracker.db.screens import (
    STATEMENTS,
    RequestShape,
    accepts_claims,
    are_named,
    double,
    has_stale_limits,
    is_exempt,
    list_values,
    map_checks,
    read_index,
    shape_of,
    text,
    whole,
)
from nodetracker.db.services import is_up
from nodetracker.db.statements import use_index
from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import (
    CandidateCursor,
    CandidateNode,
    CandidateOrder,
    CandidatePage,
    Scale,
)
from nodetracker.model.claim import ClaimRequest
from nodetracker.model.settings import CandidatePolicy
from nodetracker.model.shapes import LARGEST
from nodetracker.model.tolerance import NodeRoom

_nodes = tables.compute_nodes.c
_guests = tables.guests.c
_services = tables.services.c

PASS_SIZE = 1000
"""Nodes that are in memory while all of them are weighed, beside the best."""

_AMOUNTS = slice(5, 5 + len(WEIGHED))
"""Of the columns of `build_search`."""

GUEST_NODES = sa.bindparam("guest_nodes", type_=sa.BigInteger(), expanding=True)
"""Ids of the nodes with a guest of the workload."""


def find_candidates(
    connection: sa.Connection,
    request: ClaimRequest,
    policy: CandidatePolicy,
    limit: int,
    after: CandidateCursor | None = None,
) -> CandidatePage:
    search = Search(connection, request, policy)
    if search.is_granted:
        return CandidatePage((), is_granted=True)
    if policy.order is CandidateOrder.SPREAD:
        return search.find_part(limit, after)
    return search.find_best(limit, after)


class _LazyNodes(Sequence[CandidateNode]):
    """Nodes that are built when they are looked at: a claim looks at the first few of many.

    Args:
        ranked: rows of a search with their weights, the best first.
    """

    def __init__(
        self, ranked: Sequence[tuple[Any, float]], build: Callable[[Any, float], CandidateNode]
    ) -> None:
        self._ranked = ranked
        self._build = build

    def __len__(self) -> int:
        return len(self._ranked)

    @overload
    def __getitem__(self, index: int) -> CandidateNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CandidateNode]: ...
    def __getitem__(self, index: int | slice) -> CandidateNode | Sequence[CandidateNode]:
        if isinstance(index, slice):
            return [self._build(*ranked) for ranked in self._ranked[index]]
        return self._build(*self._ranked[index])


class Search:
    """Finds the nodes of one request.

    Attributes:
        is_granted: a claim has the uuid of the request, unless this is certainly new.
    """

    def __init__(
        self, connection: sa.Connection, request: ClaimRequest, policy: CandidatePolicy
    ) -> None:
        self._connection = connection
        self._request = request
        self._policy = policy
        self._shape = shape_of(request)
        known = {"workload": request.workload.uuid, "uuid": request.uuid}
        found = connection.execute(_select_known(request.has_new_uuid), known).scalars().all()
        self.is_granted = _GRANTED in found
        self._guest_nodes = [node_id for node_id in found if node_id != _GRANTED]
        self._values = list_values(request) | {"guest_nodes": self._guest_nodes}

    def find_part(self, limit: int, after: CandidateCursor | None) -> CandidatePage:
        """Return the nodes of the next places, wrapped around, ordered by their steps."""
        start = place_of(self._request.uuid)
        walked = after.hash if after else 0
        last_id = after.node_id if after else -1
        found: list[Any] = []
        if start + walked < PLACES:
            found += self._read(limit, low=start + walked, last_id=last_id)
            walked = PLACES - start
            last_id = -1
        if len(found) < limit:
            low = start + walked - PLACES
            found += self._read(limit, low=low, high=start, last_id=last_id)
        if not found:
            return CandidatePage(())
        del found[limit:]
        ids, places, *_, memory, cpu, disk, stale = zip(*found, strict=True)
        amounts = memory, cpu, disk
        scale = scale_between(map(min, amounts), map(max, amounts))
        weigher = self._make_weigher(scale)
        weights = tuple(map(weigher.weigh, *amounts))
        steps = [
            weigher.count_steps(weight) + STALE * is_stale
            for weight, is_stale in zip(weights, stale, strict=True)
        ]
        hashes = map(hash_nodes(self._request.uuid), ids)
        order = sorted(zip(steps, hashes, ids, range(len(ids)), strict=True))
        ranked = [(found[number], weights[number]) for *_, number in order]
        nodes = _LazyNodes(ranked, self._build_node)
        if len(found) < limit:
            return CandidatePage(nodes)
        last = found[-1]
        # Stores of earlier versions go on by the rank, and never back.
        rank_before = after.rank if after else 0.0
        walked = (places[-1] - start) % PLACES
        cursor = CandidateCursor(scale, rank_before, walked, last.id, last.host, last.nodename)
        return CandidatePage(nodes, cursor)

    def find_best(self, limit: int, after: CandidateCursor | None) -> CandidatePage:
        """Return the best nodes that come after a page; equal ones are ordered by name."""
        scale = after.scale if after else self._read_scale()
        if scale is None:
            return CandidatePage(())
        weigher = self._make_weigher(scale)

        def rank(row: Any) -> tuple[float, str, str]:
            _, _, host, nodename, _, *amounts, is_stale = row
            return STALE * is_stale - weigher.weigh(*amounts), host, nodename

        ranked = ((rank(row), row) for row in self._read_all())
        if after is not None:
            last = -after.rank, after.host, after.nodename
            ranked = (item for item in ranked if item[0] > last)
        best = heapq.nsmallest(limit + 1, ranked)
        nodes = tuple(
            self._build_node(row, weigher.weigh(*row[_AMOUNTS])) for _, row in best[:limit]
        )
        if len(best) <= limit:
            return CandidatePage(nodes)
        (rank_of_last, *_), row = best[limit - 1]
        cursor = CandidateCursor(scale, -rank_of_last, 0, row.id, row.host, row.nodename)
        return CandidatePage(nodes, cursor)

    def _read_all(self) -> Iterator[Any]:
        rows = self._read(PASS_SIZE)
        yield from rows
        while len(rows) == PASS_SIZE:
            rows = self._read(PASS_SIZE, low=rows[-1].place, last_id=rows[-1].id)
            yield from rows

    def _read(self, limit: int, low: int = 0, high: int = PLACES, last_id: int = -1) -> list[Any]:
        """Return the first nodes of some places."""
        query = build_search(
            self._shape,
            self._policy.service_down_time,
            limit,
            has_low=low > 0 or last_id >= 0,
            has_high=high < PLACES,
        )
        places = {"low": low, "high": high, "last_id": last_id}
        return list(self._connection.execute(query, self._values | places))

    def _read_scale(self) -> Scale | None:
        """Return the scale of all nodes that are found, None without any."""
        query = build_scale(self._shape, self._policy.service_down_time)
        ends = self._connection.execute(query, self._values).one()
        if ends[0] is None:
            return None
        return scale_between(ends[: len(WEIGHED)], ends[len(WEIGHED) :])

    def _make_weigher(self, scale: Scale) -> Weigher:
        return Weigher(self._request.amounts, scale, self._policy.multipliers)

    def _build_node(self, row: Any, weight: float) -> CandidateNode:
        free = Amounts(int(row.vcpu_milli), 0, int(row.memory_mb), int(row.disk_mb))
        has_guest = row.id in self._guest_nodes
        overhead = row.overhead_mb
        return CandidateNode(
            row.id, row.host, row.nodename, weight, free, has_guest, overhead_mb=overhead
        )


_GRANTED = -1
"""In place of a node's id: a claim has the uuid."""


@cache
def _select_known(is_new: bool) -> "sa.Select[Any] | sa.CompoundSelect[Any]":
    """Return the statement for the nodes of the guest ``workload``.

    Args:
        is_new: do not ask whether a claim has the ``uuid``.
    """
    guests = sa.select(_guests.compute_node_id).where(_guests.uuid == text("workload"))
    if is_new:
        return guests
    granted = sa.cast(sa.literal(_GRANTED), sa.BigInteger())
    return sa.union_all(guests, sa.select(granted).where(tables.claims.c.uuid == text("uuid")))


def _list_free(shape: RequestShape) -> "tuple[sa.ColumnElement[Any], ...]":
    """Return the free amounts that are weighed: of memory outside huge pages if it gets no others.

    A row that does not know these has all memory.
    """
    memory: sa.ColumnElement[Any] = _nodes.memory_mb_free
    if not shape.may_be_huge:
        memory = sa.func.coalesce(_nodes.ordinary_mb_free, memory)
    return memory, _nodes.vcpu_milli_free, _nodes.disk_mb_free


@lru_cache(maxsize=STATEMENTS)
def build_search(
    shape: RequestShape, service_down_time: int, limit: int, has_low: bool, has_high: bool
) -> sa.Select[Any]:
    """Return the statement that finds nodes in the order of their places, by `list_values`.

    Args:
        has_low: from the place ``low`` on, where ids are larger than ``last_id``.
        has_high: before the place ``high``. PostgreSQL 15 plans for very few nodes where both
            ends are parameters.
    """
    query: sa.Select[Any] = sa.select(
        _nodes.id,
        _nodes.place,
        _nodes.host,
        _nodes.hypervisor_hostname.label("nodename"),
        sa.case((is_exempt(), sa.null()), else_=_nodes.overhead_mb).label("overhead_mb"),
        *(column.label(name) for column, name in zip(_list_free(shape), WEIGHED, strict=True)),
        sa.case((has_stale_limits(), 1), else_=0).label("has_stale_limits"),
    )
    low = whole("low")
    if has_low:
        is_later = sa.or_(_nodes.place > low, _nodes.id > whole("last_id"))
        query = query.where(_nodes.place >= low, is_later)
    if has_high:
        query = query.where(_nodes.place < whole("high"))
    if not shape.has_host:
        query = use_index(query, tables.compute_nodes, CANDIDATE_INDEX, "FORCE")
    query = query.where(*are_named(shape), _is_found(shape, service_down_time))
    return query.order_by(_nodes.place, _nodes.id).limit(limit)


def _is_found(shape: RequestShape, service_down_time: int) -> sa.ColumnElement[bool]:
    """Return the condition that a node passes by its numbers, and its service accepts claims.

    A node with the workload's guest passes by any amount, as this is charged already.

    It is one CASE: databases evaluate it in this order, and read the service last; and
    PostgreSQL takes it for true of every other node, so that it reads nodes in their order
    until there are enough, and does not read all to sort them.
    """
    checks = map_checks(shape)
    amounts = [checks.pop(check) for check in AMOUNT_CHECKS.values() if check in checks]
    fits = [sa.or_(sa.and_(*amounts), _nodes.id.in_(GUEST_NODES))] if amounts else []
    passes = sa.or_(sa.and_(*checks.values(), *fits), is_exempt())
    in_range = [column.between(double(-LARGEST), double(LARGEST)) for column in _list_free(shape)]
    in_range.append(_nodes.place.between(0, PLACES - 1))
    found = sa.and_(passes, *in_range, accepts_claims(shape, service_down_time))
    return sa.case((found, sa.true()), else_=sa.false())


@lru_cache(maxsize=STATEMENTS)
def build_scale(shape: RequestShape, service_down_time: int) -> sa.Select[Any]:
    """Return the statement that reads the least and most free amounts, by `list_values`."""
    free = _list_free(shape)
    ends = (find(column) for find in (sa.func.min, sa.func.max) for column in free)
    query = sa.select(*ends).where(*are_named(shape), _is_found(shape, service_down_time))
    return read_index(query) if shape.is_indexed and not shape.has_host else query


_IS_OPEN = sa.and_(_services.disabled == sa.false(), _services.maintenance == sa.false())
_FREE = (
    _nodes.vcpu_milli_free,
    _nodes.pcpus_claimable,  # all that are free, as none is allocated twice
    _nodes.memory_mb_free,
    _nodes.disk_mb_free,
)


def list_rooms(connection: sa.Connection, service_down_time: int) -> list[NodeRoom]:
    query = (
        sa.select(
            _nodes.id,
            _nodes.host,
            _nodes.hypervisor_hostname,
            _nodes.generation,
            sa.case((is_exempt(), 0), else_=1),
            sa.case((is_up(service_down_time), 1), else_=0),
            sa.case((_IS_OPEN, 1), else_=0),
            *_FREE,
        )
        .select_from(tables.WITH_SERVICE)
        .order_by(_nodes.id)
    )
    return [_decode_room(row) for row in connection.execute(query)]


def _decode_room(row: Any) -> NodeRoom:
    id_, host, nodename, generation, is_bounded, is_up, is_open, *amounts = row
    vcpu_milli, pcpus, memory_mb, disk_mb = (max(0, int(amount or 0)) for amount in amounts)
    return NodeRoom(
        id=id_,
        host=host,
        nodename=nodename,
        generation=generation,
        left=Amounts(vcpu_milli, pcpus, memory_mb, disk_mb),
        is_bounded=bool(is_bounded),
        is_up=bool(is_up),
        accepts=bool(is_up and is_open),
    )
