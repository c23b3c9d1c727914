"""Transactions as a server sees them."""

import pytest
import sqlalchemy as sa

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
