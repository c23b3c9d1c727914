"""Reading a claim request: the JSON that files, REST and RPC carry, checked key by key."""

import hashlib
import json
import math
import uuid as uuid_module
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from nodetracker.errors import RequestError
from nodetracker.identifier import parse_uuid
from nodetracker.model.claim import DISK, MEMORY, PCPU, VCPU, Amounts, ClaimRequest, Workload
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.migration import MigrationType, MoveRequest
from nodetracker.model.numa_request import (
    NumaRequestError,
    parse_numa_limits,
    parse_numa_request,
)
from nodetracker.model.pci_request import PciNumaPolicy, PciRequest
from nodetracker.model.text import TEXT_LENGTH, sanitize_text
from nodetracker.units import MIB_PER_GIB, MILLI

_KEYS = frozenset(
    {
        "uuid", "workload", "resources", "disk", "host", "nodename", "limits", "numa",
        "pci_requests", "required_traits", "migration",
    }
)  # fmt: skip
_WORKLOAD_KEYS = frozenset({"uuid", "kind", "name", "project_id", "user_id"})
_MIGRATION_KEYS = frozenset({"type", "source_claim"})
_DISK_KEYS = frozenset({"root_gb", "ephemeral_gb", "swap_mb"})
_PCI_KEYS = frozenset({"alias", "count", "numa_policy"})
_MAX_PCI_REQUESTS = 32
_MAX_PCI_COUNT = 256
_MAX_AMOUNT = 2**31 - 1
"""Placement's largest; the sum of a thousand is still exact in a row."""
_MAX_LIMIT = 2**53
_MAX_DECIMALS = 3

T = TypeVar("T")


def parse_claim_request(
    value: object, make_uuid: Callable[[], str] = lambda: str(uuid_module.uuid4())
) -> ClaimRequest:
    """Read a request.

    Args:
        value: what the JSON holds.
        make_uuid: for a request that brings none, and for a migration.

    Raises:
        RequestError: a key is unknown, missing, or its value cannot be meant;
            the message begins with its path.
    """
    body = _object(value, "", _KEYS)
    workload = _parse_workload(body.get("workload"))
    given = body.get("uuid")
    amounts = _parse_amounts(body, workload.kind)
    limits = dict(_optional(body, "limits", _object) or {})
    try:
        numa = parse_numa_request(
            body.get("numa"), amounts.vcpu_milli, amounts.pcpus, amounts.memory_mb
        )
        numa_limits = parse_numa_limits(limits.pop("numa", None))
    except NumaRequestError as error:
        raise RequestError(error.path, error.reason) from None
    if numa is not None:  # a dedicated policy pins what was asked as shared
        amounts = replace(amounts, vcpu_milli=numa.vcpus * MILLI, pcpus=numa.pcpus)
    return ClaimRequest(
        uuid=make_uuid() if given is None else _uuid(given, "uuid"),
        workload=workload,
        amounts=amounts,
        request_hash=hash_request(body),
        host=_optional(body, "host", _text),
        nodename=_optional(body, "nodename", _text),
        limits=_parse_limits(limits),
        numa=numa,
        numa_limits=numa_limits,
        pci_requests=_parse_pci_requests(body.get("pci_requests")),
        required_traits=_parse_traits(body.get("required_traits")),
        migration=_parse_migration(body.get("migration"), make_uuid),
    )


def hash_request(body: Mapping[str, Any]) -> str:
    """Return what tells one body from another; its uuid and the order of keys do not count."""
    rest = {key: item for key, item in body.items() if key != "uuid" and item is not None}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _parse_workload(value: object) -> Workload:
    if value is None:
        raise RequestError("workload", "is missing")
    body = _object(value, "workload", _WORKLOAD_KEYS)
    if "uuid" not in body:
        raise RequestError("workload.uuid", "is missing")
    kind = body.get("kind", WorkloadKind.INSTANCE.value)
    if kind not in tuple(WorkloadKind):
        raise RequestError("workload.kind", f"{kind!r} is none of {', '.join(WorkloadKind)}")
    texts = {
        key: _text(body[key], f"workload.{key}")
        for key in ("name", "project_id", "user_id")
        if body.get(key) is not None
    }
    return Workload(_uuid(body["uuid"], "workload.uuid"), WorkloadKind(kind), **texts)


def _parse_migration(value: object, make_uuid: Callable[[], str]) -> MoveRequest | None:
    if value is None:
        return None
    body = _object(value, "migration", _MIGRATION_KEYS)
    for key in sorted(_MIGRATION_KEYS - body.keys()):
        raise RequestError(f"migration.{key}", "is missing")
    if body["type"] not in tuple(MigrationType):
        raise RequestError(
            "migration.type", f"{body['type']!r} is none of {', '.join(MigrationType)}"
        )
    source = _uuid(body["source_claim"], "migration.source_claim")
    return MoveRequest(make_uuid(), MigrationType(body["type"]), source)


