"""Answer engines that ask whether a guest may start, and charge those that may.

The answer comes from the ledger, the node's row and the question alone: the engine holds its
own locks until it has the answer.
"""

import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from nodetracker.accounting.numa.cells import decode_host_cells, restrict_pins
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import (
    ClaimRefusedError,
    HostDataError,
    NodetrackerError,
)
from nodetracker.model.fact import FactState
from nodetracker.model.guest import Guest, PowerState
from nodetracker.model.node import NodeRecord
from nodetracker.model.numa import NumaCell, NumaTopology
from nodetracker.model.serializer import encode
from nodetracker.model.settings import AgentSettings
from nodetracker.model.start import AdmissionMode, Start, StartOutcome
from nodetracker.model.text import count_noun, name_some
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.ports import AdmissionPolicy, HostStore, StartReader
from nodetracker.process.clock import utc_clock
from nodetracker.views.starts import explain_refusal

LOG = logging.getLogger(__name__)

KEPT_STARTS = 200

ASKED_SECONDS = 60.0
"""How long an engine may take to start a guest after its question; listings lack it until then."""

LISTING_SECONDS = 1.1
"""How long a question of an engine that reports no ends waits in all before it is refused.

An engine waits 2 s, and takes no answer as leave to start.
"""

MAX_WAITING = 8
"""Questions that wait for a listing at a time; others are answered by the last one."""

