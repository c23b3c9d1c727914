"""JSON schemas (Draft 2020-12) of the documents that callers and operators send.

Programs check documents against them. Each ``description`` states what a value must be;
errors quote it after "expected".
"""

import enum
from collections.abc import Sequence
from typing import Any

from nodetracker.model.amounts import VCPU
from nodetracker.model.claim import MigrationType
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.numa import MAX_GUEST_CELLS, CpuPolicy, CpuThreadPolicy
from nodetracker.model.pci import PciNumaPolicy
from nodetracker.model.text import TEXT_LENGTH

Schema = dict[str, Any]

MAX_AMOUNT = 2**31 - 1
"""Placement's largest amount; the sum of a thousand of these is still exact in a row."""

TEXT: Schema = {
    "description": f"a text of 1 to {TEXT_LENGTH} characters without control characters "
    "or lone surrogates",
    "type": "string",
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
    # For engines without lookahead, too (Go's, Rust's); see `validator` for $ and surrogates.
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$",
}

UUID: Schema = {
    "description": "a UUID",
    "type": ["string", "integer"],  # 32 digits without quotes are accepted
    "format": "uuid",  # in any form that `parse_uuid` reads, so code checks it
}


def integer(minimum: int = 0, maximum: int = MAX_AMOUNT) -> Schema:
    """Return the schema of an integer; 1.0 is not an integer, see `validator`."""
    return {
        "description": f"an integer from {minimum} to {maximum}",
        "type": "integer",
        "minimum": minimum,
        "maximum": maximum,
    }


def one_of(choices: type[enum.StrEnum]) -> Schema:
    """Return the schema of a member of an enumeration."""
    values = [choice.value for choice in choices]
    return {"description": f"one of {', '.join(values)}", "type": "string", "enum": values}


def list_of(items: Schema, description: str, **limits: int) -> Schema:
    """Return the schema of a list.

    Args:
        limits: ``minItems`` and ``maxItems``.
    """
    return {"description": description, "type": "array", **limits, "items": items}


