"""What the machines of hypothesis have in common: one agent, on a store of its own."""

from datetime import timedelta

from hypothesis.stateful import RuleBasedStateMachine

from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.model.service import AuditState
from nodetracker.model.settings import AgentSettings
from tests.builders import NOW, key_of, make_incarnation, take_service
from tests.stores import SqliteStore

HOST = "host-1"


class AgentMachine(RuleBasedStateMachine):
    """An agent whose time passes only by what the machine does."""

    def __init__(self, open_store=SqliteStore):
        super().__init__()
        self.seconds = 0.0
        self.store = open_store(self.now)  # without rows, with this clock

    def now(self):
        self.seconds += 0.001
        return NOW + timedelta(seconds=self.seconds)

    def start_agent(self, driver, policy, **tracker):
        """Start an agent, as after the death of the one before."""
        service = take_service(self.store, HOST, make_incarnation())
        self.key = key_of(service)
        self.store.report_state(self.key, service.report_count + 1, AuditState())
        settings = AgentSettings(HOST, "", policy)
        self.tracker = ResourceTracker(
            settings, driver, self.store, lambda: self.seconds, self.now, **tracker
        )
