"""Run the REST service."""

from oslo_service import periodic_task

from nodetracker.accounting.liveness import Liveness, is_first_watcher
from nodetracker.model.service import API_BINARY
from nodetracker.model.settings import ApiSettings
from nodetracker.ports import Store
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks
from nodetracker.process.membership import Membership
from nodetracker.process.outage import OutageLog
from nodetracker.process.server_service import Sender, ServerService
from nodetracker.usecases.watch import (
    INTERVAL_SECONDS,
    HostDownWatch,
    RowPurge,
    ToleranceWatch,
    TrendWatch,
)
from nodetracker.web.server import Server

_REMOVAL_SECONDS = 60.0


class HostTasks(PeriodicTasks):
    """Watches the hosts, as a periodic task of the first process by name."""

    def __init__(self, settings: ApiSettings, store: Store, database: OutageLog) -> None:
        super().__init__()
        self._settings = settings
        self._store = store
        self._database = database
        self._hosts_down = HostDownWatch(store, settings.service_down_time)
        self._trends = TrendWatch(store)

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def watch_hosts(self, context: object = None) -> None:
        """Warn of hosts that are down, and sample the trends."""
        self._database.run("fleet", self._check_hosts)

    def _check_hosts(self) -> None:
        settings = self._settings
        down_time = settings.service_down_time
        services, now = self._store.list_outage_services(down_time), self._store.now()
        if is_first_watcher(services, settings.host, API_BINARY, now, down_time):
            self._hosts_down.check(services, Liveness.of(services, now, down_time))
            self._trends.check(now)


class ApiService(ServerService):
    """Serves until it is stopped, reports heartbeats, and warns of hosts that are down.

    Args:
        notifier: sends the store's notifications, None without a broker.
        database: logs when heartbeats and the watch of hosts cannot use the database.
        removals: removes providers each minute, None = never; it may take long.
        purge: deletes old rows each hour, None = never; it may take long.
        tolerance: finds out which losses of hosts the fleet survives, None = nobody does here.
    """

    def __init__(
        self,
        settings: ApiSettings,
        server: Server,
        store: Store,
        membership: Membership,
        notifier: Sender | None,
        database: OutageLog,
        removals: PeriodicTasks | None = None,
        purge: RowPurge | None = None,
        tolerance: ToleranceWatch | None = None,
    ) -> None:
        interval = settings.report_interval
        super().__init__(
            f"API {settings.host}", server, (store,), membership, notifier, database, interval,
            settings.graceful_shutdown_timeout,
        )  # fmt: skip
        self.add_tasks("fleet", HostTasks(settings, store, database), interval)
        if removals is not None:
            self.add_tasks("placement-removals", removals, _REMOVAL_SECONDS, is_slow=True)
        if purge is not None:
            self.add_tasks("purge", purge, INTERVAL_SECONDS, is_slow=True)
        if tolerance is not None:
            spacing = tolerance.spacing
            self.add_tasks("tolerance", tolerance, spacing, is_slow=True, outages=database)
