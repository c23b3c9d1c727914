"""Load, list and delete ``compute_nodes`` with their guests and devices."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from nodetracker.db import codec, history, migrations, provider_removals
from nodetracker.db.claim_lists import select_claims
from nodetracker.db.connection.dialect import byte_order, utc_now
from nodetracker.db.schema import tables
from nodetracker.db.statements import equals_id, matches
from nodetracker.model.change import ChangeKind
from nodetracker.model.claim import Claim, ClaimState, ReleaseReason
from nodetracker.model.errors import ConflictError, NotFoundError, RefusedError
from nodetracker.model.guest import Guest
from nodetracker.model.listing import DeviceQuery, Page
from nodetracker.model.node import (
    HostSums,
    HostVersions,
    NodeRecord,
    NodeVersion,
    VersionSums,
)
from nodetracker.model.pci import CUSTOM_PREFIX, NodeGpus, TrackedDevice
from nodetracker.model.service import AdminState
from nodetracker.model.text import count_noun
from nodetracker.model.warning import REPORT_LIFETIME

_nodes = tables.compute_nodes.c
_services = tables.services.c
_guests = tables.guests.c
_claims = tables.claims.c
_migrations = tables.migrations.c
_IS_EXPIRED = sa.and_(
    _claims.state == ClaimState.RELEASED.value, _claims.reason == ReleaseReason.EXPIRED.value
)
CHILDREN = (tables.guests, tables.pci_devices)
"""Tables whose rows only their node's agent writes."""

_MAX_NAMED_CLAIMS = 10

# Above this number of ids it is cheaper to read all of the host's rows.
_MAX_IDS = 1000


_SERVICE = (
    _services.epoch,
    _services.uuid.label("service_uuid"),
    _services.report_count,
    _services.disabled,
    _services.maintenance,
    _services.spare,
)


def _select_state(*of_nodes: "sa.ColumnElement[Any]") -> "sa.Select[Any]":
    """Select the services row of a host, with columns of its nodes."""
    host_nodes = tables.services.outerjoin(tables.compute_nodes, _nodes.host == _services.host)
    return (
        sa.select(*_SERVICE, utc_now().label("now"), *of_nodes)
        .select_from(host_nodes)
        .where(_services.host == sa.bindparam("host"), _services.binary == sa.bindparam("binary"))
    )


_VERSIONS = _select_state(
    _nodes.id, _nodes.hypervisor_hostname, _nodes.generation, _nodes.epoch.label("node_epoch")
)

_MAX_SUMMAND = 2**32
"""So that the sums of two million rows are exact in every database and in JSON."""

_is_summable = sa.and_(
    *(column.between(0, _MAX_SUMMAND) for column in (_nodes.id, _nodes.generation, _nodes.epoch))
)


def _sum_summable(column: "sa.ColumnElement[int]") -> "sa.ColumnElement[Any]":
    return sa.func.sum(sa.type_coerce(sa.case((_is_summable, column), else_=0), sa.BigInteger()))


_SUMS = _select_state(
    sa.func.count(_nodes.id).label("nodes"),
    sa.func.count(sa.case((_is_summable, 1))).label("summable"),
    _sum_summable(_nodes.id).label("ids"),
    _sum_summable(_nodes.generation).label("generations"),
    _sum_summable(_nodes.epoch).label("epochs"),
).group_by(*_SERVICE)
"""Built once, as `_VERSIONS` is: one of them is the only statement of a steady audit."""


def load_versions(connection: sa.Connection, host: str, binary: str) -> HostVersions:
    rows = _read_state(connection, _VERSIONS, host, binary)
    versions = {
        row.hypervisor_hostname: NodeVersion(row.id, row.generation, row.node_epoch)
        for row in rows
        if row.id is not None
    }
    return HostVersions(**_as_state(rows[0]), by_nodename=versions)


def sum_versions(connection: sa.Connection, host: str, binary: str) -> HostSums:
    (row,) = _read_state(connection, _SUMS, host, binary)
    sums = VersionSums(row.nodes, int(row.ids), int(row.generations), int(row.epochs))
    return HostSums(**_as_state(row), sums=sums if row.summable == row.nodes else None)


