"""Report an agent's nodes to placement after its audits, in threads of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from nodetracker.accounting.placement.describe import describe_tree
from nodetracker.accounting.placement.tree import (
    PlacedConsumer,
    PlacedTree,
    ProviderSummary,
    ProviderTree,
    Resources,
)
from nodetracker.accounting.placement.warnings import (
    PLACEMENT_KINDS,
    explain_foreign,
    explain_leaks,
    explain_losses,
    explain_name_conflict,
    explain_refusals,
    explain_refused_provider,
    list_kept,
)
from nodetracker.model.audit import AuditReport
from nodetracker.model.errors import (
    PlacementError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementUnavailableError,
    StoreError,
)
from nodetracker.model.health import PlacementStatus
from nodetracker.model.node import NodeRecord
from nodetracker.model.service import AdminState
from nodetracker.model.settings import PlacementSettings
from nodetracker.model.text import count_noun
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.reconciler import Reconciler, exchange_moves
from nodetracker.placement.removal import HostRemovals
from nodetracker.placement.slots import LAST_RETRY_SECONDS, Slot, Slots, Task
from nodetracker.ports import Store
from nodetracker.process.outage import OutageLog
from nodetracker.process.workers import start_thread

LOG = logging.getLogger(__name__)
MAX_SINGLE = 8
"""Number of nodes up to which each has a request of its own; a list has the whole cloud's."""

LOSS_LIFETIME_SECONDS = 3600.0
"""How long a warning remains about allocations that were put back."""

_LIFETIME_SECONDS = 120.0
Trees = dict[str, list[ProviderSummary]]
_ACTIVITY = "requests"


