"""A reporter with its model of placement."""

from nodetracker.model.audit import AuditReport
from nodetracker.model.service import AdminState
from nodetracker.placement.reporter import PlacementReporter
from tests.builders import Clock
from tests.placement_model import NODE, PlacementModel, make_node
from tests.programs import wait_until
from tests.settings import make_placement_settings


class Ledger:
    def __init__(self):
        self.known = set()
        self.error = None

    def has_known(self, consumer):
        if self.error is not None:
            raise self.error
        return consumer.uuid in self.known


class Scene:
    """A reporter with its model; `report` waits until all is reported."""

    def __init__(self, **settings):
        self.model, self.ledger, self.clock = PlacementModel(), Ledger(), Clock(1000.0)
        self.settings = make_placement_settings(**({"workers": 2, "leak_grace": 60} | settings))
        self.generation = 0
        self.reporter, self.earlier = None, []
        self.restart()

    def restart(self):
        if self.reporter is not None:
            assert self.reporter.stop(10)
        self.reporter = PlacementReporter(
            self.model, self.ledger.has_known, self.settings, self.clock, lambda: 1.0,
            list_earlier=lambda: self.earlier,
        )  # fmt: skip
        self.reporter.start()

    def audit(self, *arguments, is_disabled=False, is_spare=False, **changes):
        self.generation += 1
        record = make_node(*arguments, generation=self.generation, **changes)
        admin = AdminState(is_disabled, spare=is_spare)
        self.reporter.audited(AuditReport(nodes={"node-1": record}, admin=admin))

    def settle(self):
        wait_until(lambda: not self.reporter.status().waiting_nodes)

    def report(self, *arguments, **changes):
        """Return the requests that a report of a node takes."""
        before = len(self.model.requests)
        self.audit(*arguments, **changes)
        self.settle()
        return self.model.requests[before:]

    def refresh(self):
        """Let a refresh pass, and what follows from it; return the requests."""
        before = len(self.model.requests)
        self.wake(self.settings.refresh_interval + 1)
        wait_until(lambda: len(self.model.requests) > before)
        assert self.reporter._slots.wait_idle(10)
        self.settle()
        return self.model.requests[before:]

    def wake(self, seconds):
        """Let time pass for threads that wait."""
        self.clock.seconds += seconds
        with self.reporter._slots._changed:
            self.reporter._slots._changed.notify_all()

    def warnings(self):
        return {w.kind: w for w in self.reporter.list_warnings()}

    def reserved(self, name):
        return self.model.providers[NODE].inventories[name].reserved

    def held(self):
        return {uuid: c.resources for uuid, c in self.model.consumers.items()}
