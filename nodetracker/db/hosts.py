"""Delete and rename hosts with all their rows, delete a node, and give one to another host."""

from collections.abc import Collection, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.ledger.claims import released_claim
from nodetracker.accounting.ledger.migrations import decide_loss
from nodetracker.accounting.liveness import has_ended, has_recent_heartbeat, is_service_up
from nodetracker.db import capacities, codec, history, migrations, provider_removals
from nodetracker.db.claim_lists import list_active_claims
from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.ledger.claims import bump_generation
from nodetracker.db.nodes import check_unclaimed, delete_rows, lock_nodes
from nodetracker.db.schema import tables
from nodetracker.db.statements import update_each
from nodetracker.model.change import ChangeKind, EventKind, StoreEvent, removed_diff
from nodetracker.model.claim import Migration, ReleaseReason
from nodetracker.model.errors import ConflictError, NotFoundError, RefusedError
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.warning import WHOLE_HOST, WarningKind

_services = tables.services.c
_nodes = tables.compute_nodes.c
_claims = tables.claims.c
_migrations = tables.migrations.c
_credentials = tables.agent_credentials.c
_warnings = tables.warnings.c
_MIGRATION_ENDS = (
    (_migrations.source_host, _migrations.source_node),
    (_migrations.dest_host, _migrations.dest_node),
)


