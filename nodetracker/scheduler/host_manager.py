"""The cache of all nodes: refreshed by what changed, consumed from in between."""

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
        now: the database's time when it was refreshed.
        states: (host, nodename) -> the node.
    """

    now: datetime
    states: Mapping[tuple[str, str], HostState]


class HostManager:
    """Keeps the nodes between requests; safe to use from several threads.

    Each fleet is a value that replaces the one before. Of two threads that
    refresh at once the later one's stays; whatever it has older than the
    store is found by its stamp at the next refresh.
    """

    def __init__(self, store: SchedulerStore) -> None:
        self._store = store
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """The nodes as of the last refresh, and what was consumed since; read at first use."""
        return self._fleet or self.refresh()

    def refresh(self) -> Fleet:
        """Read every node that moved or was consumed from; forget those that are gone.

        One statement while nothing moved, three more whatever the number that did.
        """
        known = {} if self._fleet is None else self._fleet.states
        stamps = self._store.load_ledger_versions()
        moved = [stamp.id for stamp in stamps.nodes if not _is_current(known, stamp)]
        fresh = {node.stamp.id: node for node in self._store.load_ledger_nodes(moved)}
        states = {}
        for stamp in stamps.nodes:
            service = stamps.services.get(stamp.host)
            if (node := fresh.get(stamp.id)) is not None:
                # Moved to another host meanwhile: its gate comes with the next refresh.
                if node.stamp.host == stamp.host:
                    states[node.stamp.host, node.stamp.nodename] = HostState(node, service)
            elif _is_current(known, stamp):
                key = (stamp.host, stamp.nodename)
                states[key] = replace(known[key], service=service)
        fleet = self._fleet = Fleet(stamps.now, states)
        return fleet

    def consume(self, claim: Claim) -> None:
        """Take a claim that was granted off its node until that is read again; never raises."""
        fleet = self._fleet
        key = (claim.host, claim.nodename)
        if fleet is not None and key in fleet.states:
            states = {**fleet.states, key: fleet.states[key].consume(claim)}
            self._fleet = replace(fleet, states=states)


def _is_current(known: Mapping[tuple[str, str], HostState], stamp: LedgerVersion) -> bool:
    state = known.get((stamp.host, stamp.nodename))
    return state is not None and not state.is_estimate and state.node.stamp == stamp