def _read_state(
    connection: sa.Connection, statement: "sa.Select[Any]", host: str, binary: str
) -> Sequence[Any]:
    rows = connection.execute(statement, {"host": host, "binary": binary}).all()
    if not rows:
        raise NotFoundError(f"host {host} has no services row for {binary}")
    return rows


def _as_state(row: Any) -> dict[str, Any]:
    """Return the attributes of `HostState`."""
    return {
        "now": row.now,
        "epoch": row.epoch,
        "service_uuid": row.service_uuid,
        "report_count": row.report_count,
        "admin": AdminState(row.disabled, row.maintenance, row.spare),
    }


def load_nodes(
    connection: sa.Connection, host: str, node_ids: Collection[int] | None = None
) -> list[NodeRecord]:
    if node_ids is not None and not node_ids:
        return []
    return _load_nodes(connection, _nodes.host == host, node_ids)


def load_hosts(connection: sa.Connection, hosts: Collection[str]) -> list[NodeRecord]:
    return _load_nodes(connection, _nodes.host.in_(sorted(hosts)))


def _load_nodes(
    connection: sa.Connection,
    of_hosts: "sa.ColumnElement[bool]",
    node_ids: Collection[int] | None = None,
) -> list[NodeRecord]:
    condition = of_hosts
    if node_ids is not None and len(node_ids) <= _MAX_IDS:
        condition = sa.and_(condition, _nodes.id.in_(sorted(node_ids)))
    rows = sa.select(tables.compute_nodes, utc_now().label("now")).where(condition)
    found = {
        row["id"]: row
        for row in connection.execute(rows).mappings()
        if node_ids is None or row["id"] in node_ids
    }
    if not found:
        return []
    guests = codec.group_rows(Guest, "uuid", _select_children(connection, tables.guests, condition))
    devices = codec.group_rows(
        TrackedDevice, "address", _select_children(connection, tables.pci_devices, condition)
    )
    claims: dict[int, dict[str, Claim]] = {}
    workloads: set[str] = set()
    for row in connection.execute(_select_claims(of_hosts, found)).mappings():
        node = found[row["compute_node_id"]]
        claim = codec.decode_claim(row, node["host"], node["hypervisor_hostname"])
        claims.setdefault(claim.node_id, {})[claim.uuid] = claim
        workloads.add(claim.workload.uuid)
    # Without claims, migrations do not exist.
    named = sorted(workloads) if len(workloads) <= _MAX_IDS else None
    moves = migrations.load_moves(connection, named) if claims else {}
    return [
        codec.decode_node(
            row,
            guests=guests.get(node_id, {}),
            devices=devices.get(node_id, {}),
            claims=claims.get(node_id, {}),
            moves=moves.get(node_id, ()),
        )
        for node_id, row in sorted(found.items(), key=lambda item: item[1]["hypervisor_hostname"])
    ]


def _select_claims(
    of_hosts: "sa.ColumnElement[bool]", found: Mapping[int, sa.RowMapping]
) -> sa.CompoundSelect[Any]:
    """Select the active claims of nodes, damaged ones, and those expired that an audit may need.

    The expired ones have just done so, or their workload has an unclaimed guest or an open
    migration. Released claims are never read by their node alone: they become many.

    Args:
        of_hosts: the condition of all nodes of the hosts.
        found: id -> row of all nodes, or of more than `_MAX_IDS` of the hosts'.
    """
    ids: Any = sorted(found)
    if len(found) > _MAX_IDS:
        ids = sa.select(_nodes.id).where(of_hosts)
    here = _claims.compute_node_id.in_(ids)
    now = next(row["now"] for row in found.values())
    is_guest = sa.and_(
        _guests.compute_node_id == _claims.compute_node_id, _guests.uuid == _claims.workload_uuid
    )
    is_moved = _migrations.workload_uuid == _claims.workload_uuid
    claims = sa.select(*tables.CLAIM_COLUMNS)
    return sa.union_all(
        claims.where(here, tables.IS_ACTIVE),
        claims.where(here, tables.HAS_UNKNOWN_STATE),
        claims.where(here, _IS_EXPIRED, _claims.updated_at > now - REPORT_LIFETIME),
        claims.join(tables.guests, is_guest).where(here, _IS_EXPIRED, _guests.claim_uuid.is_(None)),
        claims.join(tables.migrations, is_moved).where(here, _IS_EXPIRED, tables.IS_OPEN),
    )


