"""Add to nodes the free memory outside huge pages, and let the index of candidates have it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_TABLE, _INDEX = "compute_nodes", "ix_compute_nodes_screening"
_FORMER_AMOUNT = "instance_memory_mb_claimable"
_COLUMNS = [
    "place", "id", "admission_flags", "memory_mb_free", "ordinary_mb_free", "vcpu_milli_free",
    "disk_mb_free", "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable",
    "overhead_mb", "disk_mb_claimable", "generation", "limits_generation", "host",
    "hypervisor_hostname",
]  # fmt: skip
_FORMER_COLUMNS = [
    "place", "id", "admission_flags", "memory_mb_free", "vcpu_milli_free", "disk_mb_free",
    "vcpu_milli_claimable", "pcpus_claimable", "memory_mb_claimable", _FORMER_AMOUNT,
    "disk_mb_claimable", "generation", "limits_generation", "host", "hypervisor_hostname",
]  # fmt: skip


def upgrade() -> None:
    """Add the columns, of which existing rows know nothing, and an index that has them.

    It has the overhead as well, by which instances lack more than containers: the column that
    was of theirs alone stays for earlier versions.
    """
    op.add_column(_TABLE, sa.Column("huge_mb_unused", sa.BigInteger(), nullable=True))
    _add_computed("ordinary_mb_free", "(memory_mb_limit - memory_mb_used - huge_mb_unused) * 1e0")
    _replace_index(_COLUMNS)


def contract() -> None:
    """Remove the column that only earlier versions read."""
    op.drop_column(_TABLE, _FORMER_AMOUNT)


def downgrade() -> None:
    """Restore the column and the index, and remove what was added."""
    free = "(memory_mb_limit - memory_mb_used - overhead_mb) * 1e0"
    smaller = f"WHEN {free} < memory_mb * 1e0 THEN {free} ELSE memory_mb * 1e0"
    _add_computed(
        _FORMER_AMOUNT,
        f"CASE WHEN (admission_flags & 1) <> 0 THEN 9007199254740992e0 {smaller} END",
    )
    _replace_index(_FORMER_COLUMNS)
    op.drop_column(_TABLE, "ordinary_mb_free")
    op.drop_column(_TABLE, "huge_mb_unused")


def _add_computed(name: str, expression: str) -> None:
    """Add an amount that the database computes; SQLite cannot add stored ones to a table."""
    is_stored = None if op.get_bind().dialect.name == "sqlite" else True
    computed = sa.Computed(expression, persisted=is_stored)
    op.add_column(_TABLE, sa.Column(name, sa.Double(), computed))


def _replace_index(columns: list[str]) -> None:
    """Replace the index, on MariaDB and MySQL at once: statements of running programs name it."""
    bind = op.get_bind()
    found = {index["name"]: index["column_names"] for index in sa.inspect(bind).get_indexes(_TABLE)}
    if bind.dialect.name in ("mysql", "mariadb") and found.get(_INDEX) not in (None, columns):
        op.execute(
            f"ALTER TABLE {_TABLE} DROP INDEX {_INDEX}, ADD INDEX {_INDEX} ({', '.join(columns)})"
        )
    else:
        op.create_index(_INDEX, _TABLE, columns)
