"""Parser of claim requests from before the schemas, without its messages.

It says which requests are accepted and what they mean: each key is checked by
hand, in Python's own terms. The reader of today must agree with it.
"""

import hashlib
import json
import math
import unicodedata
import uuid
from dataclasses import replace

from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import ClaimRequest, MigrationType, MoveRequest, Workload
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import (
    CpuPolicy,
    CpuThreadPolicy,
    GuestCell,
    NumaLimits,
    NumaRequest,
    PageSize,
)
from nodetracker.model.pci import PciNumaPolicy, PciRequest
from nodetracker.model.units import parse_page_size_kb

MAX_AMOUNT = 2**31 - 1


class RefusedError(Exception):
    """The request is invalid."""


def read_claim_request(body, make_uuid):
    read_object(
        body,
        [
            "uuid",
            "workload",
            "resources",
            "disk",
            "host",
            "nodename",
            "node",
            "limits",
            "numa",
            "pci_requests",
            "required_traits",
            "migration",
        ],
    )
    if read_optional(body, "node", read_text) is not None:
        if read_optional(body, "nodename", read_text) is not None:
            raise RefusedError
        body = {"nodename" if key == "node" else key: item for key, item in body.items()
                if key != "nodename"}  # fmt: skip
    workload = read_workload(body.get("workload"))
    kind = body["workload"].get("kind")
    is_left_out = kind is None and body.get("migration") is not None
    amounts = read_amounts(body, WorkloadKind.CONTAINER if is_left_out else workload.kind)
    limits = dict(read_optional(body, "limits", read_object) or {})
    numa = read_numa(body.get("numa"), amounts.vcpu_milli, amounts.pcpus, amounts.memory_mb)
    numa_limits = read_numa_limits(limits.pop("numa")) if "numa" in limits else None
    if numa is not None:
        amounts = replace(amounts, vcpu_milli=numa.vcpus * 1000, pcpus=numa.pcpus)
    return ClaimRequest(
        uuid=make_uuid() if body.get("uuid") is None else read_uuid(body["uuid"]),
        workload=workload,
        amounts=amounts,
        has_new_uuid=body.get("uuid") is None,
        request_hash=hash_body(body),
        host=read_optional(body, "host", read_text),
        nodename=read_optional(body, "nodename", read_text),
        limits={
            read_limited(key, body): None if item is None else read_integer(item, most=2**53)
            for key, item in limits.items()
        },
        numa=numa,
        numa_limits=numa_limits,
        pci_requests=tuple(
            read_pci_request(item)
            for item in read_optional(body, "pci_requests", read_list(32)) or ()
        ),
        required_traits=tuple(
            sorted(
                {
                    read_text(item)
                    for item in read_optional(body, "required_traits", read_list(64)) or ()
                }
            )
        ),
        migration=read_migration(body.get("migration"), kind, make_uuid),
    )


def hash_body(body):
    rest = {key: item for key, item in body.items() if key != "uuid" and item is not None}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_workload(value):
    body = read_object(value, ["uuid", "kind", "name", "project_id", "user_id"])
    texts = {
        key: read_text(body[key])
        for key in ("name", "project_id", "user_id")
        if body.get(key) is not None
    }
    kind = read_choice(body.get("kind", "instance"), WorkloadKind)
    return Workload(read_uuid(body.get("uuid")), kind, **texts)


def read_migration(value, kind, make_uuid):
    if value is None:
        return None
    body = read_object(value, ["type", "source_claim"])
    source = read_uuid(body.get("source_claim"))
    type_ = read_choice(body.get("type"), MigrationType)
    return MoveRequest(make_uuid(), type_, source, kind and WorkloadKind(kind))


def read_amounts(body, kind):
    resources = read_optional(body, "resources", read_object) or {}
    refuse(len(resources) > 64)
    disk_mb = 0
    if body.get("disk") is not None:
        refuse("DISK_GB" in resources)
        disk = read_object(body["disk"], ["root_gb", "ephemeral_gb", "swap_mb"])
        root, ephemeral, swap = (
            read_integer(disk.get(key, 0)) for key in ("root_gb", "ephemeral_gb", "swap_mb")
        )
        disk_mb = (root + ephemeral) * 1024 + swap
    elif "DISK_GB" in resources:
        disk_mb = read_integer(resources["DISK_GB"]) * 1024
    further = {
        read_text(key): read_integer(item)
        for key, item in resources.items()
        if key not in ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
    }
    return Amounts(
        vcpu_milli=read_vcpu(resources.get("VCPU", 0), kind),
        pcpus=read_integer(resources.get("PCPU", 0)),
        memory_mb=read_integer(resources.get("MEMORY_MB", 0)),
        disk_mb=disk_mb,
        resources={key: item for key, item in sorted(further.items()) if item},
    )


def read_vcpu(value, kind):
    if kind is WorkloadKind.INSTANCE or isinstance(value, int):
        return read_integer(value) * 1000
    refuse(not isinstance(value, float) or not math.isfinite(value) or value < 0)
    refuse(value > MAX_AMOUNT or round(value, 3) != value)
    return round(value * 1000)