def record(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """Return the schema of an object without further keys."""
    return {
        "description": "an object",
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema that also accepts null, which means that the key is absent."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    changed: Schema = {"type": [*types, "null"]}
    if "enum" in schema:
        changed["enum"] = [*schema["enum"], None]
    return schema | changed


MAX_PAGE_KB = 2**31 - 1

_MAX_NETWORKS = 64
_MAX_RATIO = 1_000_000

_PAGE_SIZE: Schema = {
    "description": f"small, large, any, a size such as 2MB, or KiB from 1 to {MAX_PAGE_KB}",
    "type": ["string", "integer", "null"],
    "minimum": 1,
    "maximum": MAX_PAGE_KB,
}

NUMA_CELL = record({"vcpus": integer(), "pcpus": integer(), "memory_mb": integer()})

_RATIO: Schema = {
    "description": f"a number above 0 and at most {_MAX_RATIO}",
    "type": ["number", "null"],
    "exclusiveMinimum": 0,
    "maximum": _MAX_RATIO,
}

NUMA = record(
    {
        "nodes": nullable(integer(1, MAX_GUEST_CELLS)),
        "cells": nullable(
            list_of(
                NUMA_CELL,
                f"a list of 1 to {MAX_GUEST_CELLS} cells",
                minItems=1,
                maxItems=MAX_GUEST_CELLS,
            )
        ),
        "cpu_policy": nullable(one_of(CpuPolicy)),
        "cpu_thread_policy": nullable(one_of(CpuThreadPolicy)),
        "page_size": _PAGE_SIZE,
        "networks": nullable(
            list_of(TEXT, f"a list of at most {_MAX_NETWORKS} names", maxItems=_MAX_NETWORKS)
        ),
    }
)

NUMA_LIMITS = record({"cpu_allocation_ratio": _RATIO, "ram_allocation_ratio": _RATIO})


MIGRATION = record(
    {"type": one_of(MigrationType), "source_claim": UUID}, required=["type", "source_claim"]
)


_MAX_PCI_REQUESTS = 32
_MAX_PCI_COUNT = 256
_MAX_LIMIT = 2**53

# Each is looked up in the rows' JSON by a condition of its own. SQLite refuses some
# thousands of them, and MariaDB 10.11 takes 20 s for 2,000.
_MAX_TRAITS = 64
_MAX_CLASSES = 64

CLAIM_WORKLOAD = record(
    {
        "uuid": UUID,
        "kind": one_of(WorkloadKind),
        "name": nullable(TEXT),
        "project_id": nullable(TEXT),
        "user_id": nullable(TEXT),
    },
    required=["uuid"],
)

_RESOURCES: Schema = {
    "description": f"an object of at most {_MAX_CLASSES} resource classes and amounts",
    "type": "object",
    "maxProperties": _MAX_CLASSES,
    "propertyNames": TEXT,
    "properties": {VCPU: True},  # depends on the workload's kind
    "additionalProperties": integer(),
}

CLAIM_DISK = record({"root_gb": integer(), "ephemeral_gb": integer(), "swap_mb": integer()})

_LIMITS: Schema = {
    "description": "an object of resource classes and limits",
    "type": "object",
    "propertyNames": TEXT,
    "properties": {"numa": nullable(NUMA_LIMITS)},
    "additionalProperties": nullable(integer(0, _MAX_LIMIT)),
}

CLAIM_PCI_REQUEST = record(
    {
        "alias": TEXT,
        "count": integer(1, _MAX_PCI_COUNT),
        "numa_policy": nullable(one_of(PciNumaPolicy)),
    },
    required=["alias"],
)

_PCI_REQUESTS = list_of(
    CLAIM_PCI_REQUEST,
    f"a list of at most {_MAX_PCI_REQUESTS} PCI requests",
    maxItems=_MAX_PCI_REQUESTS,
)

_TRAITS = list_of(TEXT, f"a list of at most {_MAX_TRAITS} traits", maxItems=_MAX_TRAITS)

_IS_CONTAINER: Schema = {
    "properties": {
        "workload": {
            "properties": {"kind": {"const": WorkloadKind.CONTAINER.value}},
            "required": ["kind"],
        }
    }
}

_HAS_KIND_OF_SOURCE: Schema = {
    "properties": {
        "workload": {"properties": {"kind": False}},
        "migration": {"description": "an object", "type": "object"},
    },
    "required": ["migration"],
}

_CONTAINER_VCPU: Schema = {  # at most three decimals, which code checks
    "description": f"a number from 0 to {MAX_AMOUNT}",
    "type": "number",
    "minimum": 0,
    "maximum": MAX_AMOUNT,
}


def _vcpu(schema: Schema) -> Schema:
    return {"properties": {"resources": {"properties": {VCPU: schema}}}}


CLAIM_REQUEST: Schema = {
    **record(
        {
            "uuid": nullable(UUID),
            "workload": CLAIM_WORKLOAD,
            "resources": nullable(_RESOURCES),
            "disk": nullable(CLAIM_DISK),
            "host": nullable(TEXT),
            "nodename": nullable(TEXT),
            "node": nullable(TEXT),  # the same as nodename
            "limits": nullable(_LIMITS),
            "numa": nullable(NUMA),
            "pci_requests": nullable(_PCI_REQUESTS),
            "required_traits": nullable(_TRAITS),
            "migration": nullable(MIGRATION),
        },
        required=["workload"],
    ),
    "if": _IS_CONTAINER,
    "then": _vcpu(_CONTAINER_VCPU),
    "else": {
        "if": _HAS_KIND_OF_SOURCE,
        "then": _vcpu(_CONTAINER_VCPU),
        "else": _vcpu(integer()),
    },
}


MAX_CLAIMS = 500

_REQUESTS = list_of(CLAIM_REQUEST, f"1 to {MAX_CLAIMS} requests", minItems=1, maxItems=MAX_CLAIMS)

CLAIM_REQUESTS: Schema = record({"claims": _REQUESTS}, required=["claims"])

MIGRATION_REQUESTS: Schema = record({"migrations": _REQUESTS}, required=["migrations"])


def _one_or_many(many: Schema) -> Schema:
    """Return the schema of a request, or of an object with a list of them."""
    return {
        "if": {"type": "object", "required": many["required"]},
        "then": many,
        "else": CLAIM_REQUEST,
    }


CLAIM_REQUEST_OR_REQUESTS: Schema = _one_or_many(CLAIM_REQUESTS)

MIGRATION_REQUEST_OR_REQUESTS: Schema = _one_or_many(MIGRATION_REQUESTS)


_LONGEST_NAME = 200
_LARGEST_RATIO = 3.4e38

PROVIDER_FILE: Schema = {
    "description": "a mapping with the keys meta and providers",
    "type": "object",
    "required": ["meta"],
    "properties": {
        "meta": {
            "description": "a mapping with the key schema_version",
            "type": "object",
            "required": ["schema_version"],
            "properties": {
                "schema_version": {
                    "description": "a version 1.x as text, such as '1.0'",
                    "type": "string",
                    "pattern": r"^1\.(0|[1-9][0-9]*)$",
                }
            },
        },
        "providers": list_of({"description": "a mapping", "type": "object"}, "a list of providers"),
    },
}

_ADDITIONAL: Schema = {
    "description": "a mapping with the key additional",
    "type": "object",
}

PROVIDER: Schema = {
    "description": "a mapping",
    "type": "object",
    "required": ["identification"],
    "properties": {
        "identification": {
            "description": "either uuid or name",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {
                "uuid": TEXT,
                "name": {
                    **TEXT,
                    "description": f"a name of 1 to {_LONGEST_NAME} characters",
                    "maxLength": _LONGEST_NAME,
                },
            },
        },
        "inventories": {
            **_ADDITIONAL,
            "properties": {
                "additional": list_of(
                    {"description": "a mapping of resource classes", "type": "object"},
                    "a list of mappings of resource classes",
                )
            },
        },
        "traits": {
            **_ADDITIONAL,
            "properties": {"additional": list_of(TEXT, "a list of traits")},
        },
    },
}

CLASS_INVENTORY: Schema = record(
    {
        "total": integer(1),
        "reserved": integer(),
        "min_unit": integer(1),
        "max_unit": integer(1),
        "step_size": integer(1),
        "allocation_ratio": {
            "description": f"a number above 0, at most {_LARGEST_RATIO:g}",
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": _LARGEST_RATIO,
        },
    },
    required=("total",),
)
