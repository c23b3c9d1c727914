"""Render plans for hosts that go, for the command line and REST."""

from collections.abc import Iterator
from typing import Any

from nodetracker.accounting.ledger.departures import (
    Departure,
    HostPlan,
    PlannedMove,
    Remaining,
    Stranded,
)
from nodetracker.accounting.ledger.exclusions import NearMiss
from nodetracker.model.amounts import MEMORY, PCPU, VCPU
from nodetracker.model.claim import ClaimRequest, MigrationType
from nodetracker.model.serializer import encode, pick
from nodetracker.model.text import count_noun
from nodetracker.model.units import MIB_PER_GIB, MILLI, whole_units
from nodetracker.views.claims import explain_reasons


def render_plan(plan: HostPlan) -> dict[str, Any]:
    """Return a plan as REST shows it."""
    return {
        "hosts": list(plan.hosts),
        "fits": plan.fits,
        "is_certain": plan.is_certain,
        "text": describe_plan(plan),
        "guests": list(list_guests(plan)),
    }


def describe_plan(plan: HostPlan) -> str:
    """Return how many guests fit elsewhere, and of how many claims none is there to be planned."""
    claims = sum(not item.needs_place for item in plan.remaining)
    guests = len(plan.moves) + len(plan.stranded) + len(plan.remaining) - claims
    verb = "fits" if guests == 1 else "fit"
    text = f"{len(plan.moves)} of {count_noun(guests, 'guest')} {verb} elsewhere"
    if not guests:
        text = "There are no guests to move"
    return f"{text}; nothing is planned for {count_noun(claims, 'claim')}" if claims else text


def list_guests(plan: HostPlan) -> Iterator[dict[str, Any]]:
    """Yield all guests of a plan: those that fit nowhere first, then those that are left out."""
    for stranded in plan.stranded:
        yield _render_guest(stranded.departure, **_explain_stranded(stranded, plan.is_certain))
    for item in plan.remaining:
        yield _render_remaining(item)
    for move in plan.moves:
        place = {"to_host": move.host, "to_nodename": move.nodename}
        yield _render_guest(move.departure, **place)


_NO_PLACE: dict[str, Any] = {"to_host": None, "to_nodename": None, "reason": "", "nearest": []}


def _render_guest(departure: Departure, **more: Any) -> dict[str, Any]:
    shown = pick(departure.request.workload, "workload_uuid=uuid", "workload_name=name", "kind")
    shown |= pick(departure, "claim_uuid", "from_host=host", "from_nodename=nodename", "is_derived")
    return {**shown, **_NO_PLACE, **more}


def _render_remaining(item: Remaining) -> dict[str, Any]:
    shown = pick(item.workload, "workload_uuid=uuid", "workload_name=name", "kind")
    shown |= pick(item, "claim_uuid", "from_host=host", "from_nodename=nodename")
    return {**shown, "is_derived": False, **_NO_PLACE, "reason": item.reason}


def _explain_stranded(stranded: Stranded, is_certain: bool) -> dict[str, Any]:
    nearest = [_render_near(miss) for miss in stranded.nearest]
    reason = "fits on no node" if is_certain else "no node was found for it"
    if nearest:
        texts = "; ".join(each["text"] for each in nearest[0]["explanations"])
        reason += f", the nearest is {nearest[0]['nodename']} of {nearest[0]['host']}: {texts}"
    return {"reason": reason, "nearest": nearest}


def _render_near(miss: NearMiss) -> dict[str, Any]:
    return pick(miss, "host", "nodename") | {"explanations": explain_reasons(miss)}


def render_moves(plan: HostPlan, migration_type: MigrationType) -> list[dict[str, Any]]:
    """Return the requests of all moves of guests with a claim, as ``migration create`` reads them.

    Those that need a device for which no alias is configured are left out.
    """
    return [_render_move(move, migration_type) for move in plan.moves if is_requestable(move)]


def is_requestable(move: PlannedMove) -> bool:
    """Return whether a move can be requested: the guest has a claim, and its devices an alias."""
    return move.departure.claim_uuid is not None and not move.departure.aliases


def _render_move(move: PlannedMove, migration_type: MigrationType) -> dict[str, Any]:
    request = move.departure.request
    body = {
        "uuid": request.uuid,
        "workload": {"uuid": request.workload.uuid},
        "host": move.host,
        "nodename": move.nodename,
        "migration": {
            "type": migration_type.value,
            "source_claim": move.departure.claim_uuid,
        },
        **_render_amounts(request),
        "limits": _render_limits(request),
        "numa": _render_numa(request),
        "pci_requests": encode(request.pci_requests),
        "required_traits": list(request.required_traits),
    }
    return {name: value for name, value in body.items() if value not in (None, [], {})}


def _render_amounts(request: ClaimRequest) -> dict[str, Any]:
    amounts = request.amounts
    root_gb, swap_mb = divmod(amounts.disk_mb, MIB_PER_GIB)
    resources = {
        VCPU: whole_units(amounts.vcpu_milli, MILLI),
        PCPU: amounts.pcpus,
        MEMORY: amounts.memory_mb,
        **amounts.resources,
    }
    return {
        "resources": {name: amount for name, amount in resources.items() if amount},
        "disk": {"root_gb": root_gb, "swap_mb": swap_mb} if amounts.disk_mb else None,
    }


def _render_limits(request: ClaimRequest) -> dict[str, Any]:
    limits: dict[str, Any] = dict(request.limits)
    if request.numa_limits is not None:
        limits["numa"] = encode(request.numa_limits)
    return limits


def _render_numa(request: ClaimRequest) -> dict[str, Any] | None:
    numa = request.numa
    if numa is None:
        return None
    policy = numa.cpu_thread_policy.value if request.amounts.pcpus else None
    return {
        "cells": encode(numa.cells),
        "cpu_policy": numa.cpu_policy.value,
        "cpu_thread_policy": policy,
        "page_size": encode(numa.page_size),
        "networks": list(numa.networks),
    }
