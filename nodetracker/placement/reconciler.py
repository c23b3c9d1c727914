"""Bring placement in line with one node: read, plan, send the steps, after a conflict again."""

from collections.abc import Callable, Sequence
from typing import Protocol

from nodetracker.accounting.placement.placed import (
    PlacedConsumer,
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
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
)
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.state import Attempt, NodeState
from nodetracker.placement.tree_reader import read_providers
from nodetracker.placement.words import Words

_AGAIN = (PlacementConflictError, PlacementNotFoundError, PlacementInUseError)


class Ledger(Protocol):
    """Finds out whose consumers are that no stored node explains."""

    def has_known(self, consumer: PlacedConsumer) -> bool:
        """Return whether the ledger has, or had, the workload or migration of a consumer."""


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
            PlacementNameError: another provider has the name of the node or of a device.
            PlacementRefusedError: a provider, its traits or inventories are refused.
            StoreError: the ledger could not be read.
        """
        try:
            self._reconcile_again_if_refused(state, wanted, summaries)
        except BaseException:  # a request may have been executed
            state.forget()
            raise
        state.wanted_before |= wanted.consumers.keys()

    def _reconcile_again_if_refused(
        self,
        state: NodeState,
        wanted: ProviderTree,
        summaries: Sequence[ProviderSummary] | None,
    ) -> None:
        """Reconcile; what is refused is tried once more with traits and classes looked up again.

        Placement lacks custom ones that it had once its database was restored.
        """
        try:
            self._reconcile(state, self._words.prepare(wanted), summaries)
        except PlacementRefusedError:
            state.forget()
            self._words.forget()
            self._reconcile(state, self._words.prepare(wanted), None)

    def _reconcile(
        self,
        state: NodeState,
        wanted: ProviderTree,
        summaries: Sequence[ProviderSummary] | None,
    ) -> None:
        state.refused = {}
        attempt = Attempt()
        if state.placed is None:
            state.placed = self._read(wanted.root.uuid, summaries)
        while True:
            progress = attempt.progress(state, wanted)
            steps = plan(state.placed, wanted, progress)
            if not steps and not self._find_strangers(state, wanted):
                attempt.note_end(state)
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
                except PlacementTimeoutError:
                    if not attempt.note_timeout(state, step):
                        raise
                    state.placed, state.refused = self._read(wanted.root.uuid), {}
                    break
                except PlacementNameError as error:
                    state.placed, state.refused = self._read(wanted.root.uuid), {}
                    if (
                        not isinstance(step, CreateProvider)
                        or step.uuid not in state.placed.providers
                    ):
                        raise
                    attempt.note_conflict(step, error)  # somebody created it meanwhile
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
        if summaries is None:
            summaries = self._client.list_providers(tree=uuid)
        return read_providers(self._client, summaries)

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