def _parse_amounts(body: Mapping[str, Any], kind: WorkloadKind) -> Amounts:
    resources = dict(_optional(body, "resources", _object) or {})
    disk_mb = 0
    if body.get("disk") is not None:
        if DISK in resources:
            raise RequestError("disk", f"may not stand beside resources.{DISK}")
        disk = _object(body["disk"], "disk", _DISK_KEYS)
        sizes = {key: _integer(disk.get(key, 0), f"disk.{key}") for key in _DISK_KEYS}
        disk_mb = (sizes["root_gb"] + sizes["ephemeral_gb"]) * MIB_PER_GIB + sizes["swap_mb"]
    elif DISK in resources:
        disk_mb = _integer(resources[DISK], f"resources.{DISK}") * MIB_PER_GIB
    known = {key: _integer(resources.get(key, 0), f"resources.{key}") for key in (PCPU, MEMORY)}
    further = {
        _text(key, "resources"): _integer(item, f"resources.{key}")
        for key, item in resources.items()
        if key not in (VCPU, PCPU, MEMORY, DISK)
    }
    return Amounts(
        vcpu_milli=_parse_vcpu(resources.get(VCPU, 0), kind),
        pcpus=known[PCPU],
        memory_mb=known[MEMORY],
        disk_mb=disk_mb,
        resources={key: item for key, item in sorted(further.items()) if item},
    )


def _parse_vcpu(value: object, kind: WorkloadKind) -> int:
    path = f"resources.{VCPU}"
    if kind is WorkloadKind.INSTANCE or isinstance(value, int):
        return _integer(value, path) * MILLI
    if not isinstance(value, float) or not math.isfinite(value) or value < 0:
        raise RequestError(path, f"{value!r} is no number that is 0 or more")
    if value > _MAX_AMOUNT:
        raise RequestError(path, f"{value!r} is more than {_MAX_AMOUNT}")
    if round(value, _MAX_DECIMALS) != value:
        raise RequestError(path, f"{value!r} has more than {_MAX_DECIMALS} decimals")
    return round(value * MILLI)


def _parse_limits(limits: Mapping[str, Any]) -> dict[str, int | None]:
    return {
        key: None if item is None else _integer(item, f"limits.{key}", _MAX_LIMIT)
        for key, item in limits.items()
    }


def _parse_pci_requests(value: object) -> tuple[PciRequest, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_PCI_REQUESTS:
        raise RequestError("pci_requests", f"is no list of at most {_MAX_PCI_REQUESTS}")
    return tuple(
        _parse_pci_request(item, f"pci_requests[{index}]") for index, item in enumerate(value)
    )


def _parse_pci_request(value: object, path: str) -> PciRequest:
    body = _object(value, path, _PCI_KEYS)
    if "alias" not in body:
        raise RequestError(f"{path}.alias", "is missing")
    count = _integer(body.get("count", 1), f"{path}.count")
    if not 0 < count <= _MAX_PCI_COUNT:
        raise RequestError(f"{path}.count", f"{count} is not from 1 to {_MAX_PCI_COUNT}")
    policy = body.get("numa_policy")
    if policy is not None and policy not in tuple(PciNumaPolicy):
        raise RequestError(
            f"{path}.numa_policy", f"{policy!r} is none of {', '.join(PciNumaPolicy)}"
        )
    return PciRequest(
        _text(body["alias"], f"{path}.alias"), count, policy and PciNumaPolicy(policy)
    )


def _parse_traits(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RequestError("required_traits", f"{value!r} is no list")
    traits = {_text(item, f"required_traits[{index}]") for index, item in enumerate(value)}
    return tuple(sorted(traits))


def _object(value: object, path: str, keys: frozenset[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(path, f"{value!r} is no object")
    for key in value:
        if not isinstance(key, str) or (keys is not None and key not in keys):
            raise RequestError(f"{path}.{key}" if path else str(key), "is no known key")
    return value


def _optional(body: Mapping[str, Any], key: str, read: Callable[[object, str], T]) -> T | None:
    return None if body.get(key) is None else read(body[key], key)


def _uuid(value: object, path: str) -> str:
    try:
        return parse_uuid(value)
    except ValueError as error:
        raise RequestError(path, str(error)) from None


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value or len(value) > TEXT_LENGTH:
        raise RequestError(path, f"{value!r} is no text of 1 to {TEXT_LENGTH} characters")
    if sanitize_text(value) != value:
        raise RequestError(path, f"{value!r} has characters that no database holds")
    return value


def _integer(value: object, path: str, largest: int = _MAX_AMOUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError(path, f"{value!r} is no integer that is 0 or more")
    if value > largest:
        raise RequestError(path, f"{value!r} is more than {largest}")
    return value
