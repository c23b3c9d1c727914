"""What columns may contain, and what is read of a value that its column may not contain.

A stored value is checked where it is read, by the type of its column, and where a host's
values are written. In its place a reader gets a harmless one of its own type, by which
`list_damage` finds the row's damaged columns. So no row fails a reader of others.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from nodetracker.accounting.withheld import COLUMN_KEY, Withholding
from nodetracker.model.change import MERGED, ChangeKind
from nodetracker.model.claim import Requirement
from nodetracker.model.cpuset import MAX_CPU_ID, parse_cpu_set
from nodetracker.model.errors import RequestError
from nodetracker.model.fact import FactState
from nodetracker.model.guest import GuestPins, WorkloadKind
from nodetracker.model.numa import NumaAssignment, ReservedPages
from nodetracker.model.serializer import make_reader
from nodetracker.model.shapes import (
    LARGEST,
    Shape,
    ShapeError,
    choice,
    choice_of,
    fields,
    flag,
    items,
    keyed,
    maybe,
    number,
    plain,
    text,
    whole,
)
from nodetracker.model.tolerance import LossPlan

MAX_JSON = 4 * 2**20
"""Characters of a column of JSON; a longer one is not parsed."""

MAX_RATIO = 10**9
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Range of stored times, in which all arithmetic of ages is possible."""


class DamagedInt(int):
    """Replaces a number that its column may not have."""


class DamagedFloat(float):
    """Replaces a number that its column may not have."""


class DamagedText(str):
    """Replaces a text that its column may not have."""

    __slots__ = ()


class DamagedTime(datetime):
    """Replaces a time that its column may not have."""


class DamagedObject(dict[str, Any]):
    """Replaces JSON that its column may not have."""


class DamagedList(list[Any]):
    """Replaces JSON that its column may not have."""


_PLAIN: Mapping[type, Callable[[Any], Any]] = {
    DamagedInt: int,
    DamagedFloat: float,
    DamagedText: str,
    DamagedTime: lambda _: EARLIEST,
    DamagedObject: dict,
    DamagedList: list,
}
_DAMAGED = frozenset(_PLAIN)
NO_TIME = DamagedTime(1970, 1, 1, tzinfo=UTC)


