"""Decide which calls of the store an agent may make. No other module decides this.

The decision rests on the credential. Arguments that name a host are compared with it;
what is the conductor's to decide, such as limits and thresholds, and what rows were before
is replaced. A stolen credential can therefore change the rows of its own host and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange, make_diff
from nodetracker.model.claim import ClaimRequest, Migration, MigrationStatus
from nodetracker.model.errors import AuthenticationError, ForbiddenError, RequestError
from nodetracker.model.node import NODE_COLUMNS, NodeRecord
from nodetracker.model.service import COMPUTE_BINARY, AgentKey, ServiceRecord
from nodetracker.model.shapes import ShapeError, canonical_uuid
from nodetracker.model.warning import NOT_OF_AGENTS, HostWarning
from nodetracker.ports import AdmissionPolicy, Store

Arguments = dict[str, Any]
T = TypeVar("T")

CALLS_OWN_HOST = (
    "a host without a database calls its own agent only: use the REST API, or nodetracker-manage "
    "where [database] connection is set"
)
MAX_CALL_LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a credential identifies."""

    host: str
    agent_id: str


class Authorizer:
    """Decides about the calls of agents to one store.

    Args:
        policy: by which claims are admitted, whatever the caller sends.
        service_down_time: by which hosts are down, whatever the caller sends.
    """

    def __init__(self, store: Store, policy: AdmissionPolicy, service_down_time: int) -> None:
        self.store = store
        self.policy = policy
        self.service_down_time = service_down_time

    def authorize(self, caller: Caller, method: str, arguments: Arguments) -> Arguments:
        """Return the arguments to use for a call.

        Args:
            arguments: by name; those that the caller left to their default are absent.

        Raises:
            ForbiddenError: the caller may not make it; the message says what to do instead.
            AuthenticationError: its credential is another agent's.
            RequestError: a change has a column that nodes do not have, or a uuid is none.
        """
        rule = RULES.get(method)
        if rule is None:
            raise ForbiddenError(
                f"{method} is not served to agents: run this where [database] connection is set, "
                "or use the REST API"
            )
        return rule(self, caller, arguments)


Rule = Callable[[Authorizer, Caller, Arguments], Arguments]


