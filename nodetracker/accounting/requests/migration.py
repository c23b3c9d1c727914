"""Schema of the key ``migration`` of a claim request."""

from nodetracker.accounting.requests.fields import UUID, one_of, record
from nodetracker.model.claim import MigrationType

MIGRATION = record(
    {"type": one_of(MigrationType), "source_claim": UUID}, required=["type", "source_claim"]
)
