"""Show what is measured on a node, beside what is allocated."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodetracker.model.amount_text import render_gib, render_mib
from nodetracker.model.amounts import MEMORY, VCPU
from nodetracker.model.cpuset import parse_cpu_set
from nodetracker.model.fact import FactState
from nodetracker.model.fleet import measure_guests
from nodetracker.model.node import MEASURE_INTERVAL_SECONDS, NodeRecord, NodeValues
from nodetracker.model.serializer import pick
from nodetracker.model.service import ServiceRecord
from nodetracker.model.text import count_noun, render_time
from nodetracker.model.units import MILLI
from nodetracker.views.services import find_read_at
from nodetracker.views.values import render_age


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of a node, in words.

    Attributes:
        at: when it was measured; None = it is unknown.
    """

    label: str
    text: str
    at: datetime | None

    def render(self, now: datetime) -> str:
        """Return the text with its age.

        >>> from datetime import UTC, timedelta
        >>> now = datetime(2026, 3, 1, tzinfo=UTC)
        >>> Measurement("CPU", "23 % in use", now - timedelta(seconds=4)).render(now)
        '23 % in use, 4 s ago'
        """
        if self.at is None:
            return self.text
        return f"{self.text}, {render_age((now - self.at).total_seconds())} ago"


def list_measurements(record: NodeRecord, service: ServiceRecord | None) -> list[Measurement]:
    """Return what is measured on a node.

    Args:
        record: all of its columns.
        service: of its host's agent, with its last audit.
    """
    seen = None if service is None else service.last_seen_up
    return [
        _make("Load", _render_load(record.values, service), seen),
        *(
            _make(label, text, _find_measured_at(record, service, fact))
            for label, text, fact in _list_amounts(record.values)
        ),
    ]


def list_texts(record: NodeRecord, service: ServiceRecord | None, now: datetime) -> list[str]:
    """Return a line for each measurement, with its age."""
    return [f"{found.label}: {found.render(now)}" for found in list_measurements(record, service)]


def render_measurements(
    record: NodeRecord, service: ServiceRecord | None, state: str
) -> dict[str, Any]:
    """Return the load as numbers, and everything in words; other numbers have their columns.

    What was measured before a node went down says nothing of now, and is left out.

    Args:
        state: of the service.
    """
    if state != "up":
        return {"load_average": None, "measured": []}
    return {
        "load_average": service and service.last_audit.get("load_average"),
        "measured": [
            pick(found, "label", "text") | {"at": render_time(found.at)}
            for found in list_measurements(record, service)
        ],
    }


def _make(label: str, text: str, at: datetime | None) -> Measurement:
    return Measurement(label, text, at) if text and at else Measurement(label, "unknown", None)


def _render_load(values: NodeValues, service: ServiceRecord | None) -> str:
    load = service and service.last_audit.get("load_average")
    if not load:
        return ""
    cpus = len(parse_cpu_set(str(values.cpu_info.get("online") or "")))
    on_cpus = f" on {count_noun(cpus, 'CPU')}" if cpus else ""
    return f"{' '.join(f'{value:.2f}' for value in load)}{on_cpus}"


def _list_amounts(values: NodeValues) -> Iterator[tuple[str, str, str]]:
    """Yield the label, text and fact of each measurement that is in the row."""
    metrics, available = values.metrics, values.mem_available
    if (percent := metrics.get("cpu_percent")) is not None:
        yield "CPU", f"{percent} % in use", "cpu"
    total = render_mib(values.memory_mb)
    known = "" if available is None else f"{render_mib(available)} of {total} available"
    yield "Memory", known, "memory"
    used, total = metrics.get("disk_used_mb"), render_gib(values.local_gb)
    yield "Disk", "" if used is None else f"{render_mib(used)} of {total} in use", "storage"
    if (guests := _render_guests(values)) is not None:
        yield "Guests", guests, "guests"


def _render_guests(values: NodeValues) -> str | None:
    """Return what all guests use of CPUs and memory: "" = unknown, None = there are none."""
    used = measure_guests(values)
    if not used:
        return None
    cpu_milli, memory_mb = used[VCPU], used[MEMORY]
    if memory_mb is None:
        return "" if cpu_milli is None else f"{cpu_milli / MILLI:.1f} CPUs in use, memory unknown"
    cpus = "CPUs unknown," if cpu_milli is None else f"{cpu_milli / MILLI:.1f} CPUs and"
    return f"{cpus} {render_mib(memory_mb)} of memory in use"


def _find_measured_at(
    record: NodeRecord, service: ServiceRecord | None, fact: str
) -> datetime | None:
    """Return when a value of a row was measured; None = it is unknown.

    An agent writes values that change some minutes after its last write; later readings
    confirm those that it leaves as they are.
    """
    found = record.values.facts.get(fact)
    if found is None or found.state is FactState.UNKNOWN:
        return None
    if found.state is FactState.HELD:
        return found.since
    written = record.updated_at or record.created_at
    read = find_read_at(service, record.nodename)
    if written is None or read is None:
        return written
    is_confirmed = (read - written).total_seconds() >= MEASURE_INTERVAL_SECONDS
    return read if is_confirmed else written
