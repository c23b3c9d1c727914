"""The route table: every path, and for each method its handler, rule, schemas and answers.

Query and body are checked and the rule is enforced before the handler is called,
see `endpoint`. A route is found by its path, whatever its place in the table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nodetracker.accounting.schemas import (
    CLAIM_REQUEST,
    CLAIM_REQUEST_OR_REQUESTS,
    MIGRATION_REQUEST_OR_REQUESTS,
    Schema,
)
from nodetracker.api.call import Answer, Call, Handler
from nodetracker.api.handlers import zun
from nodetracker.api.handlers.nova import cloud, hypervisors
from nodetracker.api.handlers.nova import hosts as nova_hosts
from nodetracker.api.handlers.nova import services as nova_services
from nodetracker.api.handlers.own import (
    about,
    actions,
    candidates,
    claims,
    hardware,
    history,
    hosts,
    migrations,
    nodes,
    overview,
    placement,
    plans,
    search,
    services,
    tolerance,
    trends,
    warnings,
    workloads,
)
from nodetracker.api.openapi import build_document
from nodetracker.api.policies import document_rules
from nodetracker.api.route import NO_QUERY, Operation, Route, route

_LAST_OF_HOSTS = "2.42"
_LAST_OF_NAMES = "2.52"


def _nova(handler: Handler, rule: str, query: Schema = NO_QUERY, **options: Any) -> Operation:
    """Return an operation of Nova's API; its rule is named without the prefix."""
    return Operation(handler, f"os_compute_api:{rule}", query, **options)


def _list_hypervisors(handler: Handler, rule: str) -> list[Operation]:
    """Return a list's operations: paged from 2.33, with names and servers from 2.53."""
    rule = f"os-hypervisors:{rule}"
    return [
        _nova(handler, rule, until="2.32"),
        _nova(handler, rule, hypervisors.PAGED_QUERY, since="2.33", until="2.52"),
        _nova(handler, rule, hypervisors.LIST_QUERY, since="2.53"),
    ]


def _power_action(action: str, rule: str) -> Route:
    """Return the route of one of Nova's power actions: GETs that change something."""
    handler = nova_hosts.act_on_host(action)
    return route(
        f"/v2.1/os-hosts/{{host}}/{action}",
        GET=_nova(handler, f"os-hosts:{rule}", until=_LAST_OF_HOSTS, is_change=True),
    )


def _update_named(action: str, handler: Handler, body: Schema, since: str = "2.1") -> Route:
    """Return the route of a change of the service that the body names; from 2.53 uuids do."""
    update = _nova(handler, "os-services:update", body=body, since=since, until=_LAST_OF_NAMES)
    return route(f"/v2.1/os-services/{action}", PUT=update)


_NOVA: tuple[Route, ...] = (
    route("/", GET=Operation(cloud.list_versions, rule=None)),
    route("/v2.1", GET=Operation(cloud.show_version, rule=None)),
    route("/v2.1/limits", GET=_nova(cloud.show_limits, "limits", cloud.LIMITS_QUERY)),
    route("/v2.1/os-aggregates", GET=_nova(cloud.list_aggregates, "os-aggregates:index")),
    route("/v2.1/os-availability-zone", GET=_nova(cloud.list_zones, "os-availability-zone:list")),
    route(
        "/v2.1/os-availability-zone/detail",
        GET=_nova(cloud.list_zones_with_hosts, "os-availability-zone:detail"),
    ),
    route("/v2.1/os-hypervisors", GET=_list_hypervisors(hypervisors.list_hypervisors, "list")),
    route(
        "/v2.1/os-hypervisors/detail",
        GET=_list_hypervisors(hypervisors.list_details, "list-detail"),
    ),
    route(
        "/v2.1/os-hypervisors/statistics",
        GET=_nova(hypervisors.show_statistics, "os-hypervisors:statistics", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}",
        GET=(
            _nova(hypervisors.show_hypervisor, "os-hypervisors:show", until="2.52"),
            _nova(
                hypervisors.show_hypervisor,
                "os-hypervisors:show",
                hypervisors.SHOW_QUERY,
                since="2.53",
            ),
        ),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/uptime",
        GET=_nova(hypervisors.show_uptime, "os-hypervisors:uptime", until="2.87"),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/search",
        GET=_nova(hypervisors.search_hypervisors, "os-hypervisors:search", until=_LAST_OF_NAMES),
    ),
    route(
        "/v2.1/os-hypervisors/{id}/servers",
        GET=_nova(hypervisors.list_servers, "os-hypervisors:servers", until=_LAST_OF_NAMES),
    ),
    route(
        "/v2.1/os-hosts",
        GET=_nova(
            nova_hosts.list_hosts, "os-hosts:list", nova_hosts.LIST_QUERY, until=_LAST_OF_HOSTS
        ),
    ),
    route(
        "/v2.1/os-hosts/{host}",
        GET=_nova(nova_hosts.show_host, "os-hosts:show", until=_LAST_OF_HOSTS),
        PUT=_nova(
            nova_hosts.update_host, "os-hosts:update", body=nova_hosts.UPDATE, until=_LAST_OF_HOSTS
        ),
    ),
    _power_action("reboot", "reboot"),
    _power_action("shutdown", "shutdown"),
    _power_action("startup", "start"),
    route(
        "/v2.1/os-services",
        GET=_nova(nova_services.list_services, "os-services:list", nova_services.LIST_QUERY),
    ),
    route(
        "/v2.1/os-services/{id}",
        PUT=_nova(
            nova_services.update_service,
            "os-services:update",
            body=nova_services.UPDATE,
            since="2.53",
        ),
        DELETE=_nova(nova_services.delete_service, "os-services:delete", answers={204: None}),
    ),
    _update_named("enable", nova_services.enable_service, nova_services.NAMED),
    _update_named("disable", nova_services.disable_service, nova_services.NAMED),
    _update_named(
        "disable-log-reason", nova_services.disable_with_reason, nova_services.NAMED_REASON
    ),
    _update_named(
        "force-down", nova_services.force_down, nova_services.NAMED_FORCED_DOWN, since="2.11"
    ),
)

