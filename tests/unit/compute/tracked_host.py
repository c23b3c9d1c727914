"""An agent over SQLite in memory and the file-driven driver, audited by a test one by one."""

import time
from datetime import timedelta

import yaml

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.compute.audit_queue import AuditQueue
from nodetracker.compute.resource_tracker import ResourceTracker
from nodetracker.model.audit import EventKind, NodeEvent
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.ports import AdmissionPolicy, AgentKey
from nodetracker.process.clock import Timer
from nodetracker.virt.fake.plugin import FakeDriver
from tests.builders import Clock, make_incarnation, take_service
from tests.probes import SelectiveProbeRunner
from tests.stores import SqliteStore

HOST = "host-1"


def node(number, *guests, **more):
    return {
        "nodename": f"node-{number}",
        "vcpus": 16,
        "memory_mb": 65536,
        "disk_gb": 500,
        "guests": list(guests),
    } | more


def guest(number, **more):
    return {
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "vcpus": 2,
        "memory_mb": 2048,
        "disk_gb": 20,
    } | more


class TrackedHost:
    """One agent on a store, and the file that its driver reads."""

    def __init__(
        self,
        store,
        path,
        clock,
        policy=None,
        host=HOST,
        agent_id=None,
        probe_timeout=60,
        wrap_driver=lambda driver: driver,
        **tracker,
    ):
        self.store = store
        self.path = path
        self.clock = clock
        incarnation = make_incarnation(**({"agent_id": agent_id} if agent_id else {}))
        service = take_service(store, host, incarnation)
        self.key = AgentKey(host, COMPUTE_BINARY, incarnation.agent_id, service.epoch, service.uuid)
        self.probes = SelectiveProbeRunner(0.5)
        settings = AgentSettings(
            host=host, state_path="", policy=policy or Policy(), probe_timeout=probe_timeout
        )
        self.driver = wrap_driver(FakeDriver(str(path), self.probes))
        self.tracker = ResourceTracker(
            settings,
            self.driver,
            store,
            clock,
            lambda: clock.now() + timedelta(seconds=clock.skew),
            **tracker,
        )

    def audit(self, *nodes, startup=False, hanging=(), **more):
        if nodes or more:
            failures = dict.fromkeys(hanging, "hang") | more.pop("fail", {})
            content = {"nodes": list(nodes), "fail": failures} | more
            self.path.write_text(yaml.safe_dump(content))
            self.probes.hanging = set(hanging)
        return self.tracker.audit(self.key, startup)

    def audit_until_good(self):
        """Audit until hung threads have noticed that the file was replaced."""
        deadline = time.monotonic() + 60
        while not self.audit().is_good:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def records(self):
        return {record.nodename: record for record in self.store.load_nodes(self.key.host)}


class TickingClock(Clock):
    """A clock whose times differ, beside the host's own, which is `skew` ahead."""

    skew = 0.0

    def now(self):
        self.seconds += 0.001
        return super().now()


class ClockTimer(Timer):
    """Lets events happen by a test's clock; nothing may wait for a reading's timeout then."""

    def __init__(self, clock):
        self.now = clock


ADMISSION_POLICY = AdmissionPolicy(service_down_time=10**9, claim_timeout=600)


class AgentWithClaimants(TrackedHost):
    """An agent, and clients that claim on its node."""

    def __init__(self, clock, tmp_path, policy=None):
        self.queue = AuditQueue(ClockTimer(clock))
        path = tmp_path / "inventory.yaml"
        super().__init__(SqliteStore(clock.now), path, clock, policy, queue=self.queue)
        self.store.report_state(self.key, 1, AuditState())
        self.audit(node(1))

    def claim(self, number=1, **resources):
        request = parse_claim_request(
            {"workload": {"uuid": guest(number)["uuid"]}, "resources": resources or {"VCPU": 2}}
        )
        return self.store.create_claim(request, HOST, "node-1", ADMISSION_POLICY)

    def delete(self, number=1):
        self.clock.seconds += 1
        self.queue.put_event(NodeEvent("node-1", EventKind.GONE, guest(number)["uuid"]))

    def find(self, claim):
        (found,) = self.store.list_claims(uuid=claim.uuid)
        return found

    @property
    def used(self):
        return self.records()["node-1"].values.vcpus_used

    def warnings(self, kind):
        return [
            record.warning
            for record in self.store.list_warnings(HOST)
            if record.warning.kind is kind and record.resolved_at is None
        ]
