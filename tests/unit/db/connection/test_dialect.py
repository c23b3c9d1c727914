from types import SimpleNamespace

import pytest

from nodetracker.db.connection.dialect import can_skip_locked


@pytest.mark.parametrize(
    ("name", "is_mariadb", "version", "expected"),
    [
        ("sqlite", None, (3, 40), False),
        ("postgresql", None, (12, 0), True),
        ("mysql", False, (5, 7, 44), False),
        ("mysql", False, (8, 0, 1), True),
        ("mysql", True, (10, 5, 28), False),
        ("mariadb", True, (10, 6, 0), True),
        ("mysql", True, (11, 4, 2), True),
    ],
)
def test_locked_rows_are_skipped_where_the_server_can(name, is_mariadb, version, expected):
    dialect = SimpleNamespace(name=name, is_mariadb=is_mariadb, server_version_info=version)
    assert can_skip_locked(SimpleNamespace(dialect=dialect)) is expected
