"""Store ``join_tokens`` and ``agent_credentials``: who may call conductors as which host."""

from collections.abc import Collection
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from nodetracker.db import host_warnings, services
from nodetracker.db.codec import decode_row
from nodetracker.db.connection.dialect import read_time, utc_now
from nodetracker.db.schema import tables
from nodetracker.model.change import StoreEvent
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, Credential, JoinToken
from nodetracker.model.errors import AuthenticationError, ForbiddenError, NotFoundError
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind

_tokens = tables.join_tokens.c
_credentials = tables.agent_credentials.c
_services = tables.services.c


def create_join_token(
    connection: sa.Connection,
    token_hash: str,
    host: str | None,
    uses: int,
    lifetime: timedelta,
    created_by: str,
) -> JoinToken:
    now = read_time(connection)
    connection.execute(sa.delete(tables.join_tokens).where(_tokens.expires_at <= now))
    token = JoinToken(0, host, uses, now, now + lifetime, created_by)
    values = {item.name: getattr(token, item.name) for item in fields(token)[1:]}
    inserted = connection.execute(
        sa.insert(tables.join_tokens).values(token_hash=token_hash, **values)
    ).inserted_primary_key
    assert inserted is not None
    return replace(token, id=inserted[0])


def join_agent(
    connection: sa.Connection,
    token_hash: str,
    host: str,
    agent_id: str,
    secret_hash: str,
    address: str,
) -> Credential:
    existing = _lock(connection, _credentials.host == host)
    if existing is not None and existing.secret_hash == secret_hash:
        return _decode(existing)  # the answer was lost
    token = connection.execute(
        sa.select(tables.join_tokens, utc_now().label("now"))
        .where(_tokens.token_hash == token_hash)
        .with_for_update()
    ).one_or_none()
    if token is None or token.expires_at <= token.now or token.uses < 1:
        raise AuthenticationError(
            "the join token is unknown, has expired or is used up; create another by "
            "nodetracker-manage agent token create"
        )
    if token.host is not None and token.host != host:
        raise ForbiddenError(f"the join token is for host {token.host}, not for {host}")
    _check_agent_and_name(connection, host, agent_id, existing, token.host is None)
    connection.execute(
        sa.update(tables.join_tokens).where(_tokens.id == token.id).values(uses=_tokens.uses - 1)
    )
    values = {
        "agent_id": agent_id,
        "secret_hash": secret_hash,
        "next_hash": None,
        "previous_hash": None,
        "issued_at": token.now,
        "used_at": None,
        "address": address,
        "revoked_at": None,
    }
    if existing is None:
        services.check_new_name(connection, host, sa.select(_credentials.host))
        connection.execute(sa.insert(tables.agent_credentials).values(host=host, **values))
    else:
        connection.execute(
            sa.update(tables.agent_credentials)
            .where(_credentials.id == existing.id)
            .values(**values)
        )
        if existing.revoked_at is not None:
            services.resume_agent(connection, host, agent_id)
    return Credential(host, agent_id, token.now, address=address)


def _check_agent_and_name(
    connection: sa.Connection,
    host: str,
    agent_id: str,
    existing: "sa.Row[Any] | None",
    is_for_any: bool,
) -> None:
    """Check that an agent is not another host's, and that a token for any host may join this one.

    Raises:
        ForbiddenError: the agent is another host's, which could not start again; or the token is
            for any host and another agent had the name, or it has or had a credential. The id of
            the other agent, by which it could join, is not named.
    """
    agents = sa.select(_services.host, _services.agent_id).where(
        _services.binary == COMPUTE_BINARY,
        sa.or_(_services.host == host, _services.agent_id == agent_id),
    )
    hosts = sa.select(_credentials.host, _credentials.agent_id).where(
        _credentials.agent_id == agent_id
    )
    known = {tuple(row) for row in connection.execute(agents.union(hosts))} - {(host, agent_id)}
    if others := sorted(name for name, _ in known if name != host):
        named = "another host" if is_for_any else f"host {others[0]}"
        raise ForbiddenError(
            f"agent {agent_id} is that of {named}: if that host was renamed, run "
            f"nodetracker-manage host rename OLD {host}; if this machine is a copy of it, "
            "delete compute_id in its state directory"
        )
    if not is_for_any:
        return
    if known:
        problem = f"another agent holds it, and this is agent {agent_id}"
    elif existing is not None:
        problem = "it has a credential already, or had one"
    else:
        return
    raise ForbiddenError(
        f"host {host} cannot join by a token for any host: {problem}; if this machine is to have "
        f"the name, create a token by nodetracker-manage agent token create --host {host}"
    )


def find_credential(connection: sa.Connection, secret_hash: str, address: str) -> Credential | None:
    """Return a valid credential, None if its use is to be stored by `use_credential`.

    Raises:
        AuthenticationError: it is unknown.
    """
    row = _find(connection, secret_hash)
    if row is None:
        raise AuthenticationError("unknown credential")
    is_due = (
        row.secret_hash != secret_hash
        or row.used_at is None
        or row.address != address
        or row.now - row.used_at > USE_INTERVAL
    )
    return None if is_due else _decode(row)


