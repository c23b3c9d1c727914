"""Schema of the key ``migration`` of a claim request."""

from nodetracker.model.migration import MigrationType
from nodetracker.schemas.fields import UUID, one_of, record

MIGRATION = record(
    {"type": one_of(MigrationType), "source_claim": UUID}, required=["type", "source_claim"]
)
