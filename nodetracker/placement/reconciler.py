"""Bring placement in line with nodes: read, plan, send the steps; start again after a conflict."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from nodetracker.accounting.placement.consumers import plan_moves
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
from nodetracker.accounting.placement.tree import (
    ConsumerType,
    PlacedConsumer,
    PlacedTree,
    Provider,
    ProviderSummary,
    ProviderTree,
)
from nodetracker.model.errors import (
    PlacementConflictError,
    PlacementInUseError,
    PlacementNameError,
    PlacementNotFoundError,
    PlacementRefusedError,
    PlacementTimeoutError,
)
from nodetracker.model.listing import ClaimQuery
from nodetracker.model.pci import CUSTOM_PREFIX
from nodetracker.placement.client import PlacementClient, read_providers
from nodetracker.placement.state import Attempt, NodeState
from nodetracker.ports import Store

LOG = logging.getLogger(__name__)


class KnownNames:
    """The traits and resource classes that one placement service is known to have.

    Custom ones that it lacks are created, once a process. Standard traits that
    it lacks, because it is older than their source, are left out.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._traits: set[str] = set()
        self._unsupported: set[str] = set()
        self._classes: set[str] = set()

    def prepare(self, tree: ProviderTree) -> ProviderTree:
        """Return a tree without traits that placement lacks; create what may be created."""
        traits = {trait for provider in tree.providers for trait in provider.traits}
        classes = {name for provider in tree.providers for name in provider.classes}
        with self._lock:
            if not traits <= self._traits | self._unsupported:
                self._learn(traits - self._traits - self._unsupported)
            for name in sorted(classes - self._classes):
                if name.startswith(CUSTOM_PREFIX):
                    self._client.create_resource_class(name)
                self._classes.add(name)
            unsupported = self._unsupported & traits
        if not unsupported:
            return tree
        return replace(tree, providers=tuple(_without(p, unsupported) for p in tree.providers))

    def forget(self) -> None:
        """Ask again for everything, as placement may have lost it."""
        with self._lock:
            self._traits.clear()
            self._unsupported.clear()
            self._classes.clear()

    def _learn(self, names: set[str]) -> None:
        known = self._client.list_traits(names)
        for name in sorted(names - known):
            if not name.startswith(CUSTOM_PREFIX):
                LOG.warning("Placement does not know the trait %s; it is not reported", name)
                self._unsupported.add(name)
                continue
            refusal: PlacementRefusedError | None = None
            try:
                self._client.create_trait(name)
            except PlacementRefusedError as error:
                refusal = error
            if refusal is not None:
                LOG.warning("%s; the trait is not reported", refusal)
                self._unsupported.add(name)
        self._traits |= names - self._unsupported


def _without(provider: Provider, traits: set[str]) -> Provider:
    return replace(provider, traits=provider.traits - traits)


_FAILED = (PlacementConflictError, PlacementNotFoundError, PlacementRefusedError)


def exchange_moves(
    client: PlacementClient, states: Sequence[NodeState], wanted: Sequence[ProviderTree]
) -> None:
    """Write both consumers of each move between some nodes in one request.

    After a conflict or a refusal the nodes are to be read again, and each one's
    own report writes its part.

    Args:
        wanted: what they should have, in the same order.
    """
    trees = [state.placed or PlacedTree() for state in states]
    for state in states:
        state.forget()  # a request that fails may have been executed
    try:
        while steps := list(plan_moves(trees, wanted)):
            for step in steps:
                if any(state.is_dropped for state in states):
                    return
                trees = _send(client, trees, step)
    except _FAILED:
        return
    for state, tree in zip(states, trees, strict=True):
        state.placed = tree


def _send(
    client: PlacementClient, trees: Sequence[PlacedTree], step: ReadConsumer | WriteConsumers
) -> list[PlacedTree]:
    if isinstance(step, ReadConsumer):
        consumer = client.read_consumer(step.uuid)
        return [_drop_others(apply_read(tree, step.uuid, consumer)) for tree in trees]
    client.write_consumers(step.writes)
    return [_drop_others(apply_step(tree, step)) for tree in trees]


def _drop_others(tree: PlacedTree) -> PlacedTree:
    """Leave out nodetracker's consumers that have nothing on the tree's providers."""

    def has_part(consumer: PlacedConsumer) -> bool:
        return consumer.is_foreign or not tree.providers.keys().isdisjoint(consumer.resources)

    kept = {uuid: consumer for uuid, consumer in tree.consumers.items() if has_part(consumer)}
    return replace(tree, consumers=kept)


_AGAIN = (PlacementConflictError, PlacementNotFoundError, PlacementInUseError)


def is_in_ledger(store: Store, consumer: PlacedConsumer) -> bool:
    """Return whether the ledger has, or had, the workload or migration of a consumer."""
    if consumer.type == ConsumerType.MIGRATION:
        return bool(store.list_migrations(uuid=consumer.uuid))
    query = ClaimQuery(workload_uuid=consumer.uuid, limit=1)
    return bool(store.list_claim_page(query).items)


class Reconciler:
    """Sends the steps of plans; safe for several threads, each with another node.

    Args:
        is_in_ledger: finds out whose consumers are that no stored node explains.
        wait: waits for some seconds, less when the process ends.
    """

    def __init__(
        self,
        client: PlacementClient,
        is_in_ledger: Callable[[PlacedConsumer], bool],
        wait: Callable[[float], object],
    ) -> None:
        self._client = client
        self._is_in_ledger = is_in_ledger
        self._wait = wait
        self._names = KnownNames(client)

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
            try:
                self._send_steps(state, self._names.prepare(wanted), summaries)
            except PlacementRefusedError:
                # Placement lacks custom traits and classes that it had once its database was
                # restored: look them up again.
                state.forget()
                self._names.forget()
                self._send_steps(state, self._names.prepare(wanted), None)
        except BaseException:  # a request may have been executed
            state.forget()
            raise
        state.wanted_before |= wanted.consumers.keys()

    def _send_steps(
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
            findings = attempt.findings(state)
            steps = plan(state.placed, wanted, findings)
            if not steps and not self._classify_unexplained(state, wanted):
                attempt.record_end(state)
                return
            for step in steps:
                if state.is_dropped:  # what removes its provider must not meet a new one
                    return
                try:
                    state.placed = self._send(state.placed, step)
                except PlacementRefusedError as error:
                    if not isinstance(step, WriteConsumers):
                        raise
                    attempt.record_refusal(state, step, error)
                    break
                except PlacementTimeoutError:
                    if not attempt.record_timeout(state, step):
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
                    attempt.record_conflict(step, error)  # somebody created it meanwhile
                    break
                except _AGAIN as error:
                    if attempt.record_conflict(step, error):
                        self._wait(attempt.jitter_seconds)
                        state.placed, state.refused = self._read(wanted.root.uuid), {}
                    break
                attempt.record_done(step)

    def _classify_unexplained(self, state: NodeState, wanted: ProviderTree) -> bool:
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
        known = {c.uuid for c in unexplained if self._is_in_ledger(c)}
        state.wanted_before |= known
        state.unknown = frozenset(c.uuid for c in unexplained) - known
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
