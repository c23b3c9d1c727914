"""Routes of nodetracker's own API for nodes, hosts and what is on them."""

from nodetracker.api.handlers.own import nodes
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import nodes as nodes_schemas

_SHOW_NODE = "nodetracker:nodes:show"

_NODES: tuple[Route, ...] = (
    route(
        "/v1/nodes",
        GET=Operation(
            nodes.list_nodes,
            "nodetracker:nodes:list",
            query=nodes_schemas.LIST_QUERY,
            answers={200: nodes_schemas.NODES},
        ),
    ),
    route(
        "/v1/nodes/{uuid}",
        GET=Operation(nodes.show_node, _SHOW_NODE, answers={200: nodes_schemas.NODE}),
        DELETE=Operation(nodes.delete_node, "nodetracker:nodes:delete", answers={204: None}),
    ),
    route(
        "/v1/nodes/{uuid}/audit",
        POST=Operation(
            nodes.audit_node,
            "nodetracker:nodes:audit",
            answers={200: nodes_schemas.AUDIT, 202: nodes_schemas.AUDIT_RUNNING},
        ),
    ),
    route(
        "/v1/nodes/{uuid}/diff",
        GET=Operation(nodes.show_diff, _SHOW_NODE, answers={200: nodes_schemas.DIFF}),
    ),
)

FLEET: tuple[Route, ...] = _NODES
