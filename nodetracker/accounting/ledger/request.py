"""Parse claim requests: a schema checks their form, code checks what a schema cannot express."""

import hashlib
import json
import uuid as uuid_module
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from nodetracker.accounting.ledger.numa_request import parse_numa_limits, parse_numa_request
from nodetracker.accounting.requests.claim import CLAIM_REQUEST
from nodetracker.accounting.requests.validator import check
from nodetracker.model.claim import (
    DISK,
    MEMORY,
    PCPU,
    VCPU,
    Amounts,
    ClaimRequest,
    MigrationType,
    MoveRequest,
    Workload,
)
from nodetracker.model.errors import RequestError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.pci import PciNumaPolicy, PciRequest
from nodetracker.model.text import parse_uuid, render_value
from nodetracker.model.units import MIB_PER_GIB, MILLI

_MAX_DECIMALS = 3


def parse_claim_request(
    value: object, make_uuid: Callable[[], str] = lambda: str(uuid_module.uuid4())
) -> ClaimRequest:
    """Parse a claim request.

    Args:
        value: the document, as a JSON reader returns it.
        make_uuid: for a request without a uuid, and for a migration.

    Raises:
        RequestError: a key is unknown or missing, or its value is invalid;
            the message begins with its path.
    """
    check(value, CLAIM_REQUEST)
    body = _rename_node(cast("Mapping[str, Any]", value))
    uuid = body.get("uuid")
    limits = dict(body.get("limits") or {})
    numa_limits = parse_numa_limits(limits.pop("numa", None))
    _check_limits(limits, body.get("resources") or {})
    amounts = _parse_amounts(body)
    numa = parse_numa_request(body.get("numa"), amounts)
    if numa is not None:  # a dedicated policy pins CPUs that were requested as shared
        amounts = replace(amounts, vcpu_milli=numa.vcpus * MILLI, pcpus=numa.pcpus)
    return ClaimRequest(
        uuid=make_uuid() if uuid is None else _parse_uuid(uuid, "uuid"),
        workload=_parse_workload(body["workload"]),
        amounts=amounts,
        request_hash=hash_request(body),
        host=body.get("host"),
        nodename=body.get("nodename"),
        limits=limits,
        numa=numa,
        numa_limits=numa_limits,
        pci_requests=tuple(map(_parse_pci_request, body.get("pci_requests") or ())),
        required_traits=tuple(sorted(set(body.get("required_traits") or ()))),
        migration=_parse_migration(body, make_uuid),
    )


def _rename_node(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body whose nodename has that key, as it may also be ``node``."""
    if body.get("node") is None:
        return body
    if body.get("nodename") is not None:
        raise RequestError("node", "cannot be combined with nodename, which is the same")
    renamed = {key: item for key, item in body.items() if key != "node"}
    return renamed | {"nodename": body["node"]}


def hash_request(body: Mapping[str, Any]) -> str:
    """Return a hash that identifies a body, regardless of its uuid and the order of its keys."""
    rest = {key: item for key, item in body.items() if key != "uuid" and item is not None}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _parse_workload(body: Mapping[str, Any]) -> Workload:
    texts = {key: body[key] for key in ("name", "project_id", "user_id") if body.get(key)}
    kind = WorkloadKind(body.get("kind", WorkloadKind.INSTANCE))
    return Workload(_parse_uuid(body["uuid"], "workload.uuid"), kind, **texts)


def _parse_migration(body: Mapping[str, Any], make_uuid: Callable[[], str]) -> MoveRequest | None:
    migration, kind = body.get("migration"), body["workload"].get("kind")
    if migration is None:
        return None
    source = _parse_uuid(migration["source_claim"], "migration.source_claim")
    return MoveRequest(
        make_uuid(), MigrationType(migration["type"]), source, kind and WorkloadKind(kind)
    )


def _parse_amounts(body: Mapping[str, Any]) -> Amounts:
    resources = dict(body.get("resources") or {})
    disk = body.get("disk")
    if disk is None:
        disk = {"root_gb": resources.pop(DISK, 0)}
    elif DISK in resources:
        raise RequestError("disk", f"cannot be combined with resources.{DISK}")
    disk_gb = disk.get("root_gb", 0) + disk.get("ephemeral_gb", 0)
    return Amounts(
        vcpu_milli=_parse_vcpu(resources.pop(VCPU, 0)),
        pcpus=resources.pop(PCPU, 0),
        memory_mb=resources.pop(MEMORY, 0),
        disk_mb=disk_gb * MIB_PER_GIB + disk.get("swap_mb", 0),
        resources={key: amount for key, amount in sorted(resources.items()) if amount},
    )


def _check_limits(limits: Mapping[str, Any], resources: Mapping[str, Any]) -> None:
    """Check that each limit is of a class that the request may claim."""
    known = dict.fromkeys((VCPU, PCPU, MEMORY, DISK, "numa", *resources))
    unknown = next((key for key in limits if key not in known), None)
    if unknown is not None:
        raise RequestError(
            "limits",
            f"unknown key {render_value(unknown)}: expected one of {', '.join(known)}",
        )


def _parse_vcpu(value: float) -> int:
    """Return thousandths; a schema's ``multipleOf: 0.001`` would reject 0.57."""
    if round(value, _MAX_DECIMALS) != value:
        raise RequestError(
            f"resources.{VCPU}",
            f"expected at most {_MAX_DECIMALS} decimals, got {render_value(value)}",
        )
    return round(value * MILLI)


def _parse_pci_request(body: Mapping[str, Any]) -> PciRequest:
    policy = body.get("numa_policy")
    return PciRequest(body["alias"], body.get("count", 1), policy and PciNumaPolicy(policy))


def _parse_uuid(value: object, path: str) -> str:
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise RequestError(path, str(error)) from None
