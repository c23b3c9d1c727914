"""Cache all nodes: refresh the changed ones, and apply own claims in between."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from nodetracker.model.claim import Claim
from nodetracker.model.fleet import LedgerVersion
from nodetracker.ports import SchedulerStore
from nodetracker.scheduler.host_state import HostState


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes at one time.

    Attributes:
        now: the database's time of the refresh.
        states: (host, nodename) -> the node.
    """

    now: datetime
    states: Mapping[tuple[str, str], HostState]


class HostManager:
    """Keeps the nodes between requests; safe for use by several threads.

    Each fleet is a value that replaces the previous one. Of two concurrent
    refreshes the later result is kept; the next refresh finds what is outdated
    by its version.
    """

    def __init__(self, store: SchedulerStore) -> None:
        self._store = store
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """The nodes as of the last refresh, with claims consumed since; read on first use."""
        return self._fleet or self.refresh()

    def refresh(self) -> Fleet:
        """Read every node that changed or was consumed from; drop deleted ones.

        One statement if nothing changed, else three more for any number of nodes.
        """
        known = {} if self._fleet is None else self._fleet.states
        versions = self._store.load_ledger_versions()
        moved = [version.id for version in versions.nodes if not _is_current(known, version)]
        fresh = {node.version.id: node for node in self._store.load_ledger_nodes(moved)}
        states = {}
        for version in versions.nodes:
            service = versions.services.get(version.host)
            if (node := fresh.get(version.id)) is not None:
                # It moved to another host meanwhile; the next refresh reads its availability.
                if node.version.host == version.host:
                    states[node.version.host, node.version.nodename] = HostState(node, service)
            elif _is_current(known, version):
                key = (version.host, version.nodename)
                states[key] = replace(known[key], service=service)
        fleet = self._fleet = Fleet(versions.now, states)
        return fleet

    def consume(self, claim: Claim) -> None:
        """Subtract a granted claim from its cached node until that is read again; never raises."""
        fleet = self._fleet
        key = (claim.host, claim.nodename)
        if fleet is not None and key in fleet.states:
            states = {**fleet.states, key: fleet.states[key].consume(claim)}
            self._fleet = replace(fleet, states=states)


def _is_current(known: Mapping[tuple[str, str], HostState], version: LedgerVersion) -> bool:
    state = known.get((version.host, version.nodename))
    return state is not None and not state.is_estimate and state.node.version == version
