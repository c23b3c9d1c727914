"""What an agent warns of: logged when it is new or over, stored when it changes."""

import logging
from collections.abc import Sequence

from nodetracker.accounting.reports.health import MAX_CLOCK_SKEW_SECONDS
from nodetracker.model.claim import SplitBrain
from nodetracker.model.warning import NO_ITEM, WHOLE_HOST, HostWarning, WarningKind
from nodetracker.ports import AgentKey, AgentStore

LOG = logging.getLogger(__name__)


class WarningRegistry:
    """The warnings of one host that stand, as they were last told."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._told: frozenset[HostWarning] | None = None
        self._told_skew = 0.0

    @property
    def standing(self) -> frozenset[HostWarning]:
        """What was told last."""
        return self._told or frozenset()

    def tell(self, agent: AgentKey, warnings: Sequence[HostWarning], is_due: bool) -> None:
        """Log what is new or over, and store it.

        Args:
            is_due: store what stands also when nothing has changed.

        Raises:
            StoreError: the database did not take it; the next call tells it again.
        """
        active = frozenset(warnings)
        if active == self._told and not is_due:
            return
        before = self.standing
        told = {warning.key for warning in before}
        still = {warning.key for warning in active}
        for warning in sorted(active):
            if warning.key not in told:
                _log(logging.WARNING, agent.host, warning, "")
        for warning in sorted(before):
            if warning.key not in still:
                _log(logging.INFO, agent.host, warning, "over: ")
        self._store.sync_warnings(agent, sorted(active))
        self._told = active

    def evaluate_clock(self, skew_seconds: float) -> list[HostWarning]:
        """Warn of a clock that is off; the figure told stays while the skew is much the same."""
        skew, told = skew_seconds, self._told_skew
        if abs(skew) <= MAX_CLOCK_SKEW_SECONDS:
            return []
        if abs(skew - told) > max(MAX_CLOCK_SKEW_SECONDS, abs(told) / 10):
            self._told_skew = skew
        side = "ahead of" if self._told_skew > 0 else "behind"
        message = f"this host's clock is about {abs(self._told_skew):.0f} s {side} the database's"
        return [HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, NO_ITEM, message)]


def explain_split_brain(found: SplitBrain) -> HostWarning:
    """Return the warning of a workload on two nodes that nothing ties."""
    here = "holds a claim here" if found.is_claimed else "runs here without a claim"
    there = "another" if found.is_claimed else "holds one"
    return HostWarning(
        WarningKind.SPLIT_BRAIN,
        found.nodename,
        found.workload_uuid,
        f"workload {found.workload_uuid} {here} and {there} on node "
        f"{found.other_nodename} of host {found.other_host}, and no migration ties them",
    )


def _log(level: int, host: str, warning: HostWarning, prefix: str) -> None:
    # A held fact has been logged by its probe; a source that fails would
    # otherwise be a line for each of its nodes.
    level = logging.DEBUG if warning.kind is WarningKind.FACT_HELD else level
    subject = host if warning.nodename == WHOLE_HOST else warning.nodename
    LOG.log(level, "%s: %s%s", subject, prefix, warning.message)
