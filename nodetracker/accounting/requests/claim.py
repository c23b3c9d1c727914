"""Schema of a claim request, the JSON in files and in RPC calls."""

from nodetracker.accounting.requests.fields import (
    MAX_AMOUNT,
    TEXT,
    UUID,
    Schema,
    integer,
    list_of,
    nullable,
    one_of,
    record,
)
from nodetracker.accounting.requests.migration import MIGRATION
from nodetracker.accounting.requests.numa import NUMA, NUMA_LIMITS
from nodetracker.model.claim import VCPU
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.pci import PciNumaPolicy

_MAX_PCI_REQUESTS = 32
_MAX_PCI_COUNT = 256
_MAX_LIMIT = 2**53

# Each is looked up in the rows' JSON by a condition of its own. SQLite refuses some
# thousands of them, and MariaDB 10.11 takes 20 s for 2,000.
_MAX_TRAITS = 64
_MAX_CLASSES = 64

_WORKLOAD = record(
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

_DISK = record({"root_gb": integer(), "ephemeral_gb": integer(), "swap_mb": integer()})

_LIMITS: Schema = {
    "description": "an object of resource classes and limits",
    "type": "object",
    "propertyNames": TEXT,
    "properties": {"numa": nullable(NUMA_LIMITS)},
    "additionalProperties": nullable(integer(0, _MAX_LIMIT)),
}

_PCI_REQUEST = record(
    {
        "alias": TEXT,
        "count": integer(1, _MAX_PCI_COUNT),
        "numa_policy": nullable(one_of(PciNumaPolicy)),
    },
    required=["alias"],
)

_PCI_REQUESTS = list_of(
    _PCI_REQUEST,
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
            "workload": _WORKLOAD,
            "resources": nullable(_RESOURCES),
            "disk": nullable(_DISK),
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
