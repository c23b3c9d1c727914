"""Make sure that placement knows the traits and resource classes of a node."""

import logging
import threading
from dataclasses import replace

from nodetracker.accounting.placement.tree import Provider, ProviderTree
from nodetracker.model.errors import PlacementRefusedError
from nodetracker.placement.client import PlacementClient

LOG = logging.getLogger(__name__)

_CUSTOM = "CUSTOM_"


class Words:
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
        """Return a tree without traits that placement lacks; create what may be created.

        Raises:
            PlacementError: a request failed.
        """
        traits = {trait for provider in tree.providers for trait in provider.traits}
        classes = {name for provider in tree.providers for name in provider.classes}
        with self._lock:
            if not traits <= self._traits | self._unsupported:
                self._learn(traits - self._traits - self._unsupported)
            for name in sorted(classes - self._classes):
                if name.startswith(_CUSTOM):
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
            if not name.startswith(_CUSTOM):
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
