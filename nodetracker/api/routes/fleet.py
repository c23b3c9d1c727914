"""Routes of nodetracker's own API for nodes, hosts and what is on them."""

from nodetracker.accounting.schemas import Schema
from nodetracker.api.call import Handler
from nodetracker.api.handlers.own import (
    claims,
    devices,
    history,
    hosts,
    nodes,
    usages,
    warnings,
    workloads,
)
from nodetracker.api.route import Operation, Route, route
from nodetracker.api.schemas import claims as claims_schemas
from nodetracker.api.schemas import devices as devices_schemas
from nodetracker.api.schemas import history as history_schemas
from nodetracker.api.schemas import hosts as hosts_schemas
from nodetracker.api.schemas import nodes as nodes_schemas
from nodetracker.api.schemas import usages as usages_schemas
from nodetracker.api.schemas import warnings as warnings_schemas
from nodetracker.api.schemas import workloads as workloads_schemas

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
        "/v1/nodes/{uuid}/actions",
        GET=Operation(nodes.list_node_actions, _SHOW_NODE, answers={200: nodes_schemas.ACTIONS}),
    ),
    route(
        "/v1/nodes/{uuid}/description",
        GET=Operation(nodes.describe_node, _SHOW_NODE, answers={200: nodes_schemas.DESCRIPTION}),
    ),
    route(
        "/v1/nodes/{uuid}/diff",
        GET=Operation(nodes.show_diff, _SHOW_NODE, answers={200: nodes_schemas.DIFF}),
    ),
)


def _part(noun: str, handler: Handler, query: Schema, answer: Schema) -> Route:
    """Return the route of a list of what belongs to a node."""
    operation = Operation(handler, _SHOW_NODE, query=query, answers={200: answer})
    return route(f"/v1/nodes/{{uuid}}/{noun}", GET=operation)


_PARTS_OF_NODES: tuple[Route, ...] = (
    _part(
        "workloads",
        workloads.list_workloads_of_node,
        workloads_schemas.OF_NODE_QUERY,
        workloads_schemas.WORKLOADS_OF_NODE,
    ),
    _part(
        "claims", claims.list_claims_of_node, claims_schemas.OF_NODE_QUERY, claims_schemas.CLAIMS
    ),
    _part("devices", devices.list_devices, devices_schemas.LIST_QUERY, devices_schemas.DEVICES),
    _part(
        "history",
        history.list_history_of_node,
        history_schemas.OF_NODE_QUERY,
        history_schemas.HISTORY,
    ),
    _part(
        "warnings",
        warnings.list_warnings_of_node,
        warnings_schemas.OF_NODE_QUERY,
        warnings_schemas.WARNINGS,
    ),
)

_HOSTS: tuple[Route, ...] = (
    route(
        "/v1/hosts",
        GET=Operation(
            hosts.list_hosts,
            "nodetracker:hosts:list",
            query=hosts_schemas.LIST_QUERY,
            answers={200: hosts_schemas.HOSTS},
        ),
    ),
    route(
        "/v1/hosts/{host}",
        GET=Operation(hosts.show_host, "nodetracker:hosts:show", answers={200: hosts_schemas.HOST}),
    ),
    route(
        "/v1/hosts/{host}/actions",
        POST=Operation(
            hosts.act_on_host,
            "nodetracker:hosts:action",
            body=hosts_schemas.ACTION,
            answers={202: hosts_schemas.ACTION_STARTED},
        ),
    ),
)

_WORKLOADS: tuple[Route, ...] = (
    route(
        "/v1/workloads",
        GET=Operation(
            workloads.list_workloads,
            "nodetracker:workloads:list",
            query=workloads_schemas.LIST_QUERY,
            answers={200: workloads_schemas.WORKLOADS},
        ),
    ),
    route(
        "/v1/workloads/{uuid}",
        GET=Operation(
            workloads.show_workload,
            "nodetracker:workloads:show",
            answers={200: workloads_schemas.WORKLOAD},
        ),
    ),
    route(
        "/v1/usages",
        GET=Operation(
            usages.list_usages,
            "nodetracker:usages:list",
            query=usages_schemas.LIST_QUERY,
            answers={200: usages_schemas.USAGES},
        ),
    ),
)

_EVENTS: tuple[Route, ...] = (
    route(
        "/v1/history",
        GET=Operation(
            history.list_history,
            "nodetracker:history:list",
            query=history_schemas.LIST_QUERY,
            answers={200: history_schemas.HISTORY},
        ),
    ),
    route(
        "/v1/warnings",
        GET=Operation(
            warnings.list_warnings,
            "nodetracker:warnings:list",
            query=warnings_schemas.LIST_QUERY,
            answers={200: warnings_schemas.WARNINGS},
        ),
    ),
)

FLEET: tuple[Route, ...] = (*_NODES, *_PARTS_OF_NODES, *_HOSTS, *_WORKLOADS, *_EVENTS)
