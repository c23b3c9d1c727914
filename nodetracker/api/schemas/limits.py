"""Schema of the query of ``limits``."""

from nodetracker.accounting.schemas import record
from nodetracker.api.schemas.fields import ANY_TEXT

QUERY = record({"reserved": ANY_TEXT, "tenant_id": ANY_TEXT})
