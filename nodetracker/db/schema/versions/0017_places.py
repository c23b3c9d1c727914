"""Add the places of nodes, in whose order they are found for claims."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLE, _INDEX = "compute_nodes", "ix_compute_nodes_screening"
_AMOUNTS = [
    "admission_flags", "memory_mb_free", "vcpu_milli_free", "disk_mb_free", "vcpu_milli_claimable",
    "pcpus_claimable", "memory_mb_claimable", "instance_memory_mb_claimable", "disk_mb_claimable",
    "generation", "limits_generation",
]  # fmt: skip
_NAMES = ["host", "hypervisor_hostname"]
_WITH_PLACE = ["place", "id", *_AMOUNTS, *_NAMES]
_WITHOUT_PLACE = [*_AMOUNTS, "id", *_NAMES]

# On MariaDB and MySQL, at once: statements of running programs name the index.
_REPLACE_WITH_PLACE = """
    ALTER TABLE compute_nodes DROP INDEX ix_compute_nodes_screening, ADD INDEX
    ix_compute_nodes_screening (place, id, admission_flags, memory_mb_free, vcpu_milli_free,
    disk_mb_free, vcpu_milli_claimable, pcpus_claimable, memory_mb_claimable,
    instance_memory_mb_claimable, disk_mb_claimable, generation, limits_generation, host,
    hypervisor_hostname)
"""
_REPLACE_WITHOUT_PLACE = """
    ALTER TABLE compute_nodes DROP INDEX ix_compute_nodes_screening, ADD INDEX
    ix_compute_nodes_screening (admission_flags, memory_mb_free, vcpu_milli_free, disk_mb_free,
    vcpu_milli_claimable, pcpus_claimable, memory_mb_claimable, instance_memory_mb_claimable,
    disk_mb_claimable, generation, limits_generation, id, host, hypervisor_hostname)
"""


def upgrade() -> None:
    """Add the column, fill it from the rows, and let the index start with it."""
    column = sa.Column("place", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column(_TABLE, column)
    rows = sa.table(_TABLE, *(sa.column(name) for name in ("id", "uuid", "place")))
    query = sa.select(rows.c.id, rows.c.uuid).where(rows.c.place == 0)
    found = op.get_bind().execute(query).all()
    if found:
        op.get_bind().execute(
            rows.update()
            .where(rows.c.id == sa.bindparam("p_id"))
            .values(place=sa.bindparam("p_place")),
            [{"p_id": row.id, "p_place": _place_of(row.uuid)} for row in found],
        )
    _replace_index(_WITH_PLACE, _REPLACE_WITH_PLACE)


def downgrade() -> None:
    """Restore the index and remove the column."""
    _replace_index(_WITHOUT_PLACE, _REPLACE_WITHOUT_PLACE)
    op.drop_column(_TABLE, "place")


def _place_of(uuid: str) -> int:
    return int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:4]) % 2**31


def _replace_index(columns: list[str], statement: str) -> None:
    """Replace the index, by a statement of its own on MariaDB and MySQL."""
    bind = op.get_bind()
    found = {index["name"]: index["column_names"] for index in sa.inspect(bind).get_indexes(_TABLE)}
    if bind.dialect.name in ("mysql", "mariadb") and found.get(_INDEX) not in (None, columns):
        op.execute(statement)
    else:
        op.create_index(_INDEX, _TABLE, columns)
