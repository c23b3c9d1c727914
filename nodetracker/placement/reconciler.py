"""Bring placement in line with one node: read, plan, send the steps, after a conflict again."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from nodetracker.accounting.placement.consumers import Progress
from nodetracker.accounting.placement.placed import (
    PlacedConsumer,
    PlacedProvider,
    PlacedTree,
    ProviderSummary,
)
from nodetracker.accounting.placement.plan import plan
from nodetracker.accounting.placement.steps import (
    CreateProvider,
    DeleteProvider,
    ReadConsumer,
    RenameProvider,
    SetInventories,
    SetTraits,
    Step,
    WriteConsumers,
    apply_read,
    apply_step,
)
from nodetracker.accounting.placement.tree import ProviderTree
from nodetracker.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNotFoundError,
    PlacementRefusedError,
)
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.words import Words

MAX_CONFLICTS = 4
_JITTER_SECONDS = 0.2
_PROVIDERS = ""  # as the subject of conflicts

_AGAIN = (PlacementConflictError, PlacementNotFoundError, PlacementInUseError)


class Ledger(Protocol):
    """Finds out whose consumers are that no stored node explains."""

    def has_known(self, consumer: PlacedConsumer) -> bool:
        """Return whether the ledger has, or had, the workload or migration of a consumer."""


@dataclass(slots=True)
class NodeState:
    """What is known of one node in placement; used by one thread at a time.

    Attributes:
        placed: as last read or written; None = to be read again.
        wanted_before: consumers that the node was to have since the start.
        refused: consumers that placement refused, and why.
        foreign: consumers of other types that represent no workload of the node.
        strangers: consumers of nodetracker's types that the ledger does not know.
        healed: those of them that are to be deleted.
        is_dropped: the node exists no longer, so that nothing more is written.
    """

    placed: PlacedTree | None = None
    wanted_before: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    strangers: frozenset[str] = frozenset()
    healed: frozenset[str] = frozenset()
    is_dropped: bool = False

    def forget(self) -> None:
        """Read everything again the next time."""
        self.placed = None


class Reconciler:
    """Sends the steps of plans; safe for several threads, each with another node.

    Args:
        wait: waits for some seconds, less when the process ends.
    """

    def __init__(
        self, client: PlacementClient, ledger: Ledger, wait: Callable[[float], object]
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._wait = wait
        self._words = Words(client)

    def reconcile(
        self,
        state: NodeState,
        wanted: ProviderTree,
        summaries: Sequence[ProviderSummary] | None = None,
    ) -> None:
        """Make placement have what a node should have; consumers that are refused are noted.

        Args:
            summaries: the node's providers as just listed; None = list them.

        Raises:
            PlacementUnavailableError: no usable answer; everything is read again next time.
            PlacementConflictError: others were first too often.
            PlacementNameError: another provider has the node's name.
            PlacementRefusedError: a provider, its traits or inventories are refused.
            StoreError: the ledger could not be read.
        """
        try:
            wanted = self._words.prepare(wanted)
            self._reconcile(state, wanted, summaries)
        except BaseException:  # a request may have been executed
            state.forget()
            raise
        state.wanted_before |= wanted.consumers.keys()

    def _reconcile(
        self,
        state: NodeState,
        wanted: ProviderTree,
        summaries: Sequence[ProviderSummary] | None,
    ) -> None:
        state.refused = {}
        attempt = _Attempt()
        if state.placed is None:
            state.placed = self._read(wanted.root.uuid, summaries)
        while True:
            progress = attempt.progress(state, wanted)
            steps = plan(state.placed, wanted, progress)
            if not steps and not self._find_strangers(state, wanted):
                return
            for step in steps:
                if state.is_dropped:  # what removes its provider must not meet a new one
                    return
                try:
                    state.placed = self._send(state.placed, step)
                except PlacementRefusedError as error:
                    if not isinstance(step, WriteConsumers):
                        raise
                    attempt.note_refusal(state, step, error)
                    break
                except _AGAIN as error:
                    if attempt.note_conflict(step, error):
                        self._wait(attempt.jitter_seconds)
                        state.placed, state.refused = self._read(wanted.root.uuid), {}
                    break
                attempt.note_done(step)

    def _find_strangers(self, state: NodeState, wanted: ProviderTree) -> bool:
        """Divide the consumers that no claim explains; return whether any is to be removed."""
        assert state.placed is not None
        rest = [
            consumer
            for uuid, consumer in state.placed.consumers.items()
            if uuid not in wanted.consumers
            and not state.placed.providers.keys().isdisjoint(consumer.resources)
        ]
        state.foreign = frozenset(
            c.uuid for c in rest if c.is_foreign and c.uuid not in wanted.workload_of
        )
        own = [consumer for consumer in rest if not consumer.is_foreign]
        unexplained = [c for c in own if c.uuid not in state.wanted_before]
        known = {c.uuid for c in unexplained if self._ledger.has_known(c)}
        state.wanted_before |= known
        state.strangers = frozenset(c.uuid for c in unexplained) - known
        return bool(known)

    def _read(self, uuid: str, summaries: Sequence[ProviderSummary] | None = None) -> PlacedTree:
        """Read a node's providers, three requests each, and the consumers on them."""
        if summaries is None:
            summaries = self._client.list_providers(tree=uuid)
        providers, consumers = {}, dict[str, PlacedConsumer]()
        for summary in summaries:
            inventories = self._client.read_inventories(summary.uuid)
            traits = self._client.read_traits(summary.uuid)
            generation, found = self._client.read_allocations(summary.uuid)
            # The earliest of several generations: a write of this state is then a conflict.
            providers[summary.uuid] = PlacedProvider(
                summary.uuid, summary.name, min(inventories[0], traits[0], generation),
                summary.parent_uuid, inventories[1], traits[1],
            )  # fmt: skip
            for consumer in found.values():
                consumers[consumer.uuid] = _merge(consumers.get(consumer.uuid), consumer)
        return PlacedTree(providers, consumers)

    def _send(self, placed: PlacedTree, step: Step) -> PlacedTree:
        """Send one step; return what placement has after it."""
        client = self._client
        match step:
            case CreateProvider(uuid, name, parent_uuid):
                client.create_provider(uuid, name, parent_uuid)
            case RenameProvider(uuid, name):
                client.rename_provider(uuid, name)
            case DeleteProvider(uuid):
                client.delete_provider(uuid)
            case SetTraits(uuid, traits):
                client.set_traits(uuid, placed.providers[uuid].generation, traits)
            case SetInventories(uuid, inventories):
                client.set_inventories(uuid, placed.providers[uuid].generation, inventories)
            case WriteConsumers(writes):
                client.write_consumers(writes)
            case ReadConsumer(uuid):
                return apply_read(placed, uuid, client.read_consumer(uuid))
        return apply_step(placed, step)