def delete_service(
    connection: sa.Connection, host: str, binary: str, service_down_time: int
) -> tuple[None, StoreEvent]:
    is_service = sa.and_(_services.host == host, _services.binary == binary)
    row = (
        connection.execute(
            sa.select(tables.services, utc_now().label("now")).where(is_service).with_for_update()
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        raise NotFoundError(f"no such service: {binary} on host {host}")
    service = codec.decode_service(row)
    _check_deletion(service, row["now"], service_down_time)
    connection.execute(sa.delete(tables.services).where(is_service))
    if binary != COMPUTE_BINARY:
        history.insert(connection, [history.service_line(host, binary, "retired", {}, row["now"])])
        return None, StoreEvent(services=((service, None),))  # the nodes belong to the agent
    nodes = lock_nodes(connection, host)
    ids = [node_id for node_id, _, _ in nodes]
    check_unclaimed(f"host {host}", list_active_claims(connection, ids))
    if nodes:
        delete_rows(connection, ids)
    history.insert(
        connection,
        [
            *(
                history.line(row["now"], node_id, host, nodename, ChangeKind.DELETE)
                for node_id, nodename, _ in nodes
            ),
            _removed_line(row["now"], service),
        ],
    )
    connection.execute(sa.delete(tables.warnings).where(tables.warnings.c.host == host))
    connection.execute(sa.delete(tables.agent_credentials).where(_credentials.host == host))
    deleted = tuple((host, nodename, node_uuid) for _, nodename, node_uuid in nodes)
    return None, StoreEvent(deleted_nodes=deleted, services=((service, None),))


def purge_nodes(
    connection: sa.Connection, host: str, service_down_time: int, limit: int
) -> tuple[int, StoreEvent]:
    """Delete the first nodes of a host with all that they hold; return how many."""
    service = connection.execute(
        sa.select(tables.services, utc_now().label("now"))
        .where(_services.host == host, _services.binary == COMPUTE_BINARY)
        .with_for_update()
    ).mappings()
    for row in service:
        remedy = "stop it or revoke its credential first"
        _check_deletion(codec.decode_service(row), row["now"], service_down_time, remedy)
    nodes = _lock_purged(connection, host, limit)
    if not nodes:
        return 0, StoreEvent()
    now, ids = read_time(connection), [node_id for node_id, _, _ in nodes]
    claims = [
        released_claim(claim, ReleaseReason.DELETED, now)
        for claim in list_active_claims(connection, ids)
    ]
    moves = _end_moves(connection, {(host, nodename) for _, nodename, _ in nodes}, now)
    delete_rows(connection, ids)
    history.insert(
        connection,
        [
            *map(history.claim_line, claims),
            *map(history.move_line, moves),
            *(
                history.line(now, node_id, host, nodename, ChangeKind.DELETE)
                for node_id, nodename, _ in nodes
            ),
        ],
    )
    # Also those of nodes that were refused and have no row.
    of_nodes = sa.and_(_warnings.host == host, _warnings.nodename != WHOLE_HOST)
    connection.execute(sa.delete(tables.warnings).where(of_nodes))
    deleted = tuple((host, nodename, node_uuid) for _, nodename, node_uuid in nodes)
    event = StoreEvent(deleted_nodes=deleted, claims=tuple(claims), migrations=tuple(moves))
    return len(nodes), event


def _lock_purged(connection: sa.Connection, host: str, limit: int) -> list[tuple[int, str, str]]:
    """Lock the first nodes of a host, and the other ends of their open moves, in id order.

    Returns:
        id, nodename and uuid of each node of the host.
    """
    columns = _nodes.id, _nodes.hypervisor_hostname, _nodes.uuid
    first = sa.select(*columns).where(_nodes.host == host).order_by(_nodes.id).limit(limit)
    own = {node_id: (host, nodename) for node_id, nodename, _ in connection.execute(first)}
    ends = _find_ends(connection, _list_moves(connection, set(own.values())))
    locked = connection.execute(
        sa.select(*columns, _nodes.host)
        .where(_nodes.id.in_(sorted({*own, *ends})))
        .order_by(_nodes.id)
        .with_for_update()
    )
    return [(row[0], row[1], row[2]) for row in locked if own.get(row.id) == (row.host, row[1])]


def _list_moves(connection: sa.Connection, places: Set[tuple[str, str]]) -> list[Migration]:
    """Return the open moves from or to nodes of one host."""
    hosts = {host for host, _ in places}
    found = {
        move.uuid: move
        for at, _ in _MIGRATION_ENDS
        for host in hosts
        for move in migrations.list_where(connection, at == host, tables.IS_OPEN)
    }
    return [move for move in found.values() if not places.isdisjoint(move.places)]


def _find_ends(connection: sa.Connection, moves: Collection[Migration]) -> list[int]:
    """Return the ids of the nodes of moves, as far as these have claims there."""
    uuids = sorted({uuid for move in moves for uuid in (move.source_claim, move.dest_claim)})
    query = sa.select(_claims.compute_node_id).where(_claims.uuid.in_(uuids)).distinct()
    return list(connection.scalars(query)) if uuids else []


def _end_moves(
    connection: sa.Connection, places: Set[tuple[str, str]], now: datetime
) -> list[Migration]:
    """Write what becomes of the moves of nodes that are deleted; return those that change.

    The agents of their other ends read them again.
    """
    moves = _list_moves(connection, places)
    bump_generation(connection, _find_ends(connection, moves))
    steps = {step.uuid: step for move in moves if (step := decide_loss(move, places, now))}
    rows = [
        {"uuid": step.uuid, "status": step.status.value, "updated_at": now}
        for step in steps.values()
    ]
    update_each(connection, tables.migrations, ["uuid"], rows)
    return [steps[move.uuid].advance(move) for move in moves if move.uuid in steps]


def _check_deletion(
    service: ServiceRecord, now: datetime, service_down_time: int, remedy: str = "stop it first"
) -> None:
    """Check that a service is no longer alive.

    Args:
        remedy: what to do if it is, for the message.

    Raises:
        RefusedError: it is alive.
    """
    if has_recent_heartbeat(service, now, service_down_time):
        raise RefusedError(
            f"{service.binary} on host {service.host} is alive (last heartbeat within "
            f"{service_down_time} s); {remedy}"
        )


def delete_node(connection: sa.Connection, host: str, nodename: str) -> tuple[None, StoreEvent]:
    row = connection.execute(
        sa.select(_nodes.id, _nodes.uuid, utc_now().label("now"))
        .where(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
        .with_for_update()
    ).one_or_none()
    if row is None:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    check_unclaimed(f"node {nodename}", list_active_claims(connection, [row.id]))
    delete_rows(connection, [row.id])
    history.insert(connection, [history.line(row.now, row.id, host, nodename, ChangeKind.DELETE)])
    event = capacities.resolve(connection, host, [nodename])
    return None, replace(event, deleted_nodes=((host, nodename, row.uuid),))


def rename_host(
    connection: sa.Connection, old: str, new: str, binary: str, expected: ServiceRecord | None
) -> tuple[int, StoreEvent]:
    rows = connection.execute(
        sa.select(tables.services)
        .where(_services.host.in_([old, new]), _services.binary == binary)
        .order_by(_services.id)
        .with_for_update()
    ).mappings()
    services = [codec.decode_service(row) for row in rows]
    nodes = connection.execute(
        sa.select(_nodes.id, _nodes.host, _nodes.hypervisor_hostname, _nodes.epoch)
        .where(_nodes.host.in_([old, new]))
        .order_by(_nodes.id)
        .with_for_update()
    ).all()
    found = _check_rename(old, new, services, [(row[1], row[2]) for row in nodes])
    _check_expected(expected, found)
    epoch = max([row.epoch for row in nodes] + ([found.epoch] if found else [])) + 1
    _rename_rows(connection, old, new, binary, epoch, found is not None and has_ended(found))
    _log_rename(connection, old, new, nodes, found)
    if found is None:
        return len(nodes), StoreEvent()
    return len(nodes), StoreEvent(services=((found, replace(found, host=new, epoch=epoch)),))


def take_over_node(
    connection: sa.Connection, host: str, nodename: str, to: str | None, service_down_time: int
) -> tuple[str, StoreEvent]:
    uuid = connection.execute(
        sa.select(_nodes.uuid).where(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    ).scalar()
    refused = connection.execute(
        sa.select(_warnings.host, _warnings.nodename).where(
            _warnings.kind == WarningKind.NODE_UUID_REFUSED.value,
            _warnings.item == uuid,
            _warnings.resolved_at.is_(None),
            _warnings.host != host,
        )
    )
    names = {row.host: row.nodename for row in refused}
    if uuid is None:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    to = _choose_host(nodename, host, to, names)
    rows = (
        connection.execute(
            sa.select(tables.services, utc_now().label("now"))
            .where(_services.host.in_([host, to]), _services.binary == COMPUTE_BINARY)
            .order_by(_services.id)
            .with_for_update()
        )
        .mappings()
        .all()
    )
    services = {row["host"]: codec.decode_service(row) for row in rows}
    if to not in services:
        raise NotFoundError(f"host {to} has no agent")
    now: datetime = rows[0]["now"]
    if host in services and is_service_up(services[host], now, service_down_time):
        raise RefusedError(f"host {host} is up; stop its agent first")
    name = names.get(to, nodename)
    is_node = sa.and_(_nodes.host == host, _nodes.hypervisor_hostname == nodename)
    is_taken = sa.and_(_nodes.host == to, _nodes.hypervisor_hostname == name)
    nodes = connection.execute(
        sa.select(_nodes.id, _nodes.host)
        .where(sa.or_(is_node, is_taken))
        .order_by(_nodes.id)
        .with_for_update()
    ).all()
    if any(row.host == to for row in nodes):
        raise RefusedError(f"host {to} has another node {name}")
    if not nodes:
        raise ConflictError(f"node {nodename} of host {host} was deleted or moved meanwhile")
    (node,) = nodes
    # The epoch by which its new agent writes: the former one's decisions rest on another
    # generation and host.
    moved = {"host": to, "hypervisor_hostname": name, "epoch": services[to].epoch}
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(_nodes.id == node.id)
        .values(**moved, updated_at=now, **tables.raised_generation())
    )
    for at, named in _MIGRATION_ENDS:
        is_end = sa.and_(at == host, named == nodename)
        connection.execute(sa.update(tables.migrations).where(is_end).values({at: to, named: name}))
    is_former = sa.and_(_warnings.host == host, _warnings.nodename == nodename)
    connection.execute(sa.delete(tables.warnings).where(is_former))
    diff = {"host": [host, to]}
    if name != nodename:
        diff["hypervisor_hostname"] = [nodename, name]
    history.insert(connection, [history.line(now, node.id, to, name, ChangeKind.UPDATE, diff)])
    return to, StoreEvent(places=((to, name),))


def _choose_host(nodename: str, host: str, to: str | None, refused: Collection[str]) -> str:
    """Return the host that is to have a node.

    Args:
        host: the one that has it.
        to: the one that was named, if any.
        refused: hosts whose agents list the node and were refused it.

    Raises:
        RefusedError: it is not clear which one.
    """
    if to == host:
        raise RefusedError(f"node {nodename} belongs to host {host} already")
    if to is not None:
        return to
    if len(refused) != 1:
        found = f"hosts {', '.join(sorted(refused))} list" if refused else "no other host lists"
        raise RefusedError(f"{found} node {nodename}: name the one that is to have it with --to")
    (only,) = refused
    return only


def _check_rename(
    old: str, new: str, services: Sequence[ServiceRecord], nodes: Sequence[tuple[str, str]]
) -> ServiceRecord | None:
    """Check that a host can be renamed; return its services row.

    Args:
        services: of both names.
        nodes: host and nodename of every row of both names.

    Raises:
        NotFoundError: nothing is stored under the old name.
        RefusedError: something is stored under the new name.
    """
    if old == new:
        raise RefusedError(f"host {old} already has that name")
    if any(service.host == new for service in services) or any(host == new for host, _ in nodes):
        raise RefusedError(f"host {new} already exists; delete its service and nodes first")
    nodenames = {nodename for host, nodename in nodes if host == old}
    found = [service for service in services if service.host == old]
    if not found and not nodenames:
        raise NotFoundError(f"no such host: {old}")
    if {old, new} <= nodenames:
        raise RefusedError(f"host {old} has nodes {old} and {new}, which would both be {new}")
    return found[0] if found else None


def _check_expected(expected: ServiceRecord | None, found: ServiceRecord | None) -> None:
    """Compare a services row with the one that the caller's decision was based on.

    Raises:
        ConflictError: the row has changed.
    """
    if _version(expected) != _version(found):
        row = found or expected
        assert row is not None
        raise ConflictError(f"host {row.host} was taken over or reported its state meanwhile")


def _version(service: ServiceRecord | None) -> tuple[str, int, int] | None:
    if service is None:
        return None
    return service.incarnation.agent_id, service.epoch, service.report_count


def _rename_rows(
    connection: sa.Connection, old: str, new: str, binary: str, epoch: int, has_agent_ended: bool
) -> None:
    ended = {"ended_epoch": epoch} if has_agent_ended else {}
    moved: dict[str, Any] = {"host": new, "epoch": epoch, "updated_at": utc_now()}
    connection.execute(
        sa.update(tables.services)
        .where(_services.host == old, _services.binary == binary)
        .values(**moved, **ended)
    )
    connection.execute(
        sa.update(tables.compute_nodes)
        .where(_nodes.host == old)
        .values(
            **moved,
            **tables.raised_generation(),
            hypervisor_hostname=_renamed(_nodes.hypervisor_hostname, old, new),
        )
    )
    for host, node in _MIGRATION_ENDS:
        names = {host: new, node: _renamed(node, old, new)}
        connection.execute(sa.update(tables.migrations).where(host == old).values(names))
    provider_removals.rename_host(connection, old, new)
    # Of two, the renamed agent's goes on.
    connection.execute(sa.delete(tables.agent_credentials).where(_credentials.host == new))
    connection.execute(
        sa.update(tables.agent_credentials).where(_credentials.host == old).values(host=new)
    )
    # An agent that was refused under the new name may have left warnings under it.
    connection.execute(sa.delete(tables.warnings).where(tables.warnings.c.host == new))
    for table in (tables.history, tables.warnings):
        connection.execute(
            sa.update(table)
            .where(table.c.host == old)
            .values(nodename=_renamed(table.c.nodename, old, new), host=new)
        )


def _log_rename(
    connection: sa.Connection,
    old: str,
    new: str,
    nodes: Sequence[Any],
    service: ServiceRecord | None,
) -> None:
    """Insert a history row for each node, and one of the old name."""
    now = read_time(connection)
    history.insert(
        connection,
        [
            *(
                history.line(
                    now,
                    row.id,
                    new,
                    new if row.hypervisor_hostname == old else row.hypervisor_hostname,
                    ChangeKind.UPDATE,
                    _renamed_diff(old, new, row.hypervisor_hostname),
                )
                for row in nodes
            ),
            *([] if service is None else [_removed_line(now, service, new)]),
        ],
    )


def _renamed_diff(old: str, new: str, nodename: str) -> dict[str, Any]:
    """Return the history entry of a node whose host is renamed."""
    diff: dict[str, Any] = {"host": [old, new]}
    if nodename == old:
        diff["hypervisor_hostname"] = [old, new]
    return diff


def _removed_line(now: datetime, service: ServiceRecord, new: str | None = None) -> dict[str, Any]:
    diff = removed_diff(service, new)
    line = history.line(now, 0, service.host, WHOLE_HOST, ChangeKind.DELETE, diff)
    return line | {"kind": EventKind.SERVICE.value}


def _renamed(column: "sa.ColumnElement[str]", old: str, new: str) -> "sa.ColumnElement[str]":
    return sa.case((column == old, new), else_=column)