def list_expired_claims(
    connection: sa.Connection, host: str, workload_uuids: Collection[str]
) -> list[Claim]:
    is_wanted = _claims.workload_uuid.in_(sorted(workload_uuids))
    return select_claims(connection, _nodes.host == host, is_wanted, _IS_EXPIRED)


def _select_children(
    connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]
) -> Iterable[sa.RowMapping]:
    joined = table.join(tables.compute_nodes, _nodes.id == table.c.compute_node_id)
    return connection.execute(sa.select(table).select_from(joined).where(*conditions)).mappings()


def list_nodes(
    connection: sa.Connection, host: str | None = None, nodename: str | None = None
) -> list[NodeRecord]:
    wanted = matches((_nodes.host, host), (_nodes.hypervisor_hostname, nodename))
    query = sa.select(tables.compute_nodes).where(*wanted)
    records = [codec.decode_node(row) for row in connection.execute(query).mappings()]
    return sorted(records, key=lambda record: (record.host, record.nodename))


def lock_nodes(connection: sa.Connection, host: str) -> Sequence[Any]:
    """Lock a host's nodes in id order; return id, nodename and uuid of each."""
    return connection.execute(
        sa.select(_nodes.id, _nodes.hypervisor_hostname, _nodes.uuid)
        .where(_nodes.host == host)
        .order_by(_nodes.id)
        .with_for_update()
    ).all()


def check_unclaimed(what: str, claims: Sequence[Claim]) -> None:
    """Check that a host or node that is to be deleted holds no claims.

    Args:
        what: the host or node, for the message.
        claims: its active ones.

    Raises:
        RefusedError: it holds claims.
    """
    if claims:
        more = len(claims) - _MAX_NAMED_CLAIMS
        names = ", ".join(claim.uuid for claim in claims[:_MAX_NAMED_CLAIMS])
        names += f" and {more} more" if more > 0 else ""
        held = count_noun(len(claims), "claim")
        raise RefusedError(f"{what} holds {held}; to be moved or aborted first: {names}")


def adopt_uuid(connection: sa.Connection, host: str, nodename: str, before: str, uuid: str) -> None:
    is_node = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    rows = connection.execute(
        sa.select(
            _nodes.id, _nodes.uuid, _nodes.host, _nodes.hypervisor_hostname, utc_now().label("now")
        )
        .where(sa.or_(is_node, _nodes.uuid == uuid))
        .order_by(_nodes.id)
        .with_for_update()
    ).all()
    _check_adoption(host, nodename, before, uuid, [(row[1], row[2], row[3]) for row in rows])
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(is_node)
        .values(uuid=uuid, updated_at=rows[0].now, **tables.raised_generation())
    )
    (node_id,) = [row.id for row in rows if (row[2], row[3]) == (host, nodename)]
    diff = {"uuid": [before, uuid]}
    line = history.line(rows[0].now, node_id, host, nodename, ChangeKind.UPDATE, diff)
    history.insert(connection, [line])


def _check_adoption(
    host: str, nodename: str, before: str, uuid: str, nodes: Sequence[tuple[str, str, str]]
) -> None:
    """Check that a node may get another uuid.

    Args:
        before: its uuid as its caller knows it.
        nodes: uuid, host and nodename of the node and of any that has the new uuid.

    Raises:
        NotFoundError: no such node.
        ConflictError: the node has another uuid by now.
        RefusedError: another node has the new uuid.
    """
    found = {(row[1], row[2]): row[0] for row in nodes}
    if (host, nodename) not in found:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    for place, other in found.items():
        if other == uuid and place != (host, nodename):
            raise RefusedError(f"node {place[1]} of host {place[0]} has the uuid {uuid}")
    if found[host, nodename] != before:
        raise ConflictError(
            f"node {nodename} of host {host} has the uuid {found[host, nodename]} by now"
        )


