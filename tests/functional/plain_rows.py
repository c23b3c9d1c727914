"""Read the ledger by plain SQL, and compare it with what it should have.

Usage is that of the judge, which shares no code with nodetracker.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from tests.chaos.judge import ACTIVE, Usage

_TABLES = ("compute_nodes", "claims", "guests")


def read_rows(engine: sa.Engine) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of the ledger's tables as they were at one moment."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        return {
            name: [
                dict(row) for row in connection.execute(sa.text(f"SELECT * FROM {name}")).mappings()
            ]
            for name in _TABLES
        }


def check_usage(rows: Mapping[str, list[Mapping[str, Any]]]) -> None:
    """Assert that each claim exists once, and that each node's usage is its claims' and guests'."""
    uuids = [claim["uuid"] for claim in rows["claims"]]
    assert len(set(uuids)) == len(uuids)
    for node in rows["compute_nodes"]:
        claims, guests = (
            [row for row in rows[table] if row["compute_node_id"] == node["id"]]
            for table in ("claims", "guests")
        )
        usage = Usage(node, [claim for claim in claims if claim["state"] in ACTIVE], guests)
        wanted = usage.columns()
        assert {name: node[name] for name in wanted} == wanted, node["hypervisor_hostname"]