def list_damage(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the columns of a row that have values which they may not have.

    >>> list_damage({"vcpus": 4, "memory_mb": DamagedInt()})
    ('memory_mb',)
    """
    if _DAMAGED.isdisjoint(map(type, row.values())):
        return ()
    return tuple(str(name) for name, value in row.items() if type(value) in _DAMAGED)


def is_damaged(values: Iterable[Any]) -> bool:
    """Return whether any value replaces one that its column may not have."""
    return not _DAMAGED.isdisjoint(map(type, values))


def as_plain(value: Any) -> Any:
    """Return a value of a plain type, which every database accepts."""
    make = _PLAIN.get(type(value))
    return value if make is None else make(value)


def _cpu_list(value: Any) -> None:
    text(8 * (MAX_CPU_ID + 1))(value)
    try:
        parse_cpu_set(value)
    except ValueError as error:
        raise ShapeError(str(error)) from None


def typed(kind: Any) -> Shape:
    """Return the shape of what `encode` returns of a dataclass, with numbers in range."""
    read = make_reader(kind, is_strict=False)

    def check(value: Any) -> None:
        plain(value)
        try:
            read(value, "")
        except RequestError as error:
            raise ShapeError(str(error)) from None

    return check


def _time(value: Any) -> None:
    text(64)(value)
    try:
        moment = datetime.fromisoformat(value)
        is_known = moment.tzinfo is not None and EARLIEST <= moment <= LATEST
    except ValueError:
        is_known = False
    if not is_known:
        raise ShapeError(f"{value!r} is not a time")


def _count(value: Any) -> None:
    if type(value) is not str or not (value.isascii() and value.isdigit() and len(value) < 16):
        whole()(value)  # as text in rows of old versions


def _load(value: Any) -> None:
    items(number(), 3)(value)
    if len(value) != 3:
        raise ShapeError(f"{len(value)} items, not 3")


_AMOUNT = whole(0, 2**44)
_USED = whole(-LARGEST)
_CPU = whole(0, MAX_CPU_ID)
_CPUS = items(_CPU, MAX_CPU_ID + 1)
_CELL_ID = maybe(whole(-1, MAX_CPU_ID))
_NAME = text(1024)
_NAMES = items(_NAME)
_SECONDS = maybe(number(0, 10**9))
_SIZE = whole(1, 2**31)
_CELL = fields(
    {
        "id": _CPU,
        "cpuset": _CPUS,
        "pcpuset": _CPUS,
        "memory": _AMOUNT,
        "siblings": items(_CPUS, MAX_CPU_ID + 1),
        "mempages": items(
            fields({"size_kb": _SIZE, "total": _AMOUNT, "reserved": _AMOUNT}, {"used": _USED}), 64
        ),
    },
    {
        "cpu_usage": _USED,
        "memory_usage": _USED,
        "pinned_cpus": _CPUS,
        "networks": _NAMES,
        "socket": _CELL_ID,
        "distances": keyed(whole(0, 2**31)),
    },
)
_FACT = fields(
    {"state": choice(FactState), "source": _NAME, "since": _time, "error": maybe(text(65536))},
    {"unseen_kinds": items(choice(WorkloadKind), 8)},
)
_CLASS = fields(
    {"total": _AMOUNT},
    {
        "reserved": _AMOUNT,
        "min_unit": whole(1),
        "max_unit": maybe(whole()),
        "step_size": whole(1),
        "allocation_ratio": number(0, MAX_RATIO),
    },
)
_NIC = fields(
    {"name": _NAME, "driver": maybe(_NAME), "speed_mbps": maybe(number())},
    {"address": maybe(_NAME)},
)
_CACHE = fields(
    {
        "level": whole(0, 16),
        "kind": choice_of("data", "instruction", "unified"),
        "size_kb": _AMOUNT,
        "count": _AMOUNT,
    }
)
_GPU = fields(
    {"address": text(64)},
    {
        **dict.fromkeys(("vendor", "name", "uuid", "driver_version"), maybe(_NAME)),
        **dict.fromkeys(("mig_uuids", "guests", "withheld_by"), _NAMES),
        "memory_mb": _AMOUNT,
        "numa_node": _CELL_ID,
        "problem": text(65536),
        "resource_class": maybe(_NAME),
    },
)
_TEXTS = keyed(maybe(text()))

NODE_SHAPES: Mapping[str, Shape] = {
    "cpu_info": fields(
        {},
        {
            **dict.fromkeys(("online", "offline", "shared", "dedicated"), maybe(_cpu_list)),
            **dict.fromkeys(("arch", "model", "vendor"), maybe(_NAME)),
            "topology": maybe(keyed(whole(0, 2**31), 64)),
            "features": _NAMES,
        },
    ),
    "supported_instances": items(items(text(64), 3)),
    "pci_stats": items(
        fields({"count": _AMOUNT}, {"vendor_id": _NAME, "product_id": _NAME, "numa_node": _CELL_ID})
    ),
    "stats": keyed(_count, 100_000),
    "numa_topology": fields({}, {"cells": items(_CELL, 1024), "is_limited": flag}),
    "ratio_origins": keyed(text(64)),
    "labels": _TEXTS,
    "runtimes": _NAMES,
    "engine": _TEXTS,
    "reserved": fields(
        {},
        {
            **dict.fromkeys(("vcpus", "memory_mb", "disk_mb", "driver_disk_mb"), number(0, 2**44)),
            "huge_pages": items(typed(ReservedPages)),
            COLUMN_KEY: items(typed(Withholding)),
        },
    ),
    "overhead": fields({}, {"memory_mb": number(0, 2**44)}),
    "inventory": keyed(_CLASS),
    "traits": items(text(255)),
    "system": fields({}, {"nics": items(_NIC), "caches": items(_CACHE)}),
    "disks": items(fields({"name": _NAME}, {"size_mb": maybe(number())})),
    "gpus": items(_GPU),
    "mdev_types": keyed(keyed(fields({}, {"name": _NAME, "available": _AMOUNT}))),
    "facts": keyed(_FACT, 64),
    "metrics": keyed(_USED),
}
"""Column of JSON of ``compute_nodes`` -> its shape."""

CAPACITY_SEEN = fields(
    {"cpus": _AMOUNT, "memory_mb": _AMOUNT, "local_gb": _AMOUNT, "has_jumped": flag}, {}
)
LAST_AUDIT = fields(
    {},
    {
        "age_seconds": _SECONDS,
        "audit_interval_seconds": _SECONDS,
        "load_average": maybe(_load),
        "nodes": keyed(
            fields({"age_seconds": _SECONDS}, {"error": text(65536), "agents": whole()}), 100_000
        ),
        "schema_revision": maybe(text(64)),
    },
)
PINS = typed(GuestPins)
NUMA = typed(NumaAssignment)
REQUIREMENT = typed(Requirement)
LOSS_PLAN = typed(LossPlan)
AMOUNTS = keyed(whole())
ADDRESSES = items(text(64))
UUIDS = items(text(64), 1_000_000)
TAGS = _TEXTS
OBJECT = keyed(plain, 100_000)
HISTORY = fields(
    {},
    {
        MERGED: items(
            fields({"at": _time, "nodename": _NAME, "what": choice(ChangeKind), "diff": OBJECT}),
            100_000,
        )
    },
    100_000,
)


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is out of range")


def _parse_float(text: str) -> float:
    value = float(text)
    return value if -LARGEST <= value <= LARGEST else _refuse_number(text)


_decoder = json.JSONDecoder(parse_float=_parse_float, parse_constant=_refuse_number)


def parse_column(stored: Any) -> Any:
    """Parse the JSON of a column.

    Raises:
        ShapeError: it is too long to be parsed, or not JSON.
    """
    if type(stored) is not str or len(stored) > MAX_JSON:
        raise ShapeError("not a text, or too long")
    try:
        return _decoder.decode(stored)
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"not JSON: {error}") from None