_ZUN: tuple[Route, ...] = (
    route("/container", GET=Operation(zun.list_versions, rule=None)),
    route("/container/v1", GET=Operation(zun.show_version, rule=None)),
    route("/container/v1/hosts", GET=Operation(zun.list_hosts, "host:get_all", zun.LIST_QUERY)),
    route("/container/v1/hosts/{id}", GET=Operation(zun.show_host, "host:get")),
)


def _own(
    handler: Handler,
    rule: str,
    answers: Mapping[int, Schema | None],
    query: Schema = NO_QUERY,
    **options: Any,
) -> Operation:
    """Return an operation of nodetracker's own API; its rule is named without the prefix."""
    return Operation(handler, f"nodetracker:{rule}", query, answers=answers, **options)


def _node_part(noun: str, handler: Handler, answer: Schema, query: Schema = NO_QUERY) -> Route:
    """Return the route of what belongs to a node."""
    operation = _own(handler, "nodes:show", {200: answer}, query)
    return route(f"/v1/nodes/{{uuid}}/{noun}", GET=operation)


def show_openapi(call: Call) -> Answer:
    """Describe this API."""
    return Answer(build_document(ROUTES, call.backend.version, call.url.link("/")))


_CLAIM = {200: claims.CLAIM}
_MIGRATION = {200: migrations.MIGRATION}
_SERVICE = {200: services.SERVICE}
_CANDIDATES = {200: candidates.CANDIDATES}