_UNFIT = frozenset({StartOutcome.REFUSED, StartOutcome.WARNED})


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that asks: what it is answered, and what reads its questions."""

    mode: AdmissionMode
    reader: StartReader


class Door:
    """Answers the questions of engines; safe for several threads.

    Args:
        engines: by the name of their driver.
        read_policies: the settings and the policy of claims, as configured now.
        note_end: called with the node and the uuid of a guest that has ended.
        request_audit: called with the node that is to be audited soon.
        clock: this host's own time.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        store: HostStore,
        read_policies: Callable[[], tuple[AgentSettings, AdmissionPolicy]],
        note_end: Callable[[str, str], None],
        request_audit: Callable[[str], None],
        clock: Callable[[], datetime] = utc_clock,
    ) -> None:
        self._engines = engines
        self._store = store
        self._read_policies = read_policies
        self._note_end = note_end
        self._request_audit = request_audit
        self._clock = clock
        self._lock = threading.Lock()
        self._audited = threading.Condition(self._lock)
        self._listed_at = 0.0  # when the last audit began, or later
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)
        self._record: NodeRecord | None = None
        self._numbers: dict[str, int] = {}  # guest that may start -> number of the question
        self._warnings: dict[str, HostWarning] = {}
        self._asked: dict[
            str, float
        ] = {}  # guest that no listing had since -> time of the question
        self._starts: deque[Start] = deque(maxlen=KEPT_STARTS)
        self._counts: Counter[tuple[str, StartOutcome]] = Counter()
        self._seconds: dict[str, float] = dict.fromkeys(engines, 0.0)

    def answer(
        self, question: Mapping[str, Any], number: int, wait_for_earlier: Callable[[], bool]
    ) -> Mapping[str, Any] | None:
        """Answer one question; see ``docs/admission.md``.

        Args:
            number: of its connection: a later one has a higher number.
            wait_for_earlier: waits until earlier ones are answered, as one that a guest is gone
                makes room; returns whether there were any.

        Returns:
            None where nothing is to be said.
        """
        if question.get("ask") == "list":
            return {"questions": encode(self.list_starts())}
        driver = str(question.get("driver") or "")
        engine = self._engines.get(driver)
        if engine is None or engine.mode is AdmissionMode.OFF:
            return {"outcome": StartOutcome.OFF.value, "reason": ""}
        try:
            return self._answer(question, driver, engine, number, wait_for_earlier)
        except Exception as error:  # whatever it is, the engine must get an answer
            LOG.exception("A question of %s cannot be answered", driver)
            return {"outcome": StartOutcome.UNAVAILABLE.value, "reason": repr(error)}

    def _answer(
        self,
        question: Mapping[str, Any],
        driver: str,
        engine: Engine,
        number: int,
        wait_for_earlier: Callable[[], bool],
    ) -> Mapping[str, Any] | None:
        started_at = time.monotonic()
        ask, operation = str(question.get("ask")), str(question.get("operation") or "")
        start = Start(self._clock(), driver, operation or ask, "", "", StartOutcome.UNAVAILABLE)
        if ask == "gone":
            with suppress(NodetrackerError):
                self._end(question, engine, number)
            return None
        found = self._decide(question, engine, start, number)
        if found is not None and (found.outcome in _UNFIT or not found.guest):
            has_news = wait_for_earlier()
            if not engine.reader.hears_ends:
                has_news |= self._wait_for_listing(started_at)
            if has_news:
                found = self._decide(question, engine, start, number)
        if found is None:
            return {"outcome": StartOutcome.ADMITTED.value, "reason": ""}
        self._note(found, time.monotonic() - started_at)
        return {"outcome": found.outcome.value, "reason": found.reason}

    def _end(self, question: Mapping[str, Any], engine: Engine, number: int) -> None:
        record = self._find_node()
        guest = engine.reader.read(question, _topology_of(record))
        if guest is not None:
            self._release(guest.uuid, record, number)

    def _decide(
        self, question: Mapping[str, Any], engine: Engine, start: Start, number: int
    ) -> Start | None:
        """Return the start with its outcome, None if no guest starts."""
        try:
            record = self._find_node()
            guest = engine.reader.read(question, _topology_of(record))
            if guest is None:
                return None
            start = replace(start, guest=guest.uuid, name=guest.name)
            is_trial = question.get("ask") == "create"
            outcome, reason = self._admit(guest, record, engine.mode, number, is_trial)
            return replace(start, outcome=outcome, reason=reason)
        except ClaimRefusedError as error:
            unfit = engine.mode is AdmissionMode.ENFORCE
            outcome = StartOutcome.REFUSED if unfit else StartOutcome.WARNED
            return replace(start, outcome=outcome, reason=str(error))
        except NodetrackerError as error:
            return replace(start, reason=str(error))

    def _wait_for_listing(self, since: float) -> bool:
        """Wait until guests are listed that have ended, or were created, before a moment."""
        record = self._record
        if record is None or not self._waiting.acquire(blocking=False):
            return False
        try:
            self._request_audit(record.nodename)
            with self._audited:
                left = since + LISTING_SECONDS - time.monotonic()
                return self._audited.wait_for(lambda: self._listed_at >= since, left)
        finally:
            self._waiting.release()

    def _admit(
        self, guest: Guest, record: NodeRecord, mode: AdmissionMode, number: int, is_trial: bool
    ) -> tuple[StartOutcome, str]:
        settings, policy = self._read_policies()
        cells = {cell.id: cell.cpus for cell in decode_host_cells(record.values.numa_topology)}
        guest = replace(guest, pins=restrict_pins(guest.pins, settings.policy, cells))
        try:
            self._store.admit_start(
                guest, record.host, record.nodename, str(uuid4()), policy, is_trial
            )
        except ClaimRefusedError as error:
            reason = explain_refusal(error, record.host, len(_list_running(record)))
            if mode is AdmissionMode.ENFORCE:
                return StartOutcome.REFUSED, reason
            if not is_trial:
                name = guest.name or guest.uuid
                text = f"guest {name} was started though it does not fit: {reason}"
                kind = WarningKind.START_UNFIT
                warning = HostWarning(kind, record.nodename, guest.uuid, text)
                self._remember(guest.uuid, number, warning)
            return StartOutcome.WARNED, reason
        if not is_trial:
            self._remember(guest.uuid, number, None)
        return StartOutcome.ADMITTED, ""

    def _remember(self, uuid: str, number: int, warning: HostWarning | None) -> None:
        with self._lock:
            self._asked[uuid] = time.monotonic()
            self._numbers[uuid] = number
            self._warnings.pop(uuid, None)
            if warning is not None:
                self._warnings[uuid] = warning

    def _release(self, uuid: str, record: NodeRecord, number: int) -> None:
        """Release the claim of a guest that has stopped, unless it was started again since."""
        with self._lock:
            if self._numbers.get(uuid, 0) > number:
                return
            for kept in (self._numbers, self._asked, self._warnings):
                kept.pop(uuid, None)
        self._note_end(record.nodename, uuid)
        self._store.end_start(uuid, record.host, record.nodename)

    def _note(self, start: Start, seconds: float) -> None:
        with self._lock:
            self._starts.append(start)
            self._counts[start.driver, start.outcome] += 1
            self._seconds[start.driver] += seconds
        if start.outcome in _UNFIT:
            LOG.warning("%s: guest %s: %s", start.driver, start.name or start.guest, start.reason)
        elif start.outcome is StartOutcome.UNAVAILABLE:
            LOG.warning("%s: a start cannot be decided: %s", start.driver, start.reason)

    def _find_node(self) -> NodeRecord:
        """Return the host's node as last audited, before the first audit as stored.

        Raises:
            HostDataError: it has none yet.
        """
        record = self._record
        if record is None:
            settings, _ = self._read_policies()
            record = self._record = _choose_node(self._store.load_nodes(settings.host))
        if record is None:
            raise HostDataError("door", "the node of this host is not known yet")
        return record

    def audited(self, report: AuditReport) -> None:
        """Keep the node, and say how many guests were started without a question."""
        record = _choose_node(report.nodes.values())
        if report.store_error is not None or record is None:
            return
        before = [
            change.record
            for change in report.changes
            if change.record is not None and change.nodename == record.nodename
        ]
        running = _list_running(record)
        with self._lock:
            started = running - _list_running(before[0]) if before else frozenset()
            unasked = [
                record.guests[uuid].name or uuid
                for uuid in sorted(started - self._asked.keys())
                if record.guests[uuid].claim_uuid is None
            ]
            self._record = record
            self._listed_at = time.monotonic() - report.duration_seconds
            self._audited.notify_all()
            oldest = time.monotonic() - ASKED_SECONDS
            self._asked = {
                u: at for u, at in self._asked.items() if u not in running and at >= oldest
            }
            numbers, warnings = self._numbers.items(), self._warnings.items()
            self._numbers = {u: n for u, n in numbers if u in record.guests or u in self._asked}
            self._warnings = {u: w for u, w in warnings if u in running or u in self._asked}
        if unasked:
            LOG.warning(
                "%s started without a question: %s",
                count_noun(len(unasked), "guest"),
                name_some(unasked),
            )

    def list_warnings(self) -> Sequence[HostWarning]:
        """Return a warning of each guest that runs though it did not fit."""
        with self._lock:
            return tuple(self._warnings.values())

    def list_starts(self) -> tuple[Start, ...]:
        """Return the last questions, the newest last."""
        with self._lock:
            return tuple(self._starts)

    def count(self) -> tuple[Mapping[tuple[str, StartOutcome], int], Mapping[str, float]]:
        """Return the questions by driver and outcome, and how long they took by driver."""
        with self._lock:
            keys = itertools.product(self._engines, set(StartOutcome) - {StartOutcome.OFF})
            return {key: self._counts[key] for key in keys}, dict(self._seconds)


def _choose_node(records: Iterable[NodeRecord]) -> NodeRecord | None:
    """Return the host's node, None if it has none or several.

    Of nodes that the host no longer has, whose rows are kept for their claims, all facts are
    unknown.
    """
    known = [
        record
        for record in records
        if any(entry.state is not FactState.UNKNOWN for entry in record.values.facts.values())
    ]
    return known[0] if len(known) == 1 else None


def _topology_of(record: NodeRecord) -> NumaTopology:
    cells = decode_host_cells(record.values.numa_topology)
    return NumaTopology(
        tuple(NumaCell(cell.id, cell.cpus, cell.memory_mb, pages=cell.pages) for cell in cells)
    )


def _list_running(record: NodeRecord) -> frozenset[str]:
    return frozenset(
        guest.uuid
        for guest in record.guests.values()
        if guest.power_state is not PowerState.SHUTDOWN and guest.missing_since is None
    )
