"""What must hold before rows are written: pure, for every store."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from nodetracker.accounting.liveness import is_heard_of
from nodetracker.errors import ConflictError, FencedError, NotFoundError, RefusedError
from nodetracker.model.service import ServiceRecord
from nodetracker.ports import AgentKey

_NAMED_CLAIMS = 10


class Holder(NamedTuple):
    """Who holds a services row."""

    agent_id: str
    epoch: int
    service_uuid: str


def check_agent(agent: AgentKey, holder: Holder | None) -> None:
    """Make sure that the services row is still this agent's.

    Args:
        holder: as the services row has it, None when there is none.

    Raises:
        FencedError: it is not.
    """
    if holder is None:
        raise FencedError(f"host {agent.host} has no services row for {agent.binary} any more")
    if holder != Holder(agent.agent_id, agent.epoch, agent.service_uuid):
        raise FencedError(
            f"host {agent.host} belongs to agent {holder.agent_id}, epoch {holder.epoch}; "
            f"this is agent {agent.agent_id}, epoch {agent.epoch}"
        )


def check_deletion(service: ServiceRecord, now: datetime, service_down_time: int) -> None:
    """Make sure that nobody answers for a service any more.

    Raises:
        RefusedError: somebody does.
    """
    if is_heard_of(service, now, service_down_time):
        raise RefusedError(
            f"{service.binary} on host {service.host} is alive (it was heard of within "
            f"{service_down_time} s); stop it first"
        )


def check_unclaimed(what: str, claims: Sequence[str]) -> None:
    """Make sure that nothing is held on what is to be deleted.

    Args:
        what: the host or node.
        claims: uuids of those that are held there.

    Raises:
        RefusedError: something is.
    """
    if claims:
        more = len(claims) - _NAMED_CLAIMS
        names = ", ".join(claims[:_NAMED_CLAIMS]) + (f" and {more} more" if more > 0 else "")
        raise RefusedError(f"{what} holds {len(claims)} claims; move or abort them first: {names}")


def check_rename(
    old: str, new: str, services: Sequence[ServiceRecord], nodes: Sequence[tuple[str, str]]
) -> ServiceRecord | None:
    """Make sure that a host can be renamed; return its services row.

    Args:
        services: of both names.
        nodes: host and nodename of every row of both names.

    Raises:
        NotFoundError: there is nothing under the old name.
        RefusedError: there is something under the new name.
    """
    if old == new:
        raise RefusedError(f"host {old} is called that already")
    if any(service.host == new for service in services) or any(host == new for host, _ in nodes):
        raise RefusedError(f"there is a host {new} already; delete its service and nodes first")
    nodenames = {nodename for host, nodename in nodes if host == old}
    found = [service for service in services if service.host == old]
    if not found and not nodenames:
        raise NotFoundError(f"there is no host {old}")
    if {old, new} <= nodenames:
        raise RefusedError(f"host {old} has nodes {old} and {new}: they cannot both be {new}")
    return found[0] if found else None


def check_expected(expected: ServiceRecord | None, found: ServiceRecord | None) -> None:
    """Make sure that a services row is as it was when something was concluded from it.

    Raises:
        ConflictError: it is not.
    """
    if _version(expected) != _version(found):
        row = found or expected
        assert row is not None
        raise ConflictError(f"host {row.host} was taken over or heard of meanwhile")


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
