"""Add indexes by which the migrations of a host are listed in order, by their current hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TABLE = "migrations"
_INDEXES = {end: [f"{end}_host", "status", "id"] for end in ("source", "dest")}


def _name_of(columns: list[str]) -> str:
    return "_".join(["ix", _TABLE, *columns])


def upgrade() -> None:
    """Name the hosts that were renamed, as renaming does from now on; replace the indexes."""
    names = [f"{end}_{what}" for end in _INDEXES for what in ("host", "node", "claim")]
    rows = sa.table(_TABLE, *(sa.column(name) for name in names))
    claims = sa.table("claims", sa.column("uuid"), sa.column("compute_node_id"))
    nodes = sa.table(
        "compute_nodes", *(sa.column(name) for name in ("id", "host", "hypervisor_hostname"))
    )
    for end, columns in _INDEXES.items():
        of_claim = (
            claims.c.uuid == rows.c[f"{end}_claim"],
            nodes.c.id == claims.c.compute_node_id,
        )
        current = {
            name: sa.select(nodes.c[column]).where(*of_claim).scalar_subquery()
            for name, column in ((f"{end}_host", "host"), (f"{end}_node", "hypervisor_hostname"))
        }
        is_renamed = sa.exists().where(*of_claim, nodes.c.host != rows.c[f"{end}_host"])
        op.execute(rows.update().where(is_renamed).values(current))
        op.create_index(_name_of(columns), _TABLE, columns)
        op.drop_index(f"ix_{_TABLE}_{end}_host", _TABLE)


def downgrade() -> None:
    """Restore the former indexes; the names stay, as earlier versions read those of nodes."""
    for end, columns in _INDEXES.items():
        op.create_index(f"ix_{_TABLE}_{end}_host", _TABLE, [f"{end}_host"])
        op.drop_index(_name_of(columns), _TABLE)