class PlacementReporter:
    """Observes audits, and makes placement agree with their nodes.

    An audit only puts the nodes that changed into slots; threads take them one
    after the other. What an outage or the end of the process interrupts is
    derived again from the next audit.

    Args:
        is_in_ledger: returns whether the ledger has, or had, what a consumer represents.
        removals: of the providers of deleted nodes; None = others remove them.

    Attributes:
        removals: a periodic task of the agent's service.
    """

    def __init__(
        self,
        client: PlacementClient,
        is_in_ledger: Callable[[PlacedConsumer], bool],
        settings: PlacementSettings,
        monotonic: Callable[[], float] = time.monotonic,
        splay: Callable[[], float] = random.random,
        removals: HostRemovals | None = None,
        list_earlier: Callable[[], Sequence[HostWarning]] = tuple,
    ) -> None:
        self._client = client
        self._settings = settings
        self.removals = removals
        self._list_earlier = list_earlier
        self._has_audited = False
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._slots = Slots(settings.refresh_interval, splay(), monotonic)
        self._lists = ProviderLists(client, self._slots, monotonic)
        self._reconciler = Reconciler(client, is_in_ledger, self._stopping.wait)
        self._outages = OutageLog("Placement", PlacementUnavailableError, LOG, monotonic)

    def audited(self, report: AuditReport) -> None:
        """Put the nodes that changed into their slots, unless the audit was not stored."""
        if report.store_error is None:
            self._slots.update(report.nodes, report.admin)
            self._has_audited = True
            if self.removals is not None:
                self.removals.audited(report)

    def start(self) -> None:
        self._start_threads()

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
        elif self.removals is not None:
            self.removals.work_once(self._settings.timeout)
        for warning in self.list_warnings():  # no further audit would store them
            LOG.warning("Node %s: %s", warning.nodename, warning.message)
        self._stopping.set()
        self._slots.stop()

    def _start_threads(self) -> None:
        for number in range(1, self._settings.workers + 1):
            name = f"placement-{number}"
            start_thread(name, self._run)

    def stop(self, timeout_seconds: float) -> bool:
        """Take no further node; return whether the running requests ended in time."""
        deadline = time.monotonic() + max(0.0, timeout_seconds)
        self._stopping.set()
        self._slots.stop()
        have_ended = self._slots.wait_idle(max(0.0, timeout_seconds))
        if self.removals is None:
            return have_ended
        return self.removals.stop(deadline - time.monotonic()) and have_ended

    def list_warnings(self) -> list[HostWarning]:
        """Return the warnings of all nodes as of now.

        Those of an earlier run are kept until the first report of their node has an outcome.
        """
        removals = () if self.removals is None else self.removals.list_warnings()
        found, slots = list(removals or ()), list(self._slots)
        for slot in slots:
            found += slot.warnings or ()
            since = self._monotonic() - LOSS_LIFETIME_SECONDS
            found += [warning for at, warning in list(slot.losses.values()) if at > since]
            found += explain_leaks(slot.record.nodename, self._find_leaked(slot))
        reported = {slot.record.nodename: slot.warnings is not None for slot in slots}
        return found + list(
            list_kept(
                self._list_earlier(), reported if self._has_audited else None, removals is not None
            )
        )

    def status(self) -> PlacementStatus:
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
            requests=self._client.count_requests(),
        )

    def _run(self) -> None:
        while (task := self._slots.take()) is not Task.STOP:
            if task is Task.REFRESH:
                self._refresh()
            elif len(task) == 1 or self._exchange(task):
                for slot in task:
                    self._report(slot)
            else:
                for slot in task:  # as soon as placement answers
                    self._slots.end(slot, slot.record, slot.admin, self._monotonic())

    def _exchange(self, slots: Sequence[Slot]) -> bool:
        """Write moves between some nodes; return False when placement is unavailable.

        What else fails is left to each node's own report.
        """
        if any(slot.is_unread for slot in slots):
            return True
        states = [slot.state for slot in slots]
        try:
            wanted = [self._describe(slot.record, slot.admin) for slot in slots]
            return self._call(partial(exchange_moves, self._client, states, wanted))
        except Exception:  # the nodes are read and reported all the same
            LOG.exception("Moves between nodes cannot be reported to placement together")
            return True

    def _report(self, slot: Slot) -> None:
        record, admin = slot.record, slot.admin
        retry_at: float | None = self._monotonic() + LAST_RETRY_SECONDS
        try:
            if self._call(partial(self._report_node, slot, record, admin)):
                retry_at = None
            else:
                retry_at = self._monotonic()  # as soon as placement answers
        except (PlacementError, StoreError) as error:
            LOG.info("Node %s is reported to placement again later: %s", record.nodename, error)
        except Exception:  # the other nodes are reported all the same
            LOG.exception("Node %s cannot be reported to placement", record.nodename)
            slot.state.forget()
        self._slots.end(slot, record, admin, retry_at)

    def _report_node(self, slot: Slot, record: NodeRecord, admin: AdminState) -> None:
        wanted = self._describe(record, admin)
        state = slot.state
        state.healed = self._find_leaked(slot) if self._settings.heals_leaks else frozenset()
        try:
            summaries = self._lists.take(record.uuid) if slot.is_unread else None
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
            for uuid in state.unknown
        }
        assert state.placed is not None
        slot.warnings = (
            *explain_refusals(record, state.refused, state.placed, wanted),
            *explain_foreign(record.nodename, state.foreign),
        )

    def _describe(self, record: NodeRecord, admin: AdminState) -> ProviderTree:
        return describe_tree(record, admin.is_excluded, self._settings.reports_devices, admin.spare)

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
            self._call(self._lists.refresh)
            if self._settings.heals_leaks:
                self._slots.review(lambda slot: bool(self._find_leaked(slot)))
        except PlacementError as error:
            LOG.info("Providers are compared with placement again later: %s", error)
        except Exception:  # the next refresh may succeed
            LOG.exception("Providers cannot be compared with placement")
        self._slots.end_refresh()

    def _call(self, call: Callable[[], object]) -> bool:
        """Make a call; return False when placement is unavailable, which is logged once."""
        try:
            self._outages.watch(_ACTIVITY, call)
        except PlacementUnavailableError:
            self._slots.back_off()
            return False
        except PlacementError:  # an answer, though not the one that was hoped for
            self._slots.end_outage()
            raise
        self._slots.end_outage()
        return True

    def _find_leaked(self, slot: Slot) -> frozenset[str]:
        """Return the consumers that the ledger has not known for too long."""
        limit = self._monotonic() - self._settings.leak_grace
        return frozenset(uuid for uuid, since in slot.leaks.items() if since <= limit)


