"""Schemas of the keys ``numa`` and ``limits.numa`` of a claim request."""

from nodetracker.accounting.requests.fields import (
    TEXT,
    Schema,
    integer,
    list_of,
    nullable,
    one_of,
    record,
)
from nodetracker.model.numa import MAX_GUEST_CELLS, CpuPolicy, CpuThreadPolicy

MAX_PAGE_KB = 2**31 - 1

_MAX_NETWORKS = 64
_MAX_RATIO = 1_000_000

_PAGE_SIZE: Schema = {
    "description": f"small, large, any, a size such as 2MB, or KiB from 1 to {MAX_PAGE_KB}",
    "type": ["string", "integer", "null"],
    "minimum": 1,
    "maximum": MAX_PAGE_KB,
}

_CELL = record({"vcpus": integer(), "pcpus": integer(), "memory_mb": integer()})

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
                _CELL,
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
