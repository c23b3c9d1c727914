"""Record with a node's limits of which generation they are, so that stale ones are known."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLE, _COLUMN, _INDEX = "compute_nodes", "limits_generation", "ix_compute_nodes_screening"
_OLD_INDEX = "ix_compute_nodes_candidates"
_LIMITS = ("vcpu_milli_limit", "memory_mb_limit", "disk_mb_limit", "admission_flags")
_AMOUNTS = [
    "admission_flags", "memory_mb_free", "vcpu_milli_free", "disk_mb_free", "vcpu_milli_claimable",
    "pcpus_claimable", "memory_mb_claimable", "instance_memory_mb_claimable", "disk_mb_claimable",
]  # fmt: skip
_NAMES = ["id", "host", "hypervisor_hostname"]


def upgrade() -> None:
    """Add the column, which rows of earlier versions lack, and an index that has it.

    The former index stays for earlier versions, whose statements name it.
    """
    column = sa.Column(_COLUMN, sa.BigInteger(), nullable=False, server_default="0")
    op.add_column(_TABLE, column)
    rows = sa.table(_TABLE, *(sa.column(name) for name in ("generation", _COLUMN, *_LIMITS)))
    has_limits = sa.or_(*(rows.c[name] != 0 for name in _LIMITS))
    op.execute(
        rows.update().where(rows.c[_COLUMN] == 0, has_limits).values({_COLUMN: rows.c.generation})
    )
    op.create_index(_INDEX, _TABLE, [*_AMOUNTS, "generation", _COLUMN, *_NAMES])


def contract() -> None:
    """Remove the former index."""
    op.drop_index(_OLD_INDEX, _TABLE)


def downgrade() -> None:
    """Restore the former index, and remove what was added."""
    op.create_index(_OLD_INDEX, _TABLE, [*_AMOUNTS, *_NAMES])
    op.drop_index(_INDEX, _TABLE)
    op.drop_column(_TABLE, _COLUMN)
