"""Delete and rename hosts with all their rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.liveness import has_ended
from nodetracker.db import checks, codec, history, provider_removals
from nodetracker.db.claims import list_active_uuids
from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.nodes import delete_rows, lock_nodes
from nodetracker.db.schema import tables
from nodetracker.model.change import ChangeKind, removed_diff
from nodetracker.model.errors import NotFoundError
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord
from nodetracker.model.warning import WHOLE_HOST

_services = tables.services.c
_nodes = tables.compute_nodes.c
_credentials = tables.agent_credentials.c


def delete_service(
    connection: sa.Connection, host: str, binary: str, service_down_time: int
) -> None:
    """See `Store.delete_service`."""
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
    checks.check_deletion(service, row["now"], service_down_time)
    connection.execute(sa.delete(tables.services).where(is_service))
    if binary != COMPUTE_BINARY:
        return  # the host's nodes belong to its agent
    nodes = lock_nodes(connection, host)
    checks.check_unclaimed(f"host {host}", list_active_uuids(connection, list(nodes)))
    if nodes:
        delete_rows(connection, list(nodes))
    history.insert(
        connection,
        [
            *(
                history.line(row["now"], node_id, host, nodename, ChangeKind.DELETE)
                for node_id, nodename in nodes.items()
            ),
            _removed_line(row["now"], service),
        ],
    )
    connection.execute(sa.delete(tables.warnings).where(tables.warnings.c.host == host))
    connection.execute(sa.delete(tables.agent_credentials).where(_credentials.host == host))


def rename_host(
    connection: sa.Connection, old: str, new: str, binary: str, expected: ServiceRecord | None
) -> int:
    """See `Store.rename_host`."""
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
    found = checks.check_rename(old, new, services, [(row[1], row[2]) for row in nodes])
    checks.check_expected(expected, found)
    epoch = max([row.epoch for row in nodes] + ([found.epoch] if found else [])) + 1
    _rename_rows(connection, old, new, binary, epoch, found is not None and has_ended(found))
    _log_rename(connection, old, new, nodes, found)
    return len(nodes)


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
                    checks.renamed_diff(old, new, row.hypervisor_hostname),
                )
                for row in nodes
            ),
            *([] if service is None else [_removed_line(now, service, new)]),
        ],
    )


def _removed_line(now: datetime, service: ServiceRecord, new: str | None = None) -> dict[str, Any]:
    diff = removed_diff(service, new)
    return history.line(now, 0, service.host, WHOLE_HOST, ChangeKind.DELETE, diff)


def _renamed(column: "sa.ColumnElement[str]", old: str, new: str) -> "sa.ColumnElement[str]":
    return sa.case((column == old, new), else_=column)
