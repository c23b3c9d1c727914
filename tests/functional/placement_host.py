"""A host in process over SQLite in memory, with a reporter to the real placement."""

import uuid
from functools import partial
from pathlib import Path

from oslo_config import cfg

from nodetracker.bootstrap.clients import build_placement_client
from nodetracker.bootstrap.options.agent import PLACEMENT
from nodetracker.model.warning import WarningKind
from nodetracker.placement.client import PlacementClient
from nodetracker.placement.reconciler import is_in_ledger
from nodetracker.placement.reporter import PlacementReporter
from tests.programs import wait_until
from tests.settings import make_placement_settings
from tests.unit.compute.tracked_host import TrackedHost


def make_client(directory: Path, text: str) -> PlacementClient:
    """Build the client of a group [placement]."""
    path = directory / f"placement-{uuid.uuid4()}.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    conf.register_opts(PLACEMENT.options, group=PLACEMENT.name)
    conf([], default_config_files=[str(path)])
    return build_placement_client(conf)


class ReportedHost:
    """An agent's audits, and what they report; `settle` audits until placement has all.

    Args:
        configuration: the group [placement].
        store: shared by the hosts of a test.
    """

    def __init__(self, directory: Path, configuration: str, store, clock, host: str, **settings):
        self.directory, self.configuration = directory, configuration
        self.settings = make_placement_settings(**({"refresh_interval": 0} | settings))
        agent_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{directory}/{host}"))
        self.tracked = TrackedHost(
            store, directory / f"{host}.yaml", clock, host=host, agent_id=agent_id, probe_timeout=30
        )
        self.store = store
        self.reporter: PlacementReporter | None = None
        self.restart()

    def restart(self) -> None:
        """Start a reporter that knows nothing."""
        self.stop()
        self.client = make_client(self.directory, self.configuration)
        self.reporter = PlacementReporter(
            self.client, partial(is_in_ledger, self.store), self.settings
        )
        self.reporter.start()

    def stop(self) -> None:
        """Stop the reporter."""
        if self.reporter is not None:
            self.reporter.stop(10)

    def audit(self, *nodes, **more):
        """Audit once, and let the reporter observe it."""
        report = self.tracked.audit(*nodes, **more)
        self.reporter.audited(report)
        return report

    def settle(self, *nodes, **more) -> None:
        """Audit once, and wait until placement has the result."""
        self.audit(*nodes, **more)
        self.wait()

    def wait(self, timeout: float = 30) -> None:
        wait_until(lambda: not self.reporter.status().waiting_nodes, timeout, 0.005)

    def count(self) -> int:
        """Return the number of requests since the reporter's start."""
        return sum(self.client.count_requests().values())

    def kinds(self) -> set[WarningKind]:
        return {warning.kind for warning in self.reporter.list_warnings()}