def read_pci_request(value):
    body = read_object(value, ["alias", "count", "numa_policy"])
    return PciRequest(
        read_text(body.get("alias")),
        read_integer(body.get("count", 1), least=1, most=256),
        read_optional(body, "numa_policy", lambda policy: read_choice(policy, PciNumaPolicy)),
    )


def read_numa(value, vcpu_milli, pcpus, memory_mb):
    if value is None and pcpus == 0:
        return None
    body = read_object(
        {} if value is None else value,
        ["nodes", "cells", "cpu_policy", "cpu_thread_policy", "page_size", "networks"],
    )
    refuse(vcpu_milli % 1000)
    vcpus = vcpu_milli // 1000
    policy = read_cpu_policy(body.get("cpu_policy"), vcpus, pcpus)
    if policy is CpuPolicy.DEDICATED and pcpus == 0:
        vcpus, pcpus = 0, vcpus
    threads = read_optional(
        body, "cpu_thread_policy", lambda item: read_choice(item, CpuThreadPolicy)
    )
    refuse(threads is not None and policy is CpuPolicy.SHARED)
    return NumaRequest(
        cells=read_cells(body, GuestCell(vcpus, pcpus, memory_mb)),
        cpu_policy=policy,
        cpu_thread_policy=threads or CpuThreadPolicy.PREFER,
        page_size=read_optional(body, "page_size", read_page_size),
        networks=tuple(sorted(set(read_optional(body, "networks", read_networks) or ()))),
    )


def read_numa_limits(value):
    body = read_object(
        {} if value is None else value, ["cpu_allocation_ratio", "ram_allocation_ratio"]
    )
    return NumaLimits(**{key: read_optional(body, key, read_ratio) for key in body})


def read_ratio(value):
    refuse(not isinstance(value, int | float) or isinstance(value, bool))
    refuse(not 0 < value <= 1_000_000)
    return float(value)


def read_cpu_policy(value, vcpus, pcpus):
    if value is None:
        if pcpus == 0:
            return CpuPolicy.SHARED
        return CpuPolicy.MIXED if vcpus else CpuPolicy.DEDICATED
    policy = read_choice(value, CpuPolicy)
    refuse(policy is CpuPolicy.SHARED and pcpus)
    refuse(policy is CpuPolicy.DEDICATED and vcpus and pcpus)
    refuse(policy is CpuPolicy.MIXED and not (vcpus and pcpus))
    return policy


def read_page_size(value):
    if isinstance(value, str):
        if value in tuple(PageSize):
            return PageSize(value)
        try:
            value = parse_page_size_kb(value)
        except ValueError:
            raise RefusedError from None
    return read_integer(value, least=1)


def read_networks(value):
    for name in read_list(64)(value):
        read_text(name)
    return value


def read_cells(body, total):
    nodes = read_optional(body, "nodes", lambda value: read_integer(value, least=1, most=128))
    if body.get("cells") is None:
        nodes = nodes or 1
        refuse(total.vcpus % nodes or total.pcpus % nodes or total.memory_mb % nodes)
        refuse(total.vcpus + total.pcpus == 0)
        cell = GuestCell(total.vcpus // nodes, total.pcpus // nodes, total.memory_mb // nodes)
        return (cell,) * nodes
    cells = tuple(map(read_cell, read_list(128)(body["cells"])))
    refuse(not cells or nodes not in (None, len(cells)))
    for key in ("vcpus", "pcpus", "memory_mb"):
        refuse(sum(getattr(cell, key) for cell in cells) != getattr(total, key))
    return cells


def read_cell(value):
    keys = ["vcpus", "pcpus", "memory_mb"]
    body = read_object(value, keys)
    cell = GuestCell(*(read_integer(body.get(key, 0), most=math.inf) for key in keys))
    refuse(cell.vcpus + cell.pcpus == 0)
    return cell


def read_optional(body, key, read):
    return None if body.get(key) is None else read(body[key])


def read_object(value, keys=None):
    refuse(not isinstance(value, dict))
    for key in value:
        refuse(not isinstance(key, str) or (keys is not None and key not in keys))
    return value


def read_list(most=math.inf):
    def read(value):
        refuse(not isinstance(value, list) or len(value) > most)
        return value

    return read


def read_choice(value, kind):
    refuse(value not in tuple(kind))
    return kind(value)


def read_uuid(value):
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise RefusedError from None


def read_text(value):
    refuse(not isinstance(value, str) or not 0 < len(value) <= 255)
    refuse(any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value))
    return value


def read_limited(key, body):
    known = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB", *(body.get("resources") or {}))
    refuse(key not in known)
    return key


def read_integer(value, least=0, most=MAX_AMOUNT):
    refuse(isinstance(value, bool) or not isinstance(value, int))
    refuse(not least <= value <= most)
    return value


def refuse(problem):
    if problem:
        raise RefusedError
