"""Merge several drivers' readings of one node: facts from the first, guests from all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nodetracker.model.fact import Fact, failed
from nodetracker.model.guest import (
    Guest,
    GuestListing,
    PartialGuest,
    WorkloadKind,
    derive_container_uuid,
)
from nodetracker.model.node import HostSnapshot
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind


@dataclass(frozen=True, slots=True)
class DriverReading:
    """The snapshot that one driver read.

    Attributes:
        driver: name of the driver.
        kinds: kinds of its guests; while it fails, no guest of these kinds
            counts as missing.
        last_disk: device id of the filesystem of its guests' disks, as last read.
        is_pending: a newer reading is running: no guest of these kinds counts as
            missing, but nothing has failed.
        gone: uuids of guests that it listed and that do not exist any more.
    """

    driver: str
    kinds: frozenset[WorkloadKind]
    snapshot: HostSnapshot
    last_disk: int | None = None
    is_pending: bool = False
    gone: frozenset[str] = frozenset()

    @property
    def disk(self) -> int | None:
        """Device id of the filesystem of its guests' disks, as last known; None if never."""
        storage = self.snapshot.storage.value
        return self.last_disk if storage is None else storage.instances.device_id


def merge_readings(readings: Sequence[DriverReading]) -> HostSnapshot:
    """Merge the snapshots that several drivers read of the same machine.

    The first driver's facts are used, so that CPUs and memory count once. A
    guest listed by two drivers counts once, as listed by the first of them; a
    container that has the uuid of another one, of another engine, has its own.
    Disks of guests on another filesystem than the first driver's are not
    charged. If a driver failed, the guests fact is partial: the guests of the
    other drivers are fresh and those of the failed one are held. Those of a
    driver that is still being read are as last read.

    Args:
        readings: in the drivers' order, at least one.
    """
    first = readings[0].snapshot
    guests, twice = _merge_guests(readings)
    engines = [reading.snapshot.engine for reading in readings]
    return replace(
        first,
        guests=guests,
        engine=next((engine for engine in engines if engine is not None), None),
        measured=_sum_measured(readings),
        overhead_mb=max(reading.snapshot.overhead_mb for reading in readings),
        traits=tuple(sorted({trait for r in readings for trait in r.snapshot.traits})),
        warnings=(*_merge_warnings(readings), *twice),
    )


def _merge_guests(
    readings: Sequence[DriverReading],
) -> tuple[Fact[GuestListing], list[HostWarning]]:
    facts = [(reading, reading.snapshot.guests) for reading in readings]
    errors = "; ".join(
        ": ".join(dict.fromkeys((r.driver, fact.source, fact.error)))
        for r, fact in facts
        if fact.error
    )
    source = "; ".join(dict.fromkeys(fact.source for _, fact in facts))
    if all(fact.value is None for _, fact in facts):
        return failed(source, errors), []
    merged: dict[str, tuple[str, Guest | PartialGuest]] = {}
    unread: set[WorkloadKind] = set()
    unseen: set[WorkloadKind] = set()
    unreadable: list[str] = []
    warnings = []
    own_disk = readings[0].disk
    for reading, fact in facts:
        if fact.value is None:
            unseen |= reading.kinds
            continue
        is_pending = reading.is_pending
        unread |= {k for k in reading.kinds if is_pending or not fact.value.is_complete_for(k)}
        unreadable += fact.value.unreadable
        # A filesystem that was never known is assumed to be the same.
        is_charged = None in (own_disk, reading.disk) or own_disk == reading.disk
        shared: set[str] = set()
        for guest in fact.value.all_guests:
            driver, other = merged.get(guest.uuid, ("", guest))
            container_id = _container_id(guest)
            if driver and container_id and container_id != _container_id(other):
                warnings.append(_listed_twice(readings, guest, driver, reading))
                guest = replace(guest, uuid=derive_container_uuid(container_id))
                driver, _ = merged.get(guest.uuid, ("", guest))
            if not driver:
                charged = guest if is_charged else replace(guest, disk_mb=0)
                merged[guest.uuid] = reading.driver, charged
            elif container_id:
                shared.add(driver)
            else:
                warnings.append(_listed_twice(readings, guest, driver, reading))
        warnings += [_same_engine(readings, driver, reading) for driver in sorted(shared)]
    guests = [guest for _, guest in merged.values()]
    present = merged.keys()
    gone = {uuid for r in readings for uuid in r.gone if uuid not in present}
    listing = GuestListing(
        tuple(guest for guest in guests if isinstance(guest, Guest)),
        tuple(unreadable),
        frozenset(unread | unseen),
        tuple(guest for guest in guests if isinstance(guest, PartialGuest)),
        frozenset(unseen),
        any(fact.value is not None and fact.value.has_source for _, fact in facts),
        frozenset(gone),
    )
    return Fact(source, listing, errors or None), warnings


def _container_id(guest: Guest | PartialGuest) -> str:
    """Return the engine's id of a container, "" of another guest."""
    return str((guest.details or {}).get("container_id") or "")


def _sum_measured(readings: Sequence[DriverReading]) -> dict[str, int | None]:
    """Return the sums of what the drivers measured, once for each engine.

    A sum is unknown while one of the drivers that measure the same is not read.
    """
    summed: dict[str, int | None] = {}
    engines: set[tuple[str, str]] = set()
    for reading in readings:
        engine = None if (fact := reading.snapshot.engine) is None else fact.value
        key = ("", "") if engine is None else (engine.name, engine.root_dir)
        if all(key) and key in engines:
            continue  # its other socket
        engines.add(key)
        is_alone = not any(
            other.snapshot.guests.value is None and other.kinds & reading.kinds
            for other in readings
            if other is not reading
        )
        for name, value in reading.snapshot.measured.items():
            before = summed.get(name, 0)
            if value is None or before is None or not is_alone:
                summed[name] = None
            else:
                summed[name] = before + value
    return summed


def _merge_warnings(readings: Sequence[DriverReading]) -> Iterable[HostWarning]:
    """Return all warnings without duplicates, as warnings of the merged node."""
    nodename = readings[0].snapshot.nodename
    return dict.fromkeys(
        replace(warning, nodename=WHOLE_HOST if warning.nodename == WHOLE_HOST else nodename)
        for reading in readings
        for warning in reading.snapshot.warnings
    )


def _same_engine(
    readings: Sequence[DriverReading], driver: str, other: DriverReading
) -> HostWarning:
    return HostWarning(
        WarningKind.GUEST_LISTED_TWICE,
        readings[0].snapshot.nodename,
        other.driver,
        f"{other.driver} lists containers that {driver} lists, too, as if both were one engine; "
        "each is counted once",
    )


def _listed_twice(
    readings: Sequence[DriverReading],
    guest: Guest | PartialGuest,
    driver: str,
    other: DriverReading,
) -> HostWarning:
    return HostWarning(
        WarningKind.GUEST_LISTED_TWICE,
        readings[0].snapshot.nodename,
        guest.uuid,
        f"guest {guest.name or guest.uuid} is listed by {driver} and by {other.driver}; "
        f"it is counted once, as listed by {driver}",
    )
