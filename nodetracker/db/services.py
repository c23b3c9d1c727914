"""Read and write ``services``: the agent that holds a host, its settings, who is up."""

import dataclasses
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from nodetracker.accounting.liveness import has_ended
from nodetracker.db import codec, history
from nodetracker.db.connection.dialect import (
    byte_order,
    utc_ago,
    utc_now,
)
from nodetracker.db.nodes import lock_nodes
from nodetracker.db.schema import tables
from nodetracker.db.statements import Listing, by_name, matches, select_page, sum_of
from nodetracker.model.change import StoreEvent
from nodetracker.model.errors import (
    ConflictError,
    FencedError,
    HostNameError,
    NotFoundError,
    RequestError,
    ServiceChangedError,
)
from nodetracker.model.listing import (
    HostsDownQuery,
    HostSum,
    LivenessFilter,
    Page,
    ServiceQuery,
)
from nodetracker.model.service import (
    AUTO_PREFIX,
    COMPUTE_BINARY,
    AgentKey,
    Incarnation,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.shapes import LARGEST, ShapeError
from nodetracker.model.text import (
    LONG_TEXT_LENGTH,
    escape_text,
    find_name_problem,
    render_value,
    sanitize_text,
)
from nodetracker.model.warning import WarningKind

_services = tables.services.c
_nodes = tables.compute_nodes.c
_warnings = tables.warnings.c


def select_service() -> "sa.Select[Any]":
    """Return the query for whole rows, as `codec.decode_service` reads them."""
    return sa.select(tables.services)


_NOT_DISABLED = {"disabled_at": None, "disabled_by": None}
"""The columns of a row that is enabled."""

_NOT_FORCED = {"forced_down_at": None, "forced_down_by": None}
"""The columns of a row that is not forced down."""

_NOT_IN_MAINTENANCE = {"maintenance_at": None, "maintenance_by": None}
"""The columns of a row that is not in maintenance."""


def list_services(
    connection: sa.Connection,
    host: str | None = None,
    binary: str | None = None,
    agent_id: str | None = None,
) -> list[ServiceRecord]:
    wanted = ((_services.agent_id, agent_id), (_services.host, host), (_services.binary, binary))
    query = select_service().where(*matches(*wanted))
    records = [codec.decode_service(row) for row in connection.execute(query).mappings()]
    return sorted(records, key=lambda record: (record.host, record.binary))


def list_outage_services(
    connection: sa.Connection,
    service_down_time: int,
    host: str | None = None,
    query: HostsDownQuery | None = None,
) -> list[ServiceRecord]:
    # Two ranges, for which PostgreSQL has an index as well.
    is_other = sa.or_(_services.binary < COMPUTE_BINARY, _services.binary > COMPUTE_BINARY)
    own = matches((_services.host, host))
    statement: sa.Executable
    if query is None:
        is_down = is_live(LivenessFilter(False, service_down_time))
        statement = select_service().where(sa.or_(is_other, sa.and_(is_down, *own)))
    else:
        silent = select_service().where(
            _services.binary == COMPUTE_BINARY, _is_silent(service_down_time), *own
        )
        others = silent.where(
            byte_order(_services.host) > query.after, ~_has_stored_warning(query.counts_resolved)
        )
        others = others.order_by(byte_order(_services.host)).limit(query.limit)
        statement = sa.union_all(
            select_service().where(is_other),
            silent.where(_services.host.in_(query.hosts)),
            sa.select(others.subquery()),
        )
    records = [codec.decode_service(row) for row in connection.execute(statement).mappings()]
    return sorted(records, key=lambda record: (record.host, record.binary))


def _has_stored_warning(counts_resolved: bool) -> "sa.ColumnElement[bool]":
    """Return the condition that a warning is stored that a service's host is down."""
    found = [_warnings.host == _services.host, _warnings.kind == WarningKind.HOST_DOWN.value]
    if not counts_resolved:
        found.append(_warnings.resolved_at.is_(None))
    return sa.exists().where(*found)


def is_silenced() -> "sa.ColumnElement[bool]":
    """Return the condition of `WarningRecord.is_silenced` for an unresolved warning."""
    # A subquery, so that PostgreSQL reads the time once and not for each row.
    now = sa.select(utc_now()).scalar_subquery()
    return sa.and_(_warnings.silenced_until.is_not(None), _warnings.silenced_until > now)


def is_up(service_down_time: int) -> "sa.ColumnElement[bool]":
    """Return the condition of `accounting.liveness.is_service_up`, unknown without a service."""
    return sa.and_(_services.forced_down == sa.false(), ~_is_silent(service_down_time))


def _is_silent(service_down_time: int) -> "sa.ColumnElement[bool]":
    """Return the condition that a service has no recent heartbeat, unknown without a service."""
    # A subquery, so that PostgreSQL reads the time once and not for each row.
    ago = sa.select(utc_ago(service_down_time)).scalar_subquery()
    return sa.or_(
        sa.func.coalesce(_services.ended_epoch, -1) == _services.epoch,
        sa.func.coalesce(_services.last_seen_up, _services.created_at) < ago,
    )


def is_live(liveness: LivenessFilter) -> "sa.ColumnElement[bool]":
    """Return the condition that a service is up, or is not; no service is not up."""
    # In a CASE, unknown is not true, so that the negation selects the rest.
    return sa.case((is_up(liveness.service_down_time), 1), else_=0) == int(liveness.is_up)


def list_service_page(connection: sa.Connection, query: ServiceQuery) -> Page[ServiceRecord]:
    conditions = matches(
        (_services.id, query.id),
        (_services.uuid, query.uuid),
        (_services.host, query.host),
        (_services.binary, query.binary),
        (_services.disabled, query.is_disabled),
        (_services.maintenance, query.is_in_maintenance),
        (_services.spare, query.is_spare),
    )
    if query.name_part is not None:
        conditions.append(_services.host.icontains(query.name_part, autoescape=True))
    if query.liveness is not None:
        conditions.append(is_live(query.liveness))
    if query.has_nodes is not None:
        found = sa.exists().where(_nodes.host == _services.host)
        conditions.append(found if query.has_nodes else ~found)
    orders = {"id": None, "host": _services.host, "fullness": _select_fullness}
    listing = Listing(
        table=tables.services,
        conditions=conditions,
        order=orders[query.order],
        is_descending=query.is_descending,
    )
    return select_page(connection, query, listing, by_name(codec.decode_service))


_LEAST = -1.0
"""Below the fullness of every host with a node."""


def _select_fullness(services: Any) -> "sa.ColumnElement[float]":
    """Return the fullness of the fullest node of each service's host."""
    fullest = sa.select(sa.func.max(_nodes.fullness)).where(_nodes.host == services.c.host)
    return sa.func.coalesce(fullest.correlate(services).scalar_subquery(), _LEAST)


def sum_hosts(
    connection: sa.Connection, hosts: Collection[str] | None = None
) -> dict[str, HostSum]:
    found = sa.select(
        _nodes.host,
        sa.func.count(),
        sum_of(_nodes.running_vms),
        sum_of(_nodes.total_containers),
        sa.func.max(_nodes.fullness),
    ).group_by(_nodes.host)
    if hosts is not None:
        found = found.where(_nodes.host.in_(sorted(hosts)))
    return {
        host: HostSum(count, int(instances) + int(containers), fullness)
        for host, count, instances, containers, fullness in connection.execute(found)
    }


def find_service(connection: sa.Connection, service: int | str) -> ServiceRecord:
    column = _services.id if isinstance(service, int) else _services.uuid
    found = select_service().where(*matches((column, service)))
    row = connection.execute(found).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no such service: {service}")
    return codec.decode_service(row)


MAX_EPOCHS = 10**6
"""By how many epochs an agent may be ahead of a services row, as one that was restored."""


def check_columns(name: str, columns: Mapping[str, Any]) -> None:
    """Check what an agent writes to its services row.

    Raises:
        RequestError: a column may not have its value.
    """
    for column, value in columns.items():
        kind: Any = _services[column].type
        try:
            kind.check(value)
        except ShapeError as error:
            raise RequestError(name, f"{column}: {error}") from None


def check_new_name(connection: sa.Connection, host: str, *others: "sa.Select[Any]") -> None:
    """Check the name of a host that is not known yet; known hosts keep theirs.

    Args:
        others: select further names of hosts than those of agents.

    Raises:
        HostNameError: it is not a valid name, or looks like that of another host.
    """
    agents = sa.select(_services.host).where(_services.binary == COMPUTE_BINARY)
    known = connection.execute(sa.union(agents, *others)).scalars().all()
    problem = None if host in known else find_name_problem(host, known)
    if problem is not None:
        raise HostNameError(problem)


def register_agent(
    connection: sa.Connection,
    host: str,
    binary: str,
    topic: str,
    version: str,
    incarnation: Incarnation,
    expected: ServiceRecord | None,
    held_epoch: int = 0,
) -> tuple[ServiceRecord, StoreEvent]:
    """Lock the services row first, then the nodes in id order."""
    is_service = sa.and_(_services.host == host, _services.binary == binary)
    # Nodes may have a newer epoch than a services row that was deleted and created again.
    highest = sa.select(sa.func.max(_nodes.epoch)).where(_nodes.host == host).scalar_subquery()
    owns_nodes = binary == COMPUTE_BINARY
    node_epoch: int = (owns_nodes and connection.execute(sa.select(highest)).scalar()) or 0
    known_epoch = max(node_epoch, 0 if expected is None else expected.epoch)
    if held_epoch > known_epoch + MAX_EPOCHS:
        raise RequestError("held_epoch", f"{held_epoch} is too far above {known_epoch}")
    epoch = max(known_epoch, held_epoch) + 1
    if epoch > LARGEST:  # only an earlier version stored such numbers
        epoch = 1
    check_columns("incarnation", dataclasses.asdict(incarnation) | {"version": version})
    columns = dataclasses.asdict(incarnation) | {
        "topic": topic,
        "version": version,
        "epoch": epoch,
        "updated_at": utc_now(),
    }
    if expected is None:
        if owns_nodes:
            check_new_name(connection, host)
        _insert_service(connection, host, binary, columns)
    else:
        _take_over_service(connection, expected, columns)
    if owns_nodes and lock_nodes(connection, host):
        connection.execute(
            sa.update(tables.compute_nodes).where(_nodes.host == host).values(epoch=epoch)
        )
    row = connection.execute(select_service().where(is_service)).mappings().one()
    record = codec.decode_service(row)
    event = "started" if expected is None or has_ended(expected) else "taken over"
    history.insert(connection, [history.service_line(host, binary, event)])
    return record, StoreEvent(services=((expected, record),))


def _insert_service(
    connection: sa.Connection, host: str, binary: str, columns: Mapping[str, Any]
) -> None:
    connection.execute(
        sa.insert(tables.services).values(
            uuid=str(uuid.uuid4()),
            host=host,
            binary=binary,
            report_count=0,
            calls=0,
            disabled=False,
            maintenance=False,
            forced_down=False,
            last_audit={},
            created_at=utc_now(),
            **columns,
        )
    )


def _take_over_service(
    connection: sa.Connection, expected: ServiceRecord, columns: Mapping[str, Any]
) -> None:
    """Assign the services row to another agent, unless it has changed since it was read.

    Raises:
        ConflictError: the row has changed.
    """
    updated = connection.execute(
        sa.update(tables.services)
        .where(
            _services.host == expected.host,
            _services.binary == expected.binary,
            _services.agent_id == expected.incarnation.agent_id,
            _as_read(_services.epoch) == expected.epoch,
            _as_read(_services.report_count) == expected.report_count,
        )
        .values(
            **columns,
            report_count=_as_read(_services.report_count, LARGEST // 2),
            calls=_as_read(_services.calls),
            ended_epoch=sa.case((_services.ended_epoch.between(0, LARGEST), _services.ended_epoch)),
            **({"created_at": utc_now()} if "created_at" in expected.damaged else {}),
        )
    )
    if updated.rowcount != 1:
        raise ConflictError(f"host {expected.host} was taken over or reported its state meanwhile")


def _as_read(column: "sa.ColumnElement[int]", high: int = LARGEST) -> "sa.ColumnElement[int]":
    """Return a number, or 0 in place of one that is out of range, as its readers get it."""
    return sa.case((column.between(0, high), column), else_=0)


def lock_service(connection: sa.Connection, agent: AgentKey) -> datetime:
    """Lock the services row, check that it is still the agent's, and return the time.

    Raises:
        FencedError: the row is missing or another agent's.
    """
    return check_held(agent, connection.execute(select_held(agent)).one_or_none())


def select_held(agent: AgentKey) -> "sa.Select[Any]":
    """Return the query that locks an agent's services row, as `check_held` reads it."""
    return (
        sa.select(_services.agent_id, _services.epoch, _services.uuid, utc_now().label("now"))
        .where(_services.host == agent.host, _services.binary == agent.binary)
        .with_for_update(of=tables.services)
    )


def check_held(agent: AgentKey, row: Any) -> datetime:
    """Check that a row of `select_held` is still the agent's, and return its time.

    Raises:
        FencedError: the row is missing or another agent's.
    """
    check_agent(agent, *((None, None, None) if row is None else row[:3]))
    now: datetime = row.now
    return now


def check_agent(
    agent: AgentKey, agent_id: str | None, epoch: int | None, service_uuid: str | None
) -> None:
    """Check that the services row is still this agent's.

    Args:
        agent_id, epoch, service_uuid: as stored in the row, None when it does not exist.

    Raises:
        FencedError: the row is missing or another agent's.
    """
    if agent_id is None:
        raise FencedError(f"the services row of {agent.binary} on host {agent.host} was deleted")
    if (agent_id, epoch, service_uuid) != (agent.agent_id, agent.epoch, agent.service_uuid):
        raise FencedError(
            f"host {agent.host} belongs to agent {agent_id}, epoch {epoch}; "
            f"this is agent {agent.agent_id}, epoch {agent.epoch}"
        )


def set_service(
    connection: sa.Connection, host: str, binary: str, change: ServiceChange
) -> tuple[ServiceRecord, StoreEvent]:
    is_service = sa.and_(_services.host == host, _services.binary == binary)
    found = select_service().where(is_service)
    row = connection.execute(found.with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"no such service: {binary} on host {host}")
    before = codec.decode_service(row)
    if change.if_admin_version not in (None, before.admin_version):
        raise ServiceChangedError(host, binary, before.admin_state)
    columns: dict[str, Any] = {}
    if change.disabled:
        is_kept = sa.and_(_services.disabled, sa.not_(sa.func.coalesce(_is_marked(), sa.false())))
        columns |= _date("disabled", is_kept, change.disabled_by)
    elif change.disabled is not None:
        columns |= _NOT_DISABLED
    if change.disabled is not None:
        columns["disabled"] = change.disabled
        columns["disabled_reason"] = change.disabled_reason if change.disabled else None
    if change.forced_down:
        columns |= _date("forced_down", _services.forced_down, change.disabled_by)
    elif change.forced_down is not None:
        columns |= _NOT_FORCED
    if change.forced_down is not None:
        columns["forced_down"] = change.forced_down
        columns["forced_down_reason"] = change.forced_down_reason if change.forced_down else None
    if change.maintenance:
        columns |= _date("maintenance", _services.maintenance, change.disabled_by)
    elif change.maintenance is not None:
        columns |= _NOT_IN_MAINTENANCE
    if change.maintenance is not None:
        columns["maintenance"] = change.maintenance
        columns["maintenance_reason"] = change.maintenance_reason if change.maintenance else None
    if change.spare is not None:
        columns["spare"] = change.spare
    columns["updated_at"] = utc_now()
    connection.execute(
        sa.update(tables.services).where(is_service).ordered_values(*columns.items())
    )
    after = codec.decode_service(connection.execute(found).mappings().one())
    names = (
        "disabled", "disabled_reason", "maintenance", "maintenance_reason", "forced_down",
        "forced_down_reason", "spare",
    )  # fmt: skip
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in names}
    changed: dict[str, Any] = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if changed:
        if change.disabled_by:
            changed["by"] = change.disabled_by
        is_taken_out = any(pair == [False, True] for pair in map(changed.get, _TAKEN_OUT))
        if binary == COMPUTE_BINARY and is_taken_out:
            found_nodes = sum_hosts(connection, [host]).get(host)
            changed["guests"] = 0 if found_nodes is None else found_nodes.guests
        line = history.service_line(host, binary, "changed", changed)
        history.insert(connection, [line])
    places = ((host, None),) if binary == COMPUTE_BINARY else ()
    return after, StoreEvent(services=((before, after),), places=places)


_TAKEN_OUT = ("disabled", "maintenance")
"""What takes a host out of use when it is set; its guests are counted then."""


def end_agent(connection: sa.Connection, host: str, reason: str) -> None:
    """End the run of a host's agent as its last heartbeat does, and wait for claims in flight."""
    ended = connection.execute(
        sa.update(tables.services)
        .where(
            _services.host == host,
            _services.binary == COMPUTE_BINARY,
            sa.func.coalesce(_services.ended_epoch, -1) != _services.epoch,
        )
        .values(ended_epoch=_services.epoch, updated_at=utc_now())
    )
    if ended.rowcount:
        lock_nodes(connection, host)  # a claim reads the service under this lock
        line = history.service_line(host, COMPUTE_BINARY, "down", {"reason": reason})
        history.insert(connection, [line])


def resume_agent(connection: sa.Connection, host: str, agent_id: str) -> None:
    """Let the heartbeats of an agent count again whose run `end_agent` has ended."""
    resumed = connection.execute(
        sa.update(tables.services)
        .where(
            _services.host == host,
            _services.binary == COMPUTE_BINARY,
            _services.agent_id == agent_id,
            _services.ended_epoch == _services.epoch,
        )
        .values(ended_epoch=None, updated_at=utc_now())
    )
    if resumed.rowcount:
        history.insert(connection, [history.service_line(host, COMPUTE_BINARY, "up")])


def mark_service(connection: sa.Connection, agent: AgentKey, reason: str | None) -> None:
    if reason is not None:
        if not reason.startswith(AUTO_PREFIX):
            raise RequestError("reason", f"{render_value(reason)} lacks the prefix {AUTO_PREFIX!r}")
        reason = escape_text(reason[:LONG_TEXT_LENGTH])[:LONG_TEXT_LENGTH]
    is_own = _is_marked()
    columns: dict[str, Any] = {
        **(_NOT_DISABLED if reason is None else _date("disabled", _services.disabled, None)),
        "disabled": reason is not None,
        "disabled_reason": reason,
        "updated_at": utc_now(),
    }
    marked = connection.execute(
        sa.update(tables.services)
        .where(
            is_held_by(agent),
            is_own if reason is None else sa.or_(_services.disabled == sa.false(), is_own),
        )
        .ordered_values(*columns.items())
    )
    if marked.rowcount:
        pairs = {
            "disabled": [reason is None, reason is not None],
            "disabled_reason": [None, reason],
        }
        line = history.service_line(agent.host, agent.binary, "changed", pairs)
        history.insert(connection, [line])


def _is_marked() -> "sa.ColumnElement[bool]":
    """Return whether its own agent disabled a service; null where there is no reason."""
    return _services.disabled_reason.startswith(AUTO_PREFIX)


def _date(setting: str, is_kept: "sa.ColumnElement[bool]", user: str | None) -> dict[str, Any]:
    """Return the columns that say since when and by whom something is set of a service.

    They come before the setting and its reason in an UPDATE: MariaDB assigns from left to
    right, and an expression sees what was assigned before it.

    Args:
        is_kept: whether a row keeps what it has.
        user: name of a user, of any length.
    """
    at, by = f"{setting}_at", f"{setting}_by"
    name = None if user is None else sanitize_text(user)
    return {
        at: sa.case((is_kept, _services[at]), else_=utc_now()),
        by: sa.case((is_kept, _services[by]), else_=name),
    }


def is_held_by(agent: Any) -> "sa.ColumnElement[bool]":
    """Return whether a row is that of an `AgentKey`, or of parameters with its names."""
    return sa.and_(
        _services.host == agent.host,
        _services.binary == agent.binary,
        _services.uuid == agent.service_uuid,
        _services.agent_id == agent.agent_id,
        _services.epoch == agent.epoch,
        _services.report_count >= agent.report_count,
    )
