"""Add the largest amounts that claims can take of a node, and a narrower index of candidates."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_INDEX = "ix_compute_nodes_candidates"
_CLAIMABLE = {
    "vcpu_milli_claimable": ("vcpu_milli_limit - round(cpu_used * 1000e0)", "vcpus * 1000e0"),
    "pcpus_claimable": ("(pcpus - pcpus_used) * 1e0", "pcpus * 1e0"),
    "memory_mb_claimable": ("(memory_mb_limit - memory_mb_used) * 1e0", "memory_mb * 1e0"),
    "instance_memory_mb_claimable": (
        "(memory_mb_limit - memory_mb_used - overhead_mb) * 1e0",
        "memory_mb * 1e0",
    ),
    "disk_mb_claimable": ("disk_mb_limit - round(disk_used * 1024e0)", "local_gb * 1024e0"),
}
_FREE = ["memory_mb_free", "vcpu_milli_free", "disk_mb_free"]
_NAMES = ["id", "host", "hypervisor_hostname"]
_OLD_COLUMNS = [
    "admission_flags", *_FREE, "vcpus", "memory_mb", "local_gb", "overhead_mb", "pcpus",
    "pcpus_used", "cpu_used", "memory_mb_used", "disk_used", *_NAMES,
]  # fmt: skip


def upgrade() -> None:
    """Add the columns, which the database computes, and replace the index by one over them."""
    # SQLite cannot add stored columns to a table.
    is_stored = None if op.get_bind().dialect.name == "sqlite" else True
    for name, (free, total) in _CLAIMABLE.items():
        smaller = f"WHEN {free} < {total} THEN {free} ELSE {total}"
        amount = f"CASE WHEN (admission_flags & 1) <> 0 THEN 9007199254740992e0 {smaller} END"
        computed = sa.Computed(amount, persisted=is_stored)
        op.add_column("compute_nodes", sa.Column(name, sa.Double(), computed))
    op.create_index(_INDEX, "compute_nodes", ["admission_flags", *_FREE, *_CLAIMABLE, *_NAMES])


def downgrade() -> None:
    """Replace the index by the former one and remove the columns."""
    op.create_index(_INDEX, "compute_nodes", _OLD_COLUMNS)
    for name in reversed(_CLAIMABLE):
        op.drop_column("compute_nodes", name)
