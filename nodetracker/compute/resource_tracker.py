"""Track the resources of one host: audits of its nodes, and claims on them."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from nodetracker.accounting.ledger.grants import require_active
from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.auditor import Auditor
from nodetracker.compute.host_rows import HostRows
from nodetracker.compute.missing_guests import MissingGuestTracker
from nodetracker.compute.node_reader import NodeReader
from nodetracker.compute.row_writer import RowWriter
from nodetracker.compute.start_check import require_consistent
from nodetracker.compute.warning_registry import WarningRegistry
from nodetracker.fleet.node_resolution import find_node
from nodetracker.model.audit import AuditReport
from nodetracker.model.claim import Claim, ClaimRequest
from nodetracker.model.settings import AgentSettings
from nodetracker.model.warning import HostWarning
from nodetracker.ports import AdmissionPolicy, AgentKey, Driver, HostStore
from nodetracker.process.clock import DatabaseClock, utc_clock
from nodetracker.process.loops import Progress


class ResourceTracker:
    """Keeps one true row per node of one host.

    It remembers what it last read from or committed to the store, so a steady
    audit costs one statement; the next audit computes again whatever a crash or
    an outage interrupts. Audits must not run concurrently.

    Args:
        monotonic: seconds that never go back, for pacing.
        clock: this host's own time, compared with the database's.
        queue: gets the events of nodes; readings of nodes are put on it. Its
            timer counts the same seconds as `monotonic`.
        progress: noted at each step of an audit.
    """

    def __init__(
        self,
        settings: AgentSettings,
        driver: Driver,
        store: HostStore,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_clock,
        queue: AuditQueue | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._rows = HostRows(store, monotonic, clock)
        queue, progress = queue or AuditQueue(), progress or Progress()
        self._reader = NodeReader(
            driver, queue, settings.probe_timeout, settings.max_concurrent_audits
        )
        self._writer = RowWriter(settings, store, self._rows, MissingGuestTracker(queue), progress)
        self._auditor = Auditor(
            driver,
            queue,
            self._reader,
            self._rows,
            self._writer,
            WarningRegistry(store, self._rows),
            progress,
            monotonic,
        )

    @property
    def database_clock(self) -> DatabaseClock:
        """The database's time, as last loaded."""
        return self._rows.database_clock

    @property
    def policy(self) -> AdmissionPolicy:
        """The policy of this host's claims."""
        settings = self._settings
        return AdmissionPolicy(
            settings.service_down_time,
            settings.policy.claim_timeout,
            settings.is_packing_cells,
            settings.policy.pci.aliases,
        )

    def check(self, settings: AgentSettings) -> None:
        """Check other settings against the nodes as they are known.

        Raises:
            ConfigError: as `start_check.require_consistent`.
        """
        require_consistent(settings.policy, self._rows.list_records())

    def reconfigure(self, settings: AgentSettings) -> None:
        """Use other settings from the next audit on."""
        self._settings = settings
        self._reader.change_timeout(settings.probe_timeout)
        self._writer.reconfigure(settings)

    def invalidate(self) -> None:
        """See `HostRows.invalidate`."""
        self._rows.invalidate()

    def audit(
        self, agent: AgentKey, startup: bool = False, known_warnings: Sequence[HostWarning] = ()
    ) -> AuditReport:
        """Bring every row of the host up to date.

        A node, probe or row that fails never stops the others.

        Args:
            startup: whether to check the configuration against the nodes as well.
            known_warnings: warnings that the caller found.

        Raises:
            ConfigError: at startup, when the configuration leaves a node
                without CPUs, or two sources report one nodename.
            FencedError: a newer agent has taken this host over.
            StoreError: the database did not answer; the next audit repeats the work.
        """
        startup_policy = self._settings.policy if startup else None
        return self._auditor.audit(agent, known_warnings, startup_policy)

    def audit_nodes(
        self,
        agent: AgentKey,
        nodenames: Collection[str],
        known_warnings: Sequence[HostWarning] = (),
    ) -> AuditReport:
        """Bring the rows of some nodes up to date, as `audit` does for all.

        Nodes without a row lead to an audit of all, as only that lists the nodes.

        Raises: as `audit`, but for the configuration.
        """
        return self._auditor.audit_nodes(agent, nodenames, known_warnings)

    @contextmanager
    def instance_claim(self, request: ClaimRequest, nodename: str | None = None) -> Iterator[Claim]:
        """Claim a workload's resources while its guest is created; an exception aborts the claim.

        Without an exception the caller confirms the claim, or the audit that
        finds the guest does.

        Args:
            nodename: None = the request's node, or the host's only node.

        Raises:
            ClaimRefusedError, ClaimConflictError: see `LedgerStore.create_claim`.
            RefusedError: the host has several nodes and none is named, or the
                claim was granted before and is released already.
        """
        host = self._settings.host
        node = nodename or request.nodename or find_node(self._store, host).nodename
        claim = require_active(self._store.create_claim(request, host, node, self.policy))
        try:
            yield claim
        except BaseException:
            self._store.abort_claim(claim.uuid)
            raise
