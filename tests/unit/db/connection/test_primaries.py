"""The log says which servers of a database replace each other."""

import logging

import pytest
import sqlalchemy as sa

from nodetracker.db.connection.primaries import Primaries, Server


@pytest.fixture
def primaries(caplog: pytest.LogCaptureFixture) -> Primaries:
    caplog.set_level(logging.INFO)
    return Primaries(sa.make_url("postgresql+psycopg://nt:s3cret@db/nt"))


def test_a_promotion_is_logged_once(primaries: Primaries, caplog: pytest.LogCaptureFixture) -> None:
    former, newer = Server("c1", "db1:5432", 1), Server("c1", "db2:5432", 2)
    for server in (former, newer, newer, Server("c1", "db3:5432")):
        primaries.note(server)
    assert caplog.messages == [
        "postgresql database nt at db: db2:5432 (timeline 2) was promoted after "
        "db1:5432 (timeline 1)"
    ]
    assert (primaries.find_newer(former), primaries.find_newer(newer)) == (newer, None)


def test_a_server_without_a_timeline_is_never_older(primaries: Primaries) -> None:
    primaries.note(Server("c1", "db1:5432", 2))
    assert primaries.find_newer(Server("c1", "db2:5432")) is None


def test_another_server_is_logged_when_it_is_first_used_and_is_not_refused(
    primaries: Primaries, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = Server("c1", "db1:5432", 3), Server("c2", "db1:5432", 1)
    for server in (first, other, first, other):
        primaries.note(server)
    assert caplog.messages == [
        "postgresql database nt at db: this is server c2, not c1 as before; it has replaced "
        "that, or a backup was restored to it"
    ]
    assert primaries.find_newer(other) is None