class _Attempt:
    """What was found out while one node is reconciled."""

    def __init__(self) -> None:
        self._conflicts = Counter[str]()
        self._alone: set[str] = set()
        self._unread: set[str] = set()
        self._has_reread = False

    @property
    def jitter_seconds(self) -> float:
        """How long to wait before the next try; longer after each conflict."""
        return random.uniform(0, _JITTER_SECONDS * 2 ** self._conflicts[_PROVIDERS])  # noqa: S311

    def progress(self, state: NodeState, wanted: ProviderTree) -> Progress:
        return Progress(
            gone=frozenset(state.wanted_before) | state.healed,
            refused=frozenset(state.refused),
            alone=frozenset(self._alone),
            unread=frozenset(self._unread),
        )

    def note_refusal(
        self, state: NodeState, step: WriteConsumers, error: PlacementRefusedError
    ) -> None:
        """Note that placement refused consumers; of several, each is tried alone."""
        if len(step.writes) > 1:
            self._alone |= {write.uuid for write in step.writes}
        else:
            state.refused[step.writes[0].uuid] = error.reason

    def note_conflict(self, step: Step, error: Exception) -> bool:
        """Note a conflict; return whether the node is to be read again.

        A request may have been executed later than its answer was waited for,
        so after the first conflict of several consumers the node is read.
        After the next one each of them is tried alone, and then read first.

        Raises:
            PlacementConflictError: there were too many; so does any other error.
        """
        subject = _PROVIDERS
        if isinstance(step, WriteConsumers):
            names = {write.uuid for write in step.writes}
            if len(names) > 1:
                is_first, self._has_reread = not self._has_reread, True
                self._alone |= set() if is_first else names
                return is_first
            self._unread |= names
            [subject] = names
        self._conflicts[subject] += 1
        if self._conflicts[subject] > MAX_CONFLICTS:
            raise error
        return subject == _PROVIDERS

    def note_done(self, step: Step) -> None:
        """Note that a step was carried out."""
        if isinstance(step, ReadConsumer):
            self._unread.discard(step.uuid)


def _merge(known: PlacedConsumer | None, found: PlacedConsumer) -> PlacedConsumer:
    """Return a consumer with its parts on two of the node's providers."""
    if known is None:
        return found
    return replace(found, resources={**known.resources, **found.resources})