_OWN: tuple[Route, ...] = (
    route(
        "/v1/claims",
        GET=_own(claims.list_claims, "claims:list", {200: claims.CLAIMS}, claims.LIST_QUERY),
        POST=_own(
            claims.create_claim,
            "claims:create",
            {200: claims.CLAIM_OR_ADMISSION, 201: claims.CLAIM},
            claims.CREATE_QUERY,
            body=CLAIM_REQUEST_OR_REQUESTS,
            dry_run="dry_run",
        ),
    ),
    route(
        "/v1/claims/{uuid}",
        GET=_own(claims.show_claim, "claims:show", _CLAIM),
        DELETE=_own(claims.abort_claim, "claims:abort", _CLAIM),
    ),
    route("/v1/claims/{uuid}/confirm", POST=_own(claims.confirm_claim, "claims:confirm", _CLAIM)),
    route("/v1/claims/{uuid}/renew", POST=_own(claims.renew_claim, "claims:renew", _CLAIM)),
    route(
        "/v1/migrations",
        GET=_own(
            migrations.list_migrations,
            "migrations:list",
            {200: migrations.MIGRATIONS},
            migrations.LIST_QUERY,
        ),
        POST=_own(
            migrations.create_migration,
            "migrations:create",
            {200: migrations.MIGRATION_OR_OUTCOMES, 201: migrations.MIGRATION},
            body=MIGRATION_REQUEST_OR_REQUESTS,
        ),
    ),
    route(
        "/v1/migrations/{uuid}",
        GET=_own(migrations.show_migration, "migrations:show", _MIGRATION),
        PATCH=_own(
            migrations.update_migration, "migrations:update", _MIGRATION, body=migrations.UPDATE
        ),
    ),
    route(
        "/v1/migrations/{uuid}/confirm",
        POST=_own(migrations.confirm_migration, "migrations:confirm", _MIGRATION),
    ),
    route(
        "/v1/migrations/{uuid}/revert",
        POST=_own(migrations.revert_migration, "migrations:revert", _MIGRATION),
    ),
    route(
        "/v1/candidates",
        GET=_own(candidates.list_candidates, "candidates:list", _CANDIDATES, candidates.LIST_QUERY),
        POST=_own(
            candidates.find_candidates,
            "candidates:list",
            _CANDIDATES,
            candidates.FIND_QUERY,
            body=CLAIM_REQUEST,
            is_change=False,
        ),
    ),
    route(
        "/v1/traits",
        GET=_own(hardware.list_traits, "nodes:list", {200: hardware.TRAITS}),
    ),
    route(
        "/v1/gpus",
        GET=_own(hardware.list_gpus, "candidates:list", {200: hardware.GPU_MODELS}),
    ),
    route(
        "/v1/plans",
        POST=_own(
            plans.create_plan,
            "plans:create",
            {200: plans.PLAN},
            body=plans.REQUEST,
            is_change=False,
        ),
    ),
    route("/v1", GET=Operation(about.show_version, rule=None, answers={200: about.VERSION})),
    route("/v1/about", GET=_own(about.show_about, "about:show", {200: about.ABOUT})),
    route(
        "/v1/session",
        POST=Operation(about.open_session, rule=None, body=about.LOGIN, answers={204: None}),
        DELETE=Operation(about.close_session, rule=None, answers={204: None}),
    ),
    route(
        "/v1/overview",
        GET=_own(overview.show_overview, "overview:show", {200: overview.OVERVIEW}, overview.QUERY),
    ),
    route(
        "/v1/trends",
        GET=_own(trends.show_trends, "nodes:list", {200: trends.TRENDS}, trends.QUERY),
    ),
    route(
        "/v1/trends/nodes",
        GET=_own(trends.list_days_of_nodes, "nodes:list", {200: trends.DAYS}, trends.DAY_QUERY),
    ),
    route(
        "/v1/tolerance",
        GET=_own(
            tolerance.show_tolerance,
            "overview:show",
            {200: tolerance.TOLERANCE},
            tolerance.QUERY,
        ),
    ),
    route(
        "/v1/search",
        GET=_own(search.search, "overview:show", {200: search.FOUND}, search.QUERY),
    ),
    route(
        "/v1/services",
        GET=_own(
            services.list_services, "services:list", {200: services.SERVICES}, services.LIST_QUERY
        ),
    ),
    route(
        "/v1/services/{uuid}",
        GET=_own(services.show_service, "services:show", _SERVICE),
        PATCH=_own(services.update_service, "services:update", _SERVICE, body=services.UPDATE),
        DELETE=_own(services.delete_service, "services:delete", {204: None}),
    ),
    route(
        "/v1/nodes",
        GET=_own(nodes.list_nodes, "nodes:list", {200: nodes.NODES}, nodes.LIST_QUERY),
    ),
    route(
        "/v1/nodes/{uuid}",
        GET=_own(nodes.show_node, "nodes:show", {200: nodes.NODE}),
        DELETE=_own(nodes.delete_node, "nodes:delete", {204: None}),
    ),
    route(
        "/v1/nodes/{uuid}/audit",
        POST=_own(nodes.audit_node, "nodes:audit", {200: nodes.AUDIT, 202: nodes.AUDIT_RUNNING}),
    ),
    route(
        "/v1/nodes/{uuid}/accept",
        POST=_own(nodes.accept_node, "nodes:accept", {204: None}),
    ),
    route(
        "/v1/nodes/{uuid}/adopt",
        POST=_own(
            placement.adopt_provider,
            "nodes:adopt",
            {200: placement.ADOPTED},
            placement.ADOPT_QUERY,
            dry_run="dry_run",
        ),
    ),
    route(
        "/v1/placement/heal",
        POST=_own(
            placement.heal_placement,
            "placement:heal",
            {200: placement.HEALED},
            placement.HEAL_QUERY,
            dry_run="dry_run",
        ),
    ),
    _node_part("actions", actions.list_node_actions, actions.ACTIONS),
    _node_part("description", hardware.describe_node, hardware.DESCRIPTION),
    _node_part("diff", nodes.show_diff, nodes.DIFF),
    _node_part(
        "workloads",
        workloads.list_workloads_of_node,
        workloads.WORKLOADS_OF_NODE,
        workloads.OF_NODE_QUERY,
    ),
    _node_part("claims", claims.list_claims_of_node, claims.CLAIMS, claims.OF_NODE_QUERY),
    _node_part("devices", hardware.list_devices, hardware.DEVICES, hardware.DEVICES_QUERY),
    _node_part("history", history.list_history_of_node, history.HISTORY, history.OF_NODE_QUERY),
    _node_part("trends", trends.show_trends_of_node, trends.TRENDS, trends.QUERY),
    _node_part(
        "warnings", warnings.list_warnings_of_node, warnings.WARNINGS, warnings.OF_NODE_QUERY
    ),
    route(
        "/v1/hosts",
        GET=_own(hosts.list_hosts, "hosts:list", {200: hosts.HOSTS}, hosts.LIST_QUERY),
    ),
    route("/v1/hosts/{host}", GET=_own(hosts.show_host, "hosts:show", {200: hosts.HOST})),
    route(
        "/v1/hosts/{host}/nodes",
        DELETE=_own(hosts.purge_host, "hosts:purge", {200: hosts.PURGED}),
    ),
    route(
        "/v1/hosts/{host}/actions",
        GET=_own(actions.list_host_actions, "hosts:show", {200: actions.ACTIONS}),
        POST=_own(
            hosts.act_on_host, "hosts:action", {202: hosts.ACTION_STARTED}, body=hosts.ACTION
        ),
    ),
    route(
        "/v1/workloads",
        GET=_own(
            workloads.list_workloads,
            "workloads:list",
            {200: workloads.WORKLOADS},
            workloads.LIST_QUERY,
        ),
    ),
    route(
        "/v1/workloads/{uuid}",
        GET=_own(workloads.show_workload, "workloads:show", {200: workloads.WORKLOAD}),
    ),
    route(
        "/v1/workloads/{uuid}/adopt",
        POST=_own(workloads.adopt_workload, "workloads:adopt", {**_CLAIM, 201: claims.CLAIM}),
    ),
    route(
        "/v1/usages",
        GET=_own(
            workloads.list_usages, "usages:list", {200: workloads.USAGES}, workloads.USAGES_QUERY
        ),
    ),
    route(
        "/v1/history",
        GET=_own(history.list_history, "history:list", {200: history.HISTORY}, history.LIST_QUERY),
    ),
    route(
        "/v1/events",
        GET=_own(history.list_events, "history:list", {200: history.EVENTS}, history.EVENTS_QUERY),
    ),
    route(
        "/v1/warnings",
        GET=_own(
            warnings.list_warnings, "warnings:list", {200: warnings.WARNINGS}, warnings.LIST_QUERY
        ),
    ),
    route(
        "/v1/warnings/{id}/silence",
        POST=_own(
            warnings.silence_warning,
            "warnings:silence",
            {200: warnings.WARNING_ANSWER},
            body=warnings.SILENCE,
        ),
    ),
    route(
        "/v1/openapi.json",
        GET=Operation(show_openapi, rule=None, answers={200: {"type": "object"}}),
    ),
)


def list_routes(open_metrics: bool = False) -> tuple[Route, ...]:
    """Return all routes.

    Args:
        open_metrics: the metrics need no credentials.
    """
    rule = None if open_metrics else "nodetracker:metrics:show"
    page = Operation(overview.show_metrics, rule, answers={200: {"type": "string"}})
    health = Operation(overview.show_health, rule=None)
    return (*_NOVA, *_ZUN, *_OWN, route("/health", GET=health), route("/metrics", GET=page))


ROUTES = list_routes()


def list_policies() -> Sequence[Any]:
    """Return the policy rules with the operations of this table, for oslo.policy's generators."""
    operations: dict[str, list[str]] = {}
    for found in ROUTES:
        for method, ranges in found.methods.items():
            operations.setdefault(ranges[0].rule or "", []).append(f"{method} {found.path}")
    return document_rules(operations)
