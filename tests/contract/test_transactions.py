"""Transactions as a server sees them."""

import pytest
import sqlalchemy as sa

from nodetracker.db.connection import sessions
from nodetracker.db.store import SqlStore
from nodetracker.model.errors import ConflictError

pytestmark = pytest.mark.parametrize("stores", ["mariadb"], indirect=True)


def test_each_transaction_is_ended_once(store: SqlStore) -> None:
    """The pool does not end those again that were written or failed."""
    ends = sa.text(
        "SELECT variable_name, variable_value FROM information_schema.session_status"
        " WHERE variable_name IN ('COM_COMMIT', 'COM_ROLLBACK')"
    )

    def fail(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT 1"))
        raise ConflictError("no")

    def count() -> list[int]:
        """On the pool's one connection."""
        return [int(row[1]) for row in sorted(store._database.read(lambda c: c.execute(ends)))]

    commits, rollbacks = count()
    store._database.write(lambda c: c.execute(sa.text("SELECT 1")).all())
    assert count() == [commits + 1, rollbacks + 1]
    with pytest.raises(ConflictError):
        store._database.write(fail)
    assert count()[0] == commits + 1
    with store.engine.connect() as connection:
        assert not connection.in_transaction()


def test_a_connection_is_checked_only_after_a_pause(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping is a round trip before each transaction otherwise."""
    pings = sa.text(
        "SELECT variable_value FROM information_schema.session_status"
        " WHERE variable_name = 'COM_ADMIN_COMMANDS'"
    )

    def count() -> int:
        """On the pool's one connection."""
        return int(store._database.read(lambda c: c.execute(pings).scalar_one()))

    monkeypatch.setattr(sessions, "TRUSTED_SECONDS", 3600.0)
    before = count()
    assert count() == before
    monkeypatch.setattr(sessions, "TRUSTED_SECONDS", 0.0)
    assert count() == before + 1


def test_a_connection_that_was_closed_meanwhile_is_replaced(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TRUSTED_SECONDS", 0.0)

    def find() -> int:
        """Return the server's id of the pool's one connection."""
        query = sa.text("SELECT connection_id()")
        return int(store._database.read(lambda c: c.execute(query).scalar_one()))

    first = find()
    with sa.create_engine(store.engine.url).connect() as other:
        other.execute(sa.text("KILL :id"), {"id": first})
    assert find() != first
