"""Report an agent's nodes to placement after its audits, in threads of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import ProviderTree
from nodetracker.accounting.placement.warnings import (
    explain_foreign,
    explain_leaks,
    explain_name_conflict,
    explain_refusals,
    explain_refused_provider,
    list_kept,
)
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import (
    PlacementError,
    PlacementNameError,
    PlacementRefusedError,
    PlacementUnavailableError,
    StoreError,
)
from nodetracker.model.health import PlacementStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.settings import PlacementSettings
from nodetracker.model.text import count_noun
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.exchange import exchange_moves
from nodetracker.placement.listing import Listing
from nodetracker.placement.reconciler import Ledger, Reconciler
from nodetracker.placement.removal_worker import HostRemovals
from nodetracker.placement.request_counts import RequestCounts
from nodetracker.placement.slots import LAST_RETRY_SECONDS, Slot, Slots, Turn
from nodetracker.process.outage import OutageLog

LOG = logging.getLogger(__name__)

_ACTIVITY = "requests"


class PlacementReporter:
    """Observes audits, and makes placement agree with their nodes.

    An audit only puts the nodes that changed into slots; threads take them one
    after the other. What an outage or the end of the process interrupts is
    derived again from the next audit.

    Args:
        counts: of the client's requests.
        monotonic: seconds that never go back.
        splay: a random number from 0 to 1.
        removals: of the providers of deleted nodes; None = others remove them.
        list_earlier: returns the warnings that were active when the agent started.
    """

    def __init__(
        self,
        client: PlacementClient,
        ledger: Ledger,
        settings: PlacementSettings,
        counts: RequestCounts,
        monotonic: Callable[[], float] = time.monotonic,
        splay: Callable[[], float] = random.random,
        removals: HostRemovals | None = None,
        list_earlier: Callable[[], Sequence[HostWarning]] = tuple,
    ) -> None:
        self._client = client
        self._settings = settings
        self._counts = counts
        self._removals = removals
        self._list_earlier = list_earlier
        self._has_audited = False
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._slots = Slots(settings.refresh_interval, splay(), monotonic)
        self._listing = Listing(client, self._slots, monotonic)
        self._reconciler = Reconciler(client, ledger, self._stopping.wait)
        self._outages = OutageLog("Placement", PlacementUnavailableError, LOG, monotonic)

    def audited(self, report: AuditReport) -> None:
        """Put the nodes that changed into their slots, unless the audit was not stored."""
        if report.store_error is None:
            self._slots.update(report.nodes, report.admin.is_excluded)
            self._has_audited = True
            if self._removals is not None:
                self._removals.audited(report)

    def start(self) -> None:
        """Start the threads; return immediately."""
        self._start_threads()
        if self._removals is not None:
            self._removals.start()

    def report_once(self) -> None:
        """Report the audited nodes, in a process that ends afterwards; log what was not reported.

        Gives up when none was reported for as long as a request may take.
        """
        self._start_threads()
        left = self._slots.wait_reported(self._settings.timeout)
        if left:
            LOG.warning(
                "Placement: %s not reported; the next audit does that", count_noun(left, "node")
            )
        elif self._removals is not None:
            self._removals.work_once(self._settings.timeout)
        for warning in self.list_warnings():  # there is no further audit that would store them
            LOG.warning("Node %s: %s", warning.nodename, warning.message)
        self._stopping.set()
        self._slots.stop()

    def _start_threads(self) -> None:
        for number in range(1, self._settings.workers + 1):
            name = f"placement-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self, timeout_seconds: float) -> bool:
        """Take no further node; return whether the running requests ended in time."""
        deadline = time.monotonic() + max(0.0, timeout_seconds)
        self._stopping.set()
        self._slots.stop()
        have_ended = self._slots.wait_idle(max(0.0, timeout_seconds))
        if self._removals is None:
            return have_ended
        return self._removals.stop(deadline - time.monotonic()) and have_ended

    def list_warnings(self) -> list[HostWarning]:
        """Return the warnings of all nodes as of now.

        Those of an earlier run are kept until the first report of their node has an outcome.
        """
        removals = () if self._removals is None else self._removals.list_warnings()
        found, slots = list(removals or ()), list(self._slots)
        for slot in slots:
            found += slot.warnings or ()
            found += explain_leaks(slot.record.nodename, self._find_leaked(slot))
        reported = {slot.record.nodename: slot.warnings is not None for slot in slots}
        return found + list(
            list_kept(
                self._list_earlier(), reported if self._has_audited else None, removals is not None
            )
        )

    def status(self) -> PlacementStatus:
        """Return the current state, without any request."""
        slots, now = list(self._slots), self._monotonic()
        waiting = [slot.waiting_since for slot in slots if slot.waiting_since is not None]
        return PlacementStatus(
            error=self._outages.error,
            waiting_nodes=len(waiting),
            report_age_seconds=max((now - since for since in waiting), default=0.0),
            name_conflicts=sum(
                warning.kind is WarningKind.PLACEMENT_NAME_CONFLICT
                for slot in slots
                for warning in slot.warnings or ()
            ),
            refused=sum(len(slot.state.refused) for slot in slots),
            foreign=sum(len(slot.state.foreign) for slot in slots),
            leaked=sum(len(self._find_leaked(slot)) for slot in slots),
            requests=self._counts.read(),
        )

    def _run(self) -> None:
        while (turn := self._slots.take()) is not Turn.STOP:
            if turn is Turn.REFRESH:
                self._refresh()
                continue
            if len(turn) == 1 or self._exchange(turn):
                for slot in turn:
                    self._report(slot)
            else:
                for slot in turn:  # as soon as placement answers
                    self._slots.end(slot, slot.record, slot.is_disabled, self._monotonic())

    def _exchange(self, slots: Sequence[Slot]) -> bool:
        """Write moves between some nodes; return False when placement is unavailable.

        What else fails is left to each node's own report.
        """
        if any(slot.is_unread for slot in slots):
            return True
        states = [slot.state for slot in slots]
        try:
            wanted = [self._describe(slot.record, slot.is_disabled) for slot in slots]
            return self._call(partial(exchange_moves, self._client, states, wanted))
        except Exception:  # the nodes are read and reported all the same
            LOG.exception("Moves between nodes cannot be reported to placement together")
            return True

    def _report(self, slot: Slot) -> None:
        record, is_disabled = slot.record, slot.is_disabled
        retry_at: float | None = self._monotonic() + LAST_RETRY_SECONDS
        try:
            if self._call(partial(self._reconcile, slot, record, is_disabled)):
                retry_at = None
            else:
                retry_at = self._monotonic()  # as soon as placement answers
        except (PlacementError, StoreError) as error:
            LOG.info("Node %s is reported to placement again later: %s", record.nodename, error)
        except Exception:  # the other nodes are reported all the same
            LOG.exception("Node %s cannot be reported to placement", record.nodename)
            slot.state.forget()
        self._slots.end(slot, record, is_disabled, retry_at)

    def _reconcile(self, slot: Slot, record: NodeRecord, is_disabled: bool) -> None:
        """Report one node, and set its warnings."""
        wanted = self._describe(record, is_disabled)
        state = slot.state
        state.healed = self._find_leaked(slot) if self._settings.heals_leaks else frozenset()
        try:
            summaries = self._listing.take(record.uuid) if slot.is_unread else None
            self._reconciler.reconcile(state, wanted, summaries)
        except PlacementNameError as error:
            slot.warnings = (self._explain_conflict(record, error),)
            return
        except PlacementRefusedError as error:
            slot.warnings = (explain_refused_provider(record.nodename, error.reason),)
            return
        now = self._monotonic()
        leaked = {w.item for w in self._list_earlier() if w.kind is WarningKind.PLACEMENT_LEAKED}
        slot.leaks = {
            uuid: slot.leaks.get(uuid, float("-inf") if uuid in leaked else now)
            for uuid in state.strangers
        }
        assert state.placed is not None
        slot.warnings = (
            *explain_refusals(record.nodename, state.refused, state.placed, wanted),
            *explain_foreign(record.nodename, state.foreign),
        )

    def _describe(self, record: NodeRecord, is_disabled: bool) -> ProviderTree:
        return describe_tree(record, is_disabled, self._settings.reports_devices)

    def _explain_conflict(self, record: NodeRecord, error: PlacementNameError) -> HostWarning:
        """Return the warning of a name conflict of the node, or of one of its devices.

        Raises:
            PlacementNameError: the other provider exists no longer.
        """
        holders = self._client.list_providers(name=record.nodename)
        if not holders:
            raise error
        if holders[0].uuid == record.uuid:
            return explain_refused_provider(record.nodename, error.reason)
        _, traits = self._client.read_traits(holders[0].uuid)
        _, consumers = self._client.read_allocations(holders[0].uuid)
        return explain_name_conflict(record, holders[0], traits, len(consumers))

    def _refresh(self) -> None:
        """Let those nodes be reported again whose providers somebody else has changed."""
        try:
            self._call(self._listing.refresh)
            if self._settings.heals_leaks:
                self._slots.review(lambda slot: bool(self._find_leaked(slot)))
        except PlacementError as error:
            LOG.info("Providers are compared with placement again later: %s", error)
        except Exception:  # the next refresh may succeed
            LOG.exception("Providers cannot be compared with placement")
        self._slots.end_refresh()

    def _call(self, call: Callable[[], object]) -> bool:
        """Make a call; return False when placement is unavailable, which is logged once."""
        is_answered = False

        def note() -> None:
            nonlocal is_answered
            call()
            is_answered = True

        try:
            self._outages.run(_ACTIVITY, note)
        except PlacementError:  # an answer, though not the one that was hoped for
            self._slots.note_answer()
            raise
        if is_answered:
            self._slots.note_answer()
        else:
            self._slots.note_outage()
        return is_answered

    def _find_leaked(self, slot: Slot) -> frozenset[str]:
        """Return the consumers that the ledger has not known for too long."""
        limit = self._monotonic() - self._settings.leak_grace
        return frozenset(uuid for uuid, since in slot.leaks.items() if since <= limit)
