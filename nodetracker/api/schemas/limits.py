"""Schema of the query of ``limits``."""

from nodetracker.api.schemas.fields import ANY_TEXT
from nodetracker.schemas.fields import record

QUERY = record({"reserved": ANY_TEXT, "tenant_id": ANY_TEXT})