def delete_rows(
    connection: sa.Connection, ids: Sequence[int], children: Sequence[sa.Table] = CHILDREN
) -> None:
    """Delete nodes with all rows that refer to them, and record that their providers are to go.

    Every deletion of a row of ``compute_nodes`` is made here.

    Args:
        ids: of rows that are locked.
        children: those of `CHILDREN` that may have rows of the nodes.
    """
    has_claims = provider_removals.record_deletion(connection, ids)
    delete_children(connection, ids, children)
    if has_claims:
        connection.execute(sa.delete(tables.claims).where(_claims.compute_node_id.in_(ids)))
    connection.execute(sa.delete(tables.compute_nodes).where(_nodes.id.in_(ids)))


def delete_children(
    connection: sa.Connection, ids: Sequence[int], children: Sequence[sa.Table] = CHILDREN
) -> None:
    """Delete guests and devices of nodes; claims are kept."""
    for table in children:
        connection.execute(sa.delete(table).where(table.c.compute_node_id.in_(ids)))


def list_device_page(connection: sa.Connection, query: DeviceQuery) -> Page[TrackedDevice]:
    devices = tables.pci_devices
    found = sa.select(devices).where(equals_id(devices.c.compute_node_id, query.node_id))
    if query.after is not None:
        found = found.where(byte_order(devices.c.address) > str(query.after))
    page = found.order_by(byte_order(devices.c.address)).limit(query.limit + 1).subquery("page")
    # One row to join to, so that an empty page has the time as well.
    head = sa.select(utc_now().label("page_now")).subquery("head")
    statement = (
        sa.select(head.c.page_now, *page.c)
        .select_from(head.outerjoin(page, sa.true()))
        .order_by(byte_order(page.c.address))
    )
    rows = connection.execute(statement).mappings().all()
    listed = [row for row in rows if row["id"] is not None]
    on_page = listed[: query.limit]
    return Page(
        tuple(codec.decode_row(TrackedDevice, row) for row in on_page),
        rows[0]["page_now"],
        on_page[-1]["address"] if len(listed) > query.limit else None,
    )


def list_gpus(connection: sa.Connection) -> list[NodeGpus]:
    nodes, devices = tables.compute_nodes.c, tables.pci_devices
    has_gpus = sa.type_coerce(nodes.gpus, sa.Text()) != "[]"
    rows = connection.execute(sa.select(nodes.id, nodes.gpus).where(has_gpus)).mappings().all()
    managed = (
        sa.select(devices)
        .join(tables.compute_nodes, nodes.id == devices.c.compute_node_id)
        .where(has_gpus, devices.c.tags.is_not(None))
    )
    found: dict[int, list[TrackedDevice]] = {}
    for row in connection.execute(managed).mappings():
        device = codec.decode_row(TrackedDevice, row)
        found.setdefault(row["compute_node_id"], []).append(device)
    return [
        NodeGpus(tuple(codec.decode_values(row, ("gpus",)).gpus), tuple(found.get(row["id"], ())))
        for row in rows
    ]


def list_custom_traits(connection: sa.Connection) -> dict[str, tuple[str, ...]]:
    nodes = tables.compute_nodes.c
    has_any = sa.type_coerce(nodes.traits, sa.Text()).contains(CUSTOM_PREFIX, autoescape=True)
    rows = connection.execute(sa.select(nodes.uuid, nodes.traits).where(has_any)).mappings()
    traits = {row["uuid"]: codec.decode_values(row, ("traits",)).traits for row in rows}
    return {
        uuid: tuple(name for name in names if name.startswith(CUSTOM_PREFIX))
        for uuid, names in traits.items()
    }
