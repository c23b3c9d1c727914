"""Log and store the warnings of a host when they are raised and when they resolve."""

import logging
from collections.abc import Collection, Iterable, Sequence

from nodetracker.accounting.audit.warnings import list_unseen
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.row_writer import AuditRun
from nodetracker.model.claim import SplitBrain
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import AgentKey, AgentStore
from nodetracker.views.health import MAX_CLOCK_SKEW_SECONDS

LOG = logging.getLogger(__name__)

_LOGGED_ELSEWHERE = frozenset({WarningKind.FACT_HELD, WarningKind.DRIVER_NOT_READY})


class WarningRegistry:
    """The active warnings of one host, as they were last stored.

    Args:
        rows: of the host, with the clock's skew as last loaded.
    """

    def __init__(self, store: AgentStore, rows: HostRows) -> None:
        self._store = store
        self._rows = rows
        self._stored: frozenset[HostWarning] | None = None
        self._stored_loads = 0
        self._reported_skew = 0.0
        self._split_brains: list[SplitBrain] = []
        self._looked_loads = 0
        self._is_look_due = False
        self._seen_generations: dict[str, tuple[int, int]] = {}

    def list_host_warnings(self, host: str, listing_error: str | None) -> list[HostWarning]:
        """Return warnings of the host itself and of split brains.

        Args:
            listing_error: why not all nodes are listed, or None.

        Raises:
            StoreError: the database did not answer.
        """
        warnings = self._evaluate_clock(self._rows.clock_skew_seconds or 0.0)
        if listing_error is not None:
            warnings.append(
                HostWarning(WarningKind.DRIVER_NOT_READY, WHOLE_HOST, NO_ITEM, listing_error)
            )
        return warnings + [self._explain(found) for found in self._find_split_brains(host)]

    def list_kept(self, host: str, read: Collection[str]) -> list[HostWarning]:
        """Return the warnings that a reading of only these nodes leaves active.

        Raises:
            StoreError: the database did not answer.
        """
        others = [w for w in self._stored or () if w.nodename not in read]
        found = [found for found in self._find_split_brains(host) if found.nodename in read]
        return others + [self._explain(split_brain) for split_brain in found]

    def _explain(self, found: SplitBrain) -> HostWarning:
        row = self._rows.get(found.nodename)
        name = found.workload_uuid if row is None else row.name_workload(found.workload_uuid)
        return explain_split_brain(found, name)

    def _find_split_brains(self, host: str) -> list[SplitBrain]:
        """Return the split brains; look again if there were some, or after rows changed.

        The look follows in the audit after the one that wrote or read a change, so that
        neither costs more. The host that changed last sees a new one. One may end by a
        change of the other host, and all are looked for whenever all rows are loaded.
        """
        generations = {name: (row.id, row.generation) for name, row in self._rows.items()}
        is_loaded = self._rows.full_loads != self._looked_loads
        if is_loaded or self._split_brains or self._is_look_due:
            self._split_brains = self._store.list_split_brains(host)
            self._looked_loads = self._rows.full_loads
            self._is_look_due = False
        else:
            self._is_look_due = generations != self._seen_generations
        self._seen_generations = generations
        return self._split_brains

    def list_remaining(self, run: AuditRun, is_listing_complete: bool) -> list[HostWarning]:
        """Return the active warnings that remain, as an audit could not read what resolves them.

        Raises:
            StoreError: the warnings of an earlier run of the agent could not be read.
        """
        if is_listing_complete and not any(run.unread.values()):
            return []
        active: Iterable[HostWarning] | None = self._stored
        if active is None:  # as an earlier run of the agent left them
            stored = self._store.list_warnings(run.agent.host)
            active = [record.warning for record in stored if record.resolved_at is None]
        return list_unseen(active, run.warnings, run.unread, is_listing_complete)

    def sync(self, agent: AgentKey, warnings: Sequence[HostWarning]) -> None:
        """Log warnings that were raised or resolved, and store the active ones.

        They are stored if they changed or all rows were loaded again.

        Raises:
            StoreError: the database did not answer; the next call logs and stores again.
        """
        active = frozenset(warnings)
        loads = self._rows.full_loads
        if active == self._stored and loads == self._stored_loads:
            return
        before = self._stored or frozenset()
        old_keys = {warning.key for warning in before}
        new_keys = {warning.key for warning in active}
        for warning in sorted(active):
            if warning.key not in old_keys:
                _log(logging.WARNING, agent.host, warning, "")
        for warning in sorted(before):
            if warning.key not in new_keys:
                _log(logging.INFO, agent.host, warning, "resolved: ")
        self._store.sync_warnings(agent, sorted(active))
        self._stored, self._stored_loads = active, loads

    def _evaluate_clock(self, skew: float) -> list[HostWarning]:
        """Warn of a clock that is off; the message changes only with a different skew."""
        reported = self._reported_skew
        if abs(skew) <= MAX_CLOCK_SKEW_SECONDS:
            return []
        if abs(skew - reported) > max(MAX_CLOCK_SKEW_SECONDS, abs(reported) / 10):
            self._reported_skew = skew
        offset = "ahead of" if self._reported_skew > 0 else "behind"
        message = (
            f"this host's clock is about {abs(self._reported_skew):.0f} s {offset} the database's"
        )
        return [HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, NO_ITEM, message)]


def explain_split_brain(found: SplitBrain, name: str) -> HostWarning:
    """Return the warning of a workload on two nodes without a migration between them."""
    here = "holds a claim here" if found.is_claimed else "runs here without a claim"
    there = "another" if found.is_claimed else "holds one"
    return HostWarning(
        WarningKind.SPLIT_BRAIN,
        found.nodename,
        found.workload_uuid,
        f"workload {name} {here} and {there} on node "
        f"{found.other_nodename} of host {found.other_host}, and no migration ties them",
    )


def _log(level: int, host: str, warning: HostWarning, prefix: str) -> None:
    # A held fact has been logged by its probe, and a lost source by its driver; otherwise
    # a source that fails would cause a line for each of its nodes.
    level = logging.DEBUG if warning.kind in _LOGGED_ELSEWHERE else level
    subject = host if warning.nodename == WHOLE_HOST else warning.nodename
    LOG.log(level, "%s: %s%s", subject, prefix, warning.message)