def _select() -> "sa.Select[Any]":
    return sa.select(tables.agent_credentials, utc_now().label("now"))


_BY_SECRET = _select().where(
    _credentials.id.in_(
        sa.select(
            sa.union_all(
                *(
                    sa.select(_credentials.id).where(_credentials[name] == sa.bindparam("secret"))
                    for name in ("secret_hash", "next_hash", "previous_hash")
                )
            )
            .subquery()
            .c.id
        )
    )
)
"""Built once, as each call of an agent needs it."""


_HOSTS = sa.union_all(
    *(
        sa.select(_credentials[name].label("secret"), _credentials.host).where(
            _credentials[name].in_(sa.bindparam("secrets", expanding=True))
        )
        for name in ("secret_hash", "next_hash", "previous_hash")
    )
)
_HOSTS_AT_ONCE = 500


def find_hosts(connection: sa.Connection, secret_hashes: Collection[str]) -> dict[str, str]:
    wanted = list(secret_hashes)
    found: dict[str, str] = {}
    for start in range(0, len(wanted), _HOSTS_AT_ONCE):
        part = {"secrets": wanted[start : start + _HOSTS_AT_ONCE]}
        found |= {row.secret: row.host for row in connection.execute(_HOSTS, part)}
    return found


def _find(connection: sa.Connection, secret_hash: str) -> "sa.Row[Any] | None":
    """Return the row that has, will have or had a secret; three keys, so three searches."""
    return connection.execute(_BY_SECRET, {"secret": secret_hash}).first()


def _lock(connection: sa.Connection, condition: "sa.ColumnElement[bool]") -> "sa.Row[Any] | None":
    return connection.execute(_select().where(condition).with_for_update()).one_or_none()


def use_credential(
    connection: sa.Connection, secret_hash: str, address: str
) -> tuple[Credential | str, StoreEvent]:
    """Record a use under the row's lock; return the credential, or why it is refused."""
    found = _find(connection, secret_hash)
    row = None if found is None else _lock(connection, _credentials.id == found.id)
    if row is None or secret_hash not in (row.secret_hash, row.next_hash, row.previous_hash):
        return "unknown credential", StoreEvent()
    used = {"used_at": row.now, "address": address}
    if secret_hash == row.secret_hash:
        return _update(connection, row, **used), StoreEvent()
    if secret_hash == row.next_hash:
        used |= {"secret_hash": secret_hash, "next_hash": None, "issued_at": row.now}
        return _update(connection, row, **used, previous_hash=row.secret_hash), StoreEvent()
    message = (
        f"a credential that was replaced was used from {address or 'an unknown address'}; if "
        "nobody restored this host's state directory, it was copied"
    )
    warning = HostWarning(WarningKind.CREDENTIAL_REUSED, WHOLE_HOST, NO_ITEM, message)
    _, event = host_warnings.raise_warning(connection, row.host, warning)
    return "the credential was replaced by a newer one", event


def renew_credential(connection: sa.Connection, host: str, secret_hash: str) -> Credential:
    row = _lock(connection, _credentials.host == host)
    if row is None or row.secret_hash is None:
        raise NotFoundError(f"host {host} has no valid credential")
    if secret_hash != row.secret_hash:
        _update(connection, row, next_hash=secret_hash)
    return _decode(row)


def revoke_credential(connection: sa.Connection, host: str) -> Credential:
    row = _lock(connection, _credentials.host == host)
    if row is None:
        raise NotFoundError(f"host {host} has no credential")
    if row.revoked_at is not None:
        return _decode(row)
    services.end_agent(connection, host, "its credential was revoked")
    ended = {"secret_hash": None, "next_hash": None, "previous_hash": None}
    return _update(connection, row, **ended, revoked_at=row.now)


def list_credentials(connection: sa.Connection) -> list[Credential]:
    is_agent = sa.and_(
        _services.host == _credentials.host,
        _services.binary == COMPUTE_BINARY,
        _services.agent_id == _credentials.agent_id,
    )
    query = (
        _select()
        .add_columns(_services.last_seen_up, _services.last_audit)
        .outerjoin_from(tables.agent_credentials, tables.services, is_agent)
        .order_by(_credentials.host)
    )
    return [_decode(row, used_at=_find_last_use(row)) for row in connection.execute(query)]


def _find_last_use(row: "sa.Row[Any]") -> datetime | None:
    """Return when a credential was last used: as is stored, or by the agent's last heartbeat."""
    seen: datetime | None = row.last_seen_up
    is_use = seen is not None and seen >= row.issued_at and row.last_audit.get("by_conductor")
    times = (row.used_at, seen if is_use else None)
    return max((time for time in times if time is not None), default=None)


def _update(connection: sa.Connection, row: "sa.Row[Any]", **values: Any) -> Credential:
    connection.execute(
        sa.update(tables.agent_credentials).where(_credentials.id == row.id).values(**values)
    )
    return _decode(row, **values)


def _decode(row: "sa.Row[Any]", **changed: Any) -> Credential:
    values = {**row._mapping, **changed}
    return decode_row(Credential, values, is_due=values["now"] - values["issued_at"] > RENEWAL_AGE)
