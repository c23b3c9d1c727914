"""Run a conductor, which serves the store to agents without a database.

It notices when no agent reaches it any more, which is rarely the agents' fault.
"""

import logging
from datetime import timedelta

from oslo_service import periodic_task

from nodetracker.accounting.liveness import has_ended
from nodetracker.conductor.application import ConductorApplication
from nodetracker.model.errors import StoreError
from nodetracker.model.service import AGENTS, COMPUTE_BINARY, AuditState
from nodetracker.ports import FleetStore
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks
from nodetracker.process.membership import Membership
from nodetracker.process.outage import SETTLE_SECONDS, OutageLog
from nodetracker.process.server_service import ServerService
from nodetracker.rpc.notify import NotificationSender
from nodetracker.usecases.watch import INTERVAL_SECONDS, FleetWatch, RowPurge, ToleranceWatch
from nodetracker.web.server import Server

LOG = logging.getLogger(__name__)


class AgentWatch:
    """Reports in a conductor's row that no agent calls it any more.

    An expired certificate or a firewall silences all agents at once while their hosts
    are well. See `find_conductor_outage`. Often the conductor was started again before,
    so the agents' rows say once who called until then.

    Args:
        service_down_time: an agent is down after so many seconds. The row says after half of
            them that none calls, so that agents are never taken for down first.
    """

    def __init__(
        self, calls: ConductorApplication, store: FleetStore, service_down_time: int
    ) -> None:
        self._calls = calls
        self._store = store
        self._service_down_time = service_down_time
        self._has_recalled = False

    @property
    def is_out(self) -> bool:
        """True while no agent calls."""
        silent = self._calls.silent_seconds
        return silent is None or silent > self._service_down_time / 2

    def state(self) -> AuditState:
        """Return the entry for the conductor's row; its age is that of the last call.

        Raises:
            StoreError: the agents' rows cannot be read.
        """
        self._recall()
        if not self.is_out:
            return AuditState()
        entry = {
            "age_seconds": self._calls.silent_seconds,
            "agents": self._calls.called_hosts,
            "error": "no agent has called this conductor",
        }
        return AuditState(nodes={AGENTS: entry})

    def _recall(self) -> None:
        if self._has_recalled:
            return
        seen = {
            service.host: service.last_seen_up
            for service in self._store.list_services(binary=COMPUTE_BINARY)
            if service.last_seen_up is not None
            and service.last_audit.get("by_conductor")
            and not has_ended(service)
        }
        if seen:
            last = max(seen.values())
            oldest = last - timedelta(seconds=self._service_down_time)
            hosts = [host for host, seen_at in seen.items() if seen_at >= oldest]
            self._calls.recall(hosts, (self._store.now() - last).total_seconds())
        self._has_recalled = True


class FleetTasks(PeriodicTasks):
    """Watches the services and nodes of all hosts, as a periodic task."""

    def __init__(self, fleet: FleetWatch, watch: AgentWatch, database: OutageLog) -> None:
        super().__init__()
        self._fleet = fleet
        self._watch = watch
        self._database = database

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def check_fleet(self, context: object = None) -> None:
        """Raise and resolve warnings, and sample the trends, unless another conductor does."""
        self._database.run("fleet", lambda: self._fleet.check(self._watch.is_out))


class ConductorService(ServerService):
    """Runs one conductor.

    Args:
        host: its name.
        server: serves `application`, which answers the agents.
        notifier: sends the store's notifications, None without a broker.
        report_interval: seconds between heartbeats, and between checks of the fleet.
        graceful_shutdown_timeout: seconds for running calls to end.
        purge: deletes old rows each hour, None = never; it may take long.
        tolerance: finds out which losses of hosts the fleet survives, None = nobody does here.
    """

    def __init__(
        self,
        host: str,
        store: FleetStore,
        server: Server,
        application: ConductorApplication,
        membership: Membership,
        watch: AgentWatch,
        fleet: FleetWatch,
        notifier: NotificationSender | None,
        report_interval: float,
        graceful_shutdown_timeout: float,
        purge: RowPurge | None = None,
        tolerance: ToleranceWatch | None = None,
    ) -> None:
        database = OutageLog("The database", StoreError, LOG, settle_seconds=SETTLE_SECONDS)
        super().__init__(
            f"Conductor {host}", server, (store, application), membership, notifier, database,
            report_interval, graceful_shutdown_timeout,
        )  # fmt: skip
        self._application = application
        self.add_tasks("fleet", FleetTasks(fleet, watch, database), report_interval)
        if purge is not None:
            self.add_tasks("purge", purge, INTERVAL_SECONDS, is_slow=True)
        if tolerance is not None:
            spacing = tolerance.spacing
            self.add_tasks("tolerance", tolerance, spacing, is_slow=True, outages=database)

    def begin(self) -> None:
        """Serve in the background; see `ServerService`."""
        self._application.start()
        super().begin()
        LOG.info("%s is ready", self._name)

    def end(self) -> bool:
        """Accept no more calls, let running ones end and send their notifications."""
        self._application.is_stopping = True
        return super().end()
