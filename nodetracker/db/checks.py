"""Check preconditions of writes: fencing, deletion, renaming.

Pure; every store uses these checks.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from nodetracker.accounting.liveness import has_recent_heartbeat
from nodetracker.model.errors import ConflictError, FencedError, NotFoundError, RefusedError
from nodetracker.model.service import AgentKey, ServiceRecord
from nodetracker.model.text import count_noun

_NAMED_CLAIMS = 10


class Holder(NamedTuple):
    """Identity of the agent that holds a services row."""

    agent_id: str
    epoch: int
    service_uuid: str


def check_agent(agent: AgentKey, holder: Holder | None) -> None:
    """Check that the services row is still this agent's.

    Args:
        holder: as stored in the services row, None when the row does not exist.

    Raises:
        FencedError: the row is missing or another agent's.
    """
    if holder is None:
        raise FencedError(f"the services row of {agent.binary} on host {agent.host} was deleted")
    if holder != Holder(agent.agent_id, agent.epoch, agent.service_uuid):
        raise FencedError(
            f"host {agent.host} belongs to agent {holder.agent_id}, epoch {holder.epoch}; "
            f"this is agent {agent.agent_id}, epoch {agent.epoch}"
        )


def check_deletion(service: ServiceRecord, now: datetime, service_down_time: int) -> None:
    """Check that a service is no longer alive.

    Raises:
        RefusedError: it is alive.
    """
    if has_recent_heartbeat(service, now, service_down_time):
        raise RefusedError(
            f"{service.binary} on host {service.host} is alive (last heartbeat within "
            f"{service_down_time} s); stop it first"
        )


def check_unclaimed(what: str, claims: Sequence[str]) -> None:
    """Check that a host or node that is to be deleted holds no claims.

    Args:
        what: the host or node, for the message.
        claims: uuids of its active claims.

    Raises:
        RefusedError: it holds claims.
    """
    if claims:
        more = len(claims) - _NAMED_CLAIMS
        names = ", ".join(claims[:_NAMED_CLAIMS]) + (f" and {more} more" if more > 0 else "")
        held = count_noun(len(claims), "claim")
        raise RefusedError(f"{what} holds {held}; to be moved or aborted first: {names}")


def check_adoption(
    host: str, nodename: str, before: str, uuid: str, nodes: Sequence[tuple[str, str, str]]
) -> None:
    """Check that a node may get another uuid.

    Args:
        before: its uuid as its caller knows it.
        nodes: uuid, host and nodename of the node and of any that has the new uuid.

    Raises:
        NotFoundError: no such node.
        ConflictError: the node has another uuid by now.
        RefusedError: another node has the new uuid.
    """
    found = {(row[1], row[2]): row[0] for row in nodes}
    if (host, nodename) not in found:
        raise NotFoundError(f"no such node: {nodename} on host {host}")
    for place, other in found.items():
        if other == uuid and place != (host, nodename):
            raise RefusedError(f"node {place[1]} of host {place[0]} has the uuid {uuid}")
    if found[host, nodename] != before:
        raise ConflictError(
            f"node {nodename} of host {host} has the uuid {found[host, nodename]} by now"
        )


def check_rename(
    old: str, new: str, services: Sequence[ServiceRecord], nodes: Sequence[tuple[str, str]]
) -> ServiceRecord | None:
    """Check that a host can be renamed; return its services row.

    Args:
        services: of both names.
        nodes: host and nodename of every row of both names.

    Raises:
        NotFoundError: nothing is stored under the old name.
        RefusedError: something is stored under the new name.
    """
    if old == new:
        raise RefusedError(f"host {old} already has that name")
    if any(service.host == new for service in services) or any(host == new for host, _ in nodes):
        raise RefusedError(f"host {new} already exists; delete its service and nodes first")
    nodenames = {nodename for host, nodename in nodes if host == old}
    found = [service for service in services if service.host == old]
    if not found and not nodenames:
        raise NotFoundError(f"no such host: {old}")
    if {old, new} <= nodenames:
        raise RefusedError(f"host {old} has nodes {old} and {new}, which would both be {new}")
    return found[0] if found else None


def check_expected(expected: ServiceRecord | None, found: ServiceRecord | None) -> None:
    """Compare a services row with the one that the caller's decision was based on.

    Raises:
        ConflictError: the row has changed.
    """
    if _version(expected) != _version(found):
        row = found or expected
        assert row is not None
        raise ConflictError(f"host {row.host} was taken over or reported its state meanwhile")


def _version(service: ServiceRecord | None) -> tuple[str, int, int] | None:
    if service is None:
        return None
    return service.incarnation.agent_id, service.epoch, service.report_count


def renamed_diff(old: str, new: str, nodename: str) -> dict[str, Any]:
    """Return the history entry of a node whose host is renamed."""
    diff: dict[str, Any] = {"host": [old, new]}
    if nodename == old:
        diff["hypervisor_hostname"] = [old, new]
    return diff
