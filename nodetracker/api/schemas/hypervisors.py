"""Schemas of Nova's hypervisors."""

from nodetracker.accounting.schemas import record
from nodetracker.api.paging import PAGE
from nodetracker.api.schemas.fields import ANY_TEXT, BOOLEAN

PAGED_QUERY = record(PAGE)

SHOW_QUERY = record({"with_servers": BOOLEAN})

LIST_QUERY = record({**PAGE, "hypervisor_hostname_pattern": ANY_TEXT, "with_servers": BOOLEAN})
