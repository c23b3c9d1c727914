"""The route table: every path, and for each method its handler, rule, schemas and answers.

Query and body are checked and the rule is enforced before the handler is called,
see `endpoint`. A route is found by its path, whatever its place in the table.
"""

from nodetracker.api.call import Answer, Call
from nodetracker.api.handlers import health, metrics
from nodetracker.api.openapi import build_document
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.routes.nova import NOVA
from nodetracker.api.routes.own import OWN
from nodetracker.api.routes.zun import ZUN


def show_openapi(call: Call) -> Answer:
    """Describe this API."""
    return Answer(build_document(ROUTES, call.backend.version, call.url.link("/")))


_DOCUMENT = route(
    "/v1/openapi.json",
    GET=Operation(show_openapi, rule=None, answers={200: {"type": "object"}}),
)

_HEALTH = route("/health", GET=Operation(health.show_health, rule=None, knows_caller=True))
_METRICS_RULE = "nodetracker:metrics:show"


def list_routes(open_metrics: bool = False) -> tuple[Route, ...]:
    """Return all routes.

    Args:
        open_metrics: the metrics need no credentials.
    """
    rule = None if open_metrics else _METRICS_RULE
    page = Operation(metrics.show_metrics, rule, answers={200: {"type": "string"}})
    return (*NOVA, *ZUN, *OWN, _DOCUMENT, _HEALTH, route("/metrics", GET=page))


ROUTES = list_routes()