def _allow(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    return arguments


def _own_host(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_host(caller, arguments.get("host"))
    return arguments


def _own_service(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow the services of the host, and those under other names with the caller's own id.

    An agent finds by these that its machine was renamed or copied.
    """
    if arguments.get("agent_id") == caller.agent_id:
        return arguments
    return _narrowed(authorizer, caller, arguments)


def _narrowed(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Replace a list of all hosts by that of the caller's own."""
    if arguments.get("host") is not None:
        _check_host(caller, arguments["host"])
    return arguments | {"host": caller.host}


def _own_answer(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow the answer for the host, without its plan, which names other hosts."""
    if arguments.get("host") is not None:
        _check_host(caller, arguments["host"])
    return {"host": caller.host}


def _own_query(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    query = arguments["query"]
    if query.host is not None:
        _check_host(caller, query.host)
    return {"query": replace(query, host=caller.host)}


def _own_sum(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Replace a sum of all hosts by that of the caller's own."""
    hosts = arguments.get("hosts")
    for host in hosts or ():
        _check_host(caller, host)
    return {"hosts": [caller.host] if hosts is None else hosts}


def _known_claims(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow the claims of the host, and one of a workload whose uuid the caller knows.

    An agent asks by it whether a consumer in placement is of nobody's.
    """
    query = arguments["query"]
    if query.host is None and query.workload_uuid is not None and query.limit == 1:
        return arguments
    return _own_query(authorizer, caller, arguments)


def _known_migrations(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow the migrations of the host, and one whose uuid the caller knows."""
    if arguments.get("host") is None and arguments.get("uuid") is not None:
        return arguments
    return _narrowed(authorizer, caller, arguments)


def _own_devices(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_nodes(authorizer, caller, [arguments["query"].node_id])
    return arguments


def _own_registration(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_host(caller, arguments["host"])
    _check_agent(caller, arguments["binary"], arguments["incarnation"].agent_id)
    before: ServiceRecord | None = arguments.get("expected")  # which the store takes over
    if before is None:
        return arguments
    _check_host(caller, before.host)
    _check_binary(before.binary)
    for stored in authorizer.store.list_services(caller.host, COMPUTE_BINARY):
        if _version_of(stored) == _version_of(before):
            before = stored  # observers see what it was
    return arguments | {"expected": before}


def _version_of(service: ServiceRecord) -> tuple[str, int, int]:
    return service.incarnation.agent_id, service.epoch, service.report_count


def _own_agent(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    key: AgentKey = arguments["agent"]
    _check_host(caller, key.host)
    _check_agent(caller, key.binary, key.agent_id)
    return arguments


def _own_host_warning(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_host(caller, arguments.get("host"))
    _check_kinds([arguments["warning"]])
    return arguments


def _own_warnings(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _own_agent(authorizer, caller, arguments)
    _check_kinds(arguments["active"])
    return arguments


def _check_kinds(warnings: Iterable[HostWarning]) -> None:
    for warning in warnings:
        if warning.kind in NOT_OF_AGENTS:
            raise ForbiddenError(f"agents do not raise the warning {warning.kind}")


def _own_changes(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow changes of own nodes; the store writes only rows and claims of these."""
    _own_agent(authorizer, caller, arguments)
    changes: Sequence[NodeChange] = arguments["changes"]
    for change in changes:
        _check_host(caller, change.host)
    ids = {change.record.id for change in changes if change.record is not None}
    stored = {record.id: record for record in authorizer.store.load_nodes(caller.host, ids)}
    return arguments | {
        "changes": [_as_stored(authorizer, caller, change, stored) for change in changes],
        "service_down_time": authorizer.service_down_time,
    }


_CHANGED = -1
"""A generation of no row: a change that rests on it is a conflict."""


def _as_stored(
    authorizer: Authorizer,
    caller: Caller,
    change: NodeChange,
    stored: Mapping[int, NodeRecord],
) -> NodeChange:
    """Return a change of the stored row, claims and moves, with the states that audits set.

    Notifications and the history have the rest of them, and what the change is.

    Args:
        stored: the rows of the caller's host that changes name, by their ids.
    """
    _check_uuids(*(guest.uuid for guest in (*change.guests.added, *change.guests.changed)))
    unknown = set(change.columns).difference(NODE_COLUMNS)
    if unknown:
        raise RequestError("columns", f"nodes have no {min(unknown)}")
    if change.record is None:
        _check_uuids(change.uuid)
        change = replace(change, kind=ChangeKind.CREATE, claims=(), moves=())
        return replace(change, diff=make_diff(change))
    record = stored.get(change.record.id)
    if record is None or record.generation != change.record.generation:
        return replace(change, record=replace(change.record, generation=_CHANGED))
    if change.kind not in (ChangeKind.MEASURE, ChangeKind.DELETE):
        change = replace(change, kind=ChangeKind.UPDATE)
    else:  # which write no claims
        change = replace(change, claims=(), moves=())
    claims = []
    for sent in change.claims:
        for claim in authorizer.store.list_claims(uuid=sent.uuid):
            if claim.node_id != record.id:
                raise ForbiddenError(f"claim {claim.uuid} is not one of node {record.nodename}")
            state = {name: getattr(sent, name) for name in ("state", "reason", "expires_at")}
            claims.append(replace(claim, **state))
    moves = []
    for move in change.moves:
        migration = _find_migration(authorizer, caller, move.migration)
        migration = replace(migration, status=MigrationStatus.ERROR)
        moves.append(replace(move, migration=migration))
    change = replace(
        change,
        nodename=record.nodename,
        uuid=record.uuid,
        record=record,
        guests=_of_stored(change.guests, record.guests, "uuid"),
        devices=_of_stored(change.devices, record.devices, "address"),
        claims=tuple(claims),
        moves=tuple(moves),
    )
    return replace(change, diff=make_diff(change))


def _of_stored(diff: ItemDiff[T], stored: Mapping[str, T], key: str) -> ItemDiff[T]:
    """Return a difference that changes and removes only what is stored."""
    return replace(
        diff,
        changed=tuple(item for item in diff.changed if getattr(item, key) in stored),
        removed=tuple(
            stored[name] for item in diff.removed if (name := getattr(item, key)) in stored
        ),
    )


def _own_claim_request(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_host(caller, arguments["host"])
    request: ClaimRequest = arguments["request"]
    _check_uuids(request.uuid, request.workload.uuid)
    return arguments | {"policy": authorizer.policy}


def _own_start(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _check_host(caller, arguments["host"])
    _check_uuids(arguments["guest"].uuid, arguments["claim_uuid"])
    return arguments | {"policy": authorizer.policy}


def _own_claim(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow a claim on the host; the store reports one that does not exist."""
    for claim in authorizer.store.list_claims(uuid=arguments["uuid"]):
        _check_host(caller, claim.host)
    return arguments


def _own_renewal(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    _own_claim(authorizer, caller, arguments)
    return arguments | {"policy": authorizer.policy}


def _own_call(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    """Allow a call of the host's own agent, made by a command there.

    The agent's log says so, and it expires as soon as one by such a command may.
    """
    if arguments["host"] != caller.host:
        raise ForbiddenError(CALLS_OWN_HOST)
    lifetime = min(arguments["lifetime"], MAX_CALL_LIFETIME)
    return arguments | {"sender": f"manage:{caller.host}", "lifetime": lifetime}


def _no_move(authorizer: Authorizer, caller: Caller, arguments: Arguments) -> Arguments:
    raise ForbiddenError(
        "an agent without a database makes no moves, which write two hosts: use the REST API, or "
        "nodetracker-manage where [database] connection is set"
    )


def _check_host(caller: Caller, host: str | None) -> None:
    if host != caller.host:
        raise ForbiddenError(f"the credential is that of host {caller.host}, not of host {host}")


def _check_agent(caller: Caller, binary: str, agent_id: str) -> None:
    _check_binary(binary)
    if agent_id != caller.agent_id:
        raise AuthenticationError(  # upon which the agent joins by a token, if it has one
            f"the credential of host {caller.host} is that of agent {caller.agent_id}, and this is "
            f"agent {agent_id}: if this machine is to have the name, join it by a token for "
            f"host {caller.host} (nodetracker-manage agent token create --host {caller.host})"
        )


def _check_uuids(*texts: str) -> None:
    """Check what names rows in the lists of all hosts.

    Raises:
        RequestError: a text is not a UUID in its canonical form. In another one it would name
            another row than that of the same UUID.
    """
    for text in texts:
        try:
            canonical_uuid(text)
        except ShapeError as error:
            raise RequestError("uuid", str(error)) from None


def _check_binary(binary: str) -> None:
    if binary != COMPUTE_BINARY:
        raise ForbiddenError(f"the credential is that of an agent, not of {binary}")


def _find_migration(authorizer: Authorizer, caller: Caller, sent: Migration) -> Migration:
    """Return a migration of the caller's host, which has the claims that were sent."""
    found = authorizer.store.list_migrations(caller.host, sent.uuid)
    claims = (sent.source_claim, sent.dest_claim)
    if [(stored.source_claim, stored.dest_claim) for stored in found] != [claims]:
        raise ForbiddenError(f"migration {sent.uuid} is not one of host {caller.host}")
    return found[0]


def _check_nodes(authorizer: Authorizer, caller: Caller, node_ids: Sequence[int]) -> None:
    own = {node.id for node in authorizer.store.list_nodes(caller.host)}
    if not own.issuperset(node_ids):
        raise ForbiddenError(f"the credential is that of host {caller.host}, whose node is another")


RULES: Mapping[str, Rule | None] = MappingProxyType(
    {
        # The agent's own services row, nodes and warnings.
        "now": _allow,
        "list_services": _own_service,
        "list_nodes": _narrowed,
        "load_nodes": _own_host,
        "list_warnings": _narrowed,
        "register_agent": _own_registration,
        "report_state": _own_agent,
        "mark_service": _own_agent,
        "load_versions": _own_host,
        "sum_versions": _own_host,
        "list_expired_claims": _own_host,
        # With the host and node of each other claim of a workload on this host: by these an
        # operator finds which of the two copies to stop.
        "list_split_brains": _own_host,
        "apply_changes": _own_changes,
        "sync_warnings": _own_warnings,
        "raise_warning": _own_host_warning,
        "take_news": _own_agent,
        "answer_call": _own_host,
        "create_call": _own_call,
        "find_answer": _own_host,
        # Claims on its host.
        "create_claim": _own_claim_request,
        "try_claim": _own_claim_request,
        "admit_start": _own_start,
        "end_start": _own_host,
        "confirm_claim": _own_claim,
        "renew_claim": _own_renewal,
        "abort_claim": _own_claim,
        "list_claims": _narrowed,
        "list_migrations": _known_migrations,
        "create_migration": _no_move,
        "confirm_migration": _no_move,
        "revert_migration": _no_move,
        "set_migration_status": _no_move,
        # Lists of its host.
        "list_fleet": _own_query,
        "list_workloads": _own_query,
        "list_claim_page": _known_claims,
        "list_migration_page": _own_query,
        "list_history_page": _own_query,
        "list_warning_page": _own_query,
        "list_service_page": _own_query,
        "sum_hosts": _own_sum,
        "list_tolerances": _own_answer,
        "sum_usage": _narrowed,
        # With the names of conductors and REST services, by which an outage of these is found.
        "list_outage_services": _narrowed,
        "list_device_page": _own_devices,
        # Providers of its deleted nodes.
        "list_provider_removals": _narrowed,
        "take_provider_removals": _own_query,
        "fail_provider_removal": _narrowed,
        "finish_provider_removal": _narrowed,
        # Fleets, schedulers and administration.
        "resolve_warnings": None,
        "find_candidates": None,
        "find_claims": None,
        "find_guests": None,
        "find_requirements": None,
        "create_claims": None,
        "load_hosts": None,
        "load_ledger_nodes": None,
        "count_exclusions": None,
        "find_nearest": None,
        "sum_fleet": None,
        "read_overview": None,
        "list_gpus": None,
        "list_custom_traits": None,
        "read_trend": None,
        "read_node_hours": None,
        "sample_trends": None,
        "find_service": None,
        "set_service": None,
        "silence_warning": None,
        "delete_service": None,
        "rename_host": None,
        "take_over_node": None,
        "adopt_uuid": None,
        "accept_node": None,
        "delete_node": None,
        "purge_host": None,
        "purge": None,
    }
)
"""Rule of each method of `Store`; None = not served to agents."""
