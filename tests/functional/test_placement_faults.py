"""A placement that fails, answers wrongly or changes meanwhile, and agents that are killed."""

import json
import signal
import threading
import time
import uuid
from dataclasses import replace

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.service import AdminState
from nodetracker.model.warning import WarningKind
from nodetracker.placement import slots
from nodetracker.ports import AdmissionPolicy
from tests.functional.placement_host import ReportedHost
from tests.functional.servers.faulty_proxy import FaultyProxy
from tests.programs import Programs, wait_until
from tests.stores import SqliteStore
from tests.unit.compute.tracked_host import TickingClock, guest

POLICY = AdmissionPolicy(service_down_time=10**6, claim_timeout=600)


class World:
    """One host with a node of its own, whose requests pass a proxy."""

    def __init__(self, tmp_path, placement, **options):
        self.placement = placement
        self.proxy = FaultyProxy(placement.process.port)
        self.clock = TickingClock()
        self.store = SqliteStore(self.clock.now)
        self.name = f"n-{uuid.uuid4().hex[:8]}"
        self.options = {"timeout": 30} | options
        configuration = placement.configuration(self.proxy.port, **self.options)
        self.host = ReportedHost(
            tmp_path, configuration, self.store, self.clock, "host-1", workers=1
        )

    def node(self, *guests, **more):
        size = {"vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
        return {"nodename": self.name, "guests": list(guests)} | size | more

    @property
    def uuid(self):
        return self.host.tracked.records()[self.name].uuid

    def claim(self, number=1, **resources):
        body = {
            "workload": {"uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}/{number}"))},
            "resources": {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 1} | resources,
        }
        request = parse_claim_request(body)
        return self.store.create_claim(request, "host-1", self.name, POLICY)

    def read(self):
        """Return inventories, traits and allocations without generations."""
        path = f"/resource_providers/{self.uuid}"
        allocations = self.placement.get(f"{path}/allocations")["allocations"]
        return (
            self.placement.get(f"{path}/inventories")["inventories"],
            sorted(self.placement.get(f"{path}/traits")["traits"]),
            {key: value["resources"] for key, value in allocations.items()},
        )

    def is_waiting(self):
        return self.host.reporter.status().waiting_nodes > 0

    def close(self):
        self.proxy.close()
        self.host.stop()


@pytest.fixture
def options():
    """The options of [placement]."""
    return {}


@pytest.fixture
def world(tmp_path, placement, options, monkeypatch):
    monkeypatch.setattr(slots, "FIRST_RETRY_SECONDS", 0.05)
    world = World(tmp_path, placement, **options)
    yield world
    world.close()


def _list_writes(world):
    """Return the requests that change something; a refresh, which only reads, may come any time."""
    return [request for request in world.proxy.requests if request[0] != "GET"]


FAULTS = (
    "closed", "lost", "frozen", "trickling", "500", "503", "403", "401", "html", "half", "409"
)  # fmt: skip
HANGING = {key: {"timeout": 3} for key in ("frozen", "trickling")}


@pytest.mark.parametrize(
    ("fault", "options"), [(f, HANGING.get(f, {})) for f in FAULTS], ids=FAULTS
)
def test_whatever_placement_answers_audits_go_on_and_its_return_makes_all_right(
    world, fault
) -> None:
    is_faulty = True

    def decide(method, path):
        return fault if is_faulty and (method != "GET" or fault not in ("lost", "409")) else None

    world.proxy.fault = decide
    started = time.monotonic()
    world.host.audit(world.node())
    claims = [world.claim(1), world.claim(2)]
    report = world.host.audit(world.node(guest(9)))
    assert time.monotonic() - started < 30
    assert report.is_good
    wait_until(lambda: len(world.proxy.requests) >= 2)
    assert world.host.reporter.status().waiting_nodes == 1
    is_faulty = False
    world.proxy.thawed.set()
    world.host.wait()
    inventories, traits, allocations = world.read()
    assert allocations == {
        claim.workload.uuid: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 1} for claim in claims
    }
    assert inventories["MEMORY_MB"]["reserved"] == 512 + 2048
    assert traits == ["COMPUTE_NODE", "CUSTOM_OWNER_NODETRACKER"]
    assert world.host.reporter.status().error is None
    count = len(_list_writes(world))
    world.host.settle()
    assert len(_list_writes(world)) == count


