"""Select services by their heartbeats."""

import sqlalchemy as sa

from nodetracker.db import codec
from nodetracker.db.connection.dialect import milliseconds_ahead
from nodetracker.db.schema import tables
from nodetracker.model.fleet import LivenessFilter
from nodetracker.model.service import COMPUTE_BINARY, ServiceRecord

_services = tables.services.c


def is_live(liveness: LivenessFilter) -> "sa.ColumnElement[bool]":
    """Return the condition of `accounting.liveness.is_service_up`; no service is not up."""
    last = sa.func.coalesce(_services.last_seen_up, _services.created_at)
    oldest = -1000 * liveness.service_down_time
    is_up = sa.and_(
        _services.id.is_not(None),
        _services.forced_down == sa.false(),
        sa.or_(_services.ended_epoch.is_(None), _services.ended_epoch != _services.epoch),
        milliseconds_ahead(last) >= oldest,
    )
    # In a CASE, unknown is not true, so that the negation selects the rest.
    return sa.case((is_up, 1), else_=0) == int(liveness.is_up)


def list_outage_services(
    connection: sa.Connection, service_down_time: int, host: str | None
) -> list[ServiceRecord]:
    """See `Store.list_outage_services`."""
    is_agent = _services.binary == COMPUTE_BINARY
    wanted = is_live(LivenessFilter(False, service_down_time))
    if host is not None:
        wanted = sa.and_(wanted, _services.host == host)
    query = sa.select(tables.services).where(sa.or_(sa.not_(is_agent), wanted))
    records = [codec.decode_service(row) for row in connection.execute(query).mappings()]
    return sorted(records, key=lambda record: (record.host, record.binary))