class ProviderLists:
    """Lists of providers; safe for several threads."""

    def __init__(
        self,
        client: PlacementClient,
        slots: Slots,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._slots = slots
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._trees: Trees = {}
        self._served: set[str] = set()
        self._expires_at = float("-inf")

    def take(self, uuid: str) -> Sequence[ProviderSummary] | None:
        """Return the providers of a node that is to be read, None = list them alone.

        Each list is used once for each node, so that what was created since is read.
        """
        with self._lock:
            is_new = uuid in self._served or self._monotonic() >= self._expires_at
            if is_new:
                if self._slots.count_unread() <= MAX_SINGLE:
                    return None
                self._trees, self._served = self._list_all(), set()
                self._expires_at = self._monotonic() + _LIFETIME_SECONDS
            self._served.add(uuid)
            return self._trees.pop(uuid, [])

    def refresh(self) -> None:
        """Let the nodes that are not as they were left in placement be read again.

        Somebody who deletes allocations does not raise a generation, so those are compared
        as well, by one request a node. Consumers of others that have nothing on the node's
        providers are forgotten, as nothing shows that they are gone.
        """
        left = {slot.record.uuid: slot.state.placed for slot in self._slots.idle()}
        if len(left) > MAX_SINGLE:
            trees = self._list_all()
        else:
            trees = {uuid: self._client.list_providers(tree=uuid) for uuid in left}
        found = {
            uuid: None
            if placed is None or _has_changed(placed, trees.get(uuid, []))
            else self._read_parts(placed, uuid)
            for uuid, placed in left.items()
        }

        def is_outdated(slot: Slot) -> bool:
            uuid, placed = slot.record.uuid, slot.state.placed
            if uuid not in found or placed is not left[uuid]:  # reported meanwhile
                return False
            parts = found[uuid]
            if placed is None or parts is None:
                return True
            now, lost = self._monotonic(), explain_losses(slot.record, placed, parts)
            recent = {k: v for k, v in slot.losses.items() if v[0] > now - LOSS_LIFETIME_SECONDS}
            slot.losses = recent | {warning.item: (now, warning) for warning in lost}
            return any(_list_parts(placed, provider) != part for provider, part in parts.items())

        self._slots.review(is_outdated)

    def _read_parts(self, placed: PlacedTree, root: str) -> dict[str, dict[str, Resources]] | None:
        """Return provider -> consumer -> what it has there; None if a provider is gone.

        Of the root, and of those below it that have consumers with nothing on the root.
        """
        below = {
            provider
            for consumer in placed.consumers.values()
            if root not in consumer.resources
            for provider in consumer.resources.keys() & placed.providers.keys()
        }
        try:
            return {
                provider: {
                    uuid: part.resources[provider]
                    for uuid, part in self._client.read_allocations(provider)[1].items()
                }
                for provider in (root, *sorted(below))
            }
        except PlacementNotFoundError:
            return None

    def _list_all(self) -> Trees:
        """Return uuid of a root -> the providers of its tree."""
        trees: Trees = {}
        summaries = self._client.list_providers()
        for summary in summaries:
            trees.setdefault(summary.root_uuid, []).append(summary)
        return trees


def _has_changed(placed: PlacedTree, summaries: Sequence[ProviderSummary]) -> bool:
    known = {(p.uuid, p.name, p.generation) for p in placed.providers.values()}
    return known != {(s.uuid, s.name, s.generation) for s in summaries} or any(
        placed.providers.keys().isdisjoint(consumer.resources)
        for consumer in placed.consumers.values()
    )


def _list_parts(placed: PlacedTree, provider: str) -> dict[str, Resources]:
    """Return consumer -> what it has of a provider, of those that have something."""
    return {
        uuid: consumer.resources[provider]
        for uuid, consumer in placed.consumers.items()
        if provider in consumer.resources
    }


class EarlierWarnings:
    """Warnings about placement that were active when the agent started."""

    def __init__(self, host: str, store: Store) -> None:
        self._host = host
        self._store = store
        self._warnings: tuple[HostWarning, ...] | None = None

    def list(self) -> Sequence[HostWarning]:
        """Return the warnings; they are read once, none are returned without a database."""
        if self._warnings is None:
            try:
                stored = self._store.list_warnings(self._host)
            except StoreError as error:  # no audit is stored either
                LOG.debug("The warnings of an earlier run were not read: %s", error)
                return ()
            self._warnings = tuple(
                record.warning
                for record in stored
                if record.resolved_at is None and record.warning.kind in PLACEMENT_KINDS
            )
        return self._warnings
