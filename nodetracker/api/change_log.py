"""Log each change that is requested: who, what and the outcome."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import falcon

from nodetracker.api.context import RequestContext
from nodetracker.api.errors import explain

LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Change:
    """A change that is being carried out.

    Attributes:
        status: of its answer, None until it is known.
    """

    status: int | None = None


@contextlib.contextmanager
def logged_change(
    request: falcon.Request, context: RequestContext, rule: str | None
) -> Iterator[Change]:
    """Log one line at the end of a change, which has no token, password or body."""
    change = Change()
    try:
        yield change
    except Exception as error:
        change.status = explain(error).status.value
        raise
    finally:
        identity = context.identity
        LOG.info(
            "Change %s: user %s, project %s, rule %s, target %s %s from %s: %s",
            context.request_id or "-",
            "-" if identity is None else identity.user_id,
            "-" if identity is None or identity.project_id is None else identity.project_id,
            rule,
            request.method,
            quote(request.path),  # without its query, and one line
            context.address,
            change.status,
        )