def test_a_huge_answer_is_cut_off(world) -> None:
    is_faulty = True
    world.proxy.fault = lambda method, path: "huge" if is_faulty else None
    world.host.audit(world.node())
    wait_until(lambda: world.host.reporter.status().error is not None, 60)
    is_faulty = False
    world.host.wait()
    assert world.read()[1]


AGGREGATE = str(uuid.uuid4())


def change_traits(world, path, generation):
    body = {"resource_provider_generation": generation, "traits": []}
    return world.placement.request("PUT", f"{path}/traits", body)


def change_generation(world, path, generation):
    body = {"resource_provider_generation": generation, "aggregates": [AGGREGATE]}
    return world.placement.request("PUT", f"{path}/aggregates", body)


def change_inventory(world, path, generation):
    body = {"resource_provider_generation": generation, "inventories": {"VCPU": {"total": 1}}}
    return world.placement.request("PUT", f"{path}/inventories", body)


def change_ratio(world, path, generation):
    body = world.placement.get(f"{path}/inventories")
    body["inventories"]["VCPU"]["allocation_ratio"] = 9.0
    return world.placement.request("PUT", f"{path}/inventories", body)


def change_consumer(world, path, generation):
    body = {
        "allocations": {world.uuid: {"resources": {"MEMORY_MB": 1}}},
        "project_id": "p", "user_id": "u", "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }  # fmt: skip
    return world.placement.request("PUT", f"/allocations/{uuid.uuid4()}", body)


@pytest.mark.parametrize(
    ("request_kind", "change"),
    [
        ("PUT inventories", change_traits),
        ("PUT inventories", change_generation),
        ("PUT inventories", change_consumer),
        ("PUT traits", change_inventory),
        ("PUT traits", change_ratio),
        ("POST allocations", change_inventory),
        ("POST allocations", change_ratio),
        ("POST allocations", change_consumer),
        ("GET inventories", change_consumer),
        ("GET traits", change_inventory),
        ("GET allocations", change_traits),
    ],
)
def test_what_somebody_changes_between_reading_and_writing_is_put_back(
    world, change, request_kind
) -> None:
    world.host.settle(world.node())
    wanted_method, _, wanted_path = request_kind.partition(" ")
    done = threading.Event()

    def decide(method, path):
        if method == wanted_method and wanted_path in path and not done.is_set():
            done.set()
            provider = f"/resource_providers/{world.uuid}"
            generation = world.placement.get(provider)["generation"]
            assert change(world, provider, generation)[0] in (200, 204)

    world.proxy.fault = decide
    claims = [] if wanted_method == "PUT" else [world.claim()]
    if wanted_method == "GET":
        world.host.restart()
    if request_kind == "PUT traits":
        report = replace(world.host.audit(), admin=AdminState(disabled=True))
        world.host.reporter.audited(report)
    else:
        world.host.audit(world.node(guest(9, vcpus=4)))
    world.host.wait()
    assert done.is_set()
    world.proxy.fault = lambda method, path: None
    world.host.reporter._lists.refresh()  # what was changed after our last write
    world.host.wait()
    inventories, traits, allocations = world.read()
    vcpus = inventories["VCPU"]
    assert (vcpus["total"], vcpus["allocation_ratio"], vcpus["reserved"]) == (
        16, 4.0, 0 if request_kind == "PUT traits" else 1
    )  # fmt: skip
    assert inventories["MEMORY_MB"]["total"] == 65536
    assert {"COMPUTE_NODE", "CUSTOM_OWNER_NODETRACKER"} <= set(traits)
    is_foreign = change is change_consumer
    assert len(allocations) == is_foreign + len(claims)
    assert all(allocations[claim.workload.uuid]["VCPU"] == 2 for claim in claims)
    assert (WarningKind.PLACEMENT_FOREIGN in world.host.kinds()) == is_foreign
    aggregates = world.placement.get(f"/resource_providers/{world.uuid}/aggregates")["aggregates"]
    assert aggregates == ([AGGREGATE] if change is change_generation else [])


def write_history(world, crash):
    """Report a node, claims, a move on the node and its end, a release and a removal of a guest.

    Args:
        crash: called after each phase is audited; returns once it is reported.
    """
    world.host.audit(world.node())
    claims = [world.claim(1), world.claim(2, VCPU=3)]
    crash()
    world.host.audit(world.node(guest(9)))
    crash()
    body = {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{world.name}/dest")),
        "workload": {"uuid": claims[0].workload.uuid},
        "resources": {"VCPU": 4, "MEMORY_MB": 4096},
        "migration": {"type": "resize", "source_claim": claims[0].uuid},
    }
    move = world.store.create_migration(parse_claim_request(body), "host-1", world.name, POLICY)
    world.host.audit()
    crash()
    world.store.confirm_migration(move.uuid)
    world.store.abort_claim(claims[1].uuid)
    world.host.audit(world.node())
    crash()
    world.host.audit()
    return claims[0].workload.uuid


def test_a_crash_after_any_write_leads_to_the_same_state(world) -> None:
    """The answer of each write is lost, and a reporter that knows nothing goes on."""
    crashed = 0

    def crash():
        nonlocal crashed
        lost = threading.Event()

        def decide(method, path):
            if method != "GET" and not lost.is_set():
                lost.set()
                return "lost"
            return "closed" if lost.is_set() else None

        while True:
            lost.clear()
            world.proxy.fault = decide
            wait_until(lambda: lost.is_set() or not world.is_waiting(), 30, 0.005)
            if not lost.is_set():
                return
            crashed += 1
            world.host.stop()
            world.proxy.fault = lambda method, path: None
            world.host.restart()
            world.host.audit()

    workload = write_history(world, crash)
    world.proxy.fault = lambda method, path: None
    world.host.wait()
    inventories, _, allocations = world.read()
    assert allocations == {workload: {"VCPU": 4, "MEMORY_MB": 4096}}
    assert inventories["VCPU"]["reserved"] == 0
    assert crashed >= 8
    assert world.host.kinds() == set()


def test_an_agent_that_is_killed_after_any_write_ends_in_the_same_state(
    tmp_path, placement
) -> None:
    proxy = FaultyProxy(placement.process.port)
    name = f"n-{uuid.uuid4().hex[:8]}"
    programs = Programs(tmp_path / "agent", update_resources_interval=1)
    programs.make_schema()
    programs.inventory.write_text(
        f"nodes:\n  - {{nodename: {name}, vcpus: 4, memory_mb: 4096, disk_gb: 40}}\n"
    )
    request = tmp_path / "request.json"
    request.write_text(
        json.dumps({"workload": {"uuid": str(uuid.uuid4())}, "resources": {"VCPU": 2}})
    )
    with programs.start() as agent:
        agent.wait_for("is ready")
        programs.ask("claim", "create", str(request), "--host", "host-1")
        assert agent.stop() == 0
    programs.configure(extra=placement.configuration(proxy.port), update_resources_interval=1)
    [node] = programs.ask("node", "list", "--long")
    killed = threading.Event()
    agents = []

    def kill(method, path):
        if method != "GET" and not killed.is_set():
            killed.set()
            agents[-1].process.send_signal(signal.SIGKILL)

    proxy.after = kill
    try:
        while True:
            killed.clear()
            with programs.start() as agent:
                agents.append(agent)
                wait_until(lambda: killed.is_set() or _has_allocation(placement, name), 60)
                if not killed.is_set():
                    break
                agent.process.wait(60)
        assert len(agents) >= 4, node
        assert _has_allocation(placement, name)
    finally:
        proxy.close()


def _has_allocation(placement, name):
    found = placement.get(f"/resource_providers?name={name}")["resource_providers"]
    path = f"/resource_providers/{found[0]['uuid']}" if found else ""
    return bool(found) and bool(placement.get(f"{path}/allocations")["allocations"])
