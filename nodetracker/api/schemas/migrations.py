"""Schemas of migrations; that of a request is `CLAIM_REQUEST` of `accounting.schemas`."""

from nodetracker.accounting.schemas import UUID, list_of, one_of, record
from nodetracker.api.paging import LINKS, PAGE
from nodetracker.api.schemas.fields import ANY_TEXT, HIDEABLE, TIME, answer, answered_list
from nodetracker.model.claim import OPEN, MigrationStatus, MigrationType

LIST_QUERY = record(
    {
        "host": {"description": "the host of either side", "type": "string"},
        "status": list_of(one_of(MigrationStatus), "statuses; may be repeated"),
        "workload": UUID,
        **PAGE,
    }
)

UPDATE = record(
    {
        "status": {
            "description": f"one of {', '.join(OPEN)}",
            "type": "string",
            "enum": [status.value for status in OPEN],
        }
    },
    required=["status"],
)

MIGRATION = answer(
    {
        "uuid": ANY_TEXT,
        "workload_uuid": ANY_TEXT,
        "migration_type": one_of(MigrationType),
        "status": one_of(MigrationStatus),
        "source_host": HIDEABLE,
        "source_node": HIDEABLE,
        "dest_host": HIDEABLE,
        "dest_node": HIDEABLE,
        "source_claim": ANY_TEXT,
        "dest_claim": ANY_TEXT,
        "created_at": TIME,
    }
)

MIGRATIONS = answered_list("migrations", MIGRATION, LINKS)
