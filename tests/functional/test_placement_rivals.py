"""Two agents that report nodes of one name to the same placement."""

import contextlib
import uuid

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AdmissionPolicy
from tests.functional.cloud import Cloud
from tests.programs import wait_until


@pytest.fixture
def rivals(tmp_path, placement):
    """Return two hosts with databases of their own whose nodes have one name."""
    first, second = Cloud(tmp_path / "a", placement), Cloud(tmp_path / "b", placement)
    second.name = first.name
    second.write(first.name, vcpus=4)
    for cloud in (first, second):
        configure(cloud)
    body = {"workload": {"uuid": str(uuid.uuid4())}, "resources": {"VCPU": 2}}
    with first.programs.start() as agent, first.open_store() as store:
        agent.wait_for("is ready")
        policy = AdmissionPolicy(service_down_time=10**6, claim_timeout=600)
        store.create_claim(parse_claim_request(body), "host-1", first.name, policy)
    return first, second


def configure(cloud, **options):
    text = "service_down_time = 9999\n" + cloud.placement.configuration(**options)
    cloud.programs.configure(text, update_resources_interval=1)


def list_conflicts(cloud):
    with cloud.open_store() as store:
        return [
            record.warning.message
            for record in store.list_warnings("host-1")
            if record.warning.kind is WarningKind.PLACEMENT_NAME_CONFLICT
            and record.resolved_at is None
        ]


def test_the_second_one_warns_and_takes_over_only_by_adoption(rivals) -> None:
    first, second = rivals
    owner = first.uuid
    with contextlib.ExitStack() as agents:
        agents.enter_context(first.programs.start())
        wait_until(lambda: first.read(owner) and first.read(owner)[-1]["allocations"], 60)
        agent = agents.enter_context(second.programs.start())
        agent.wait_for("is ready")
        other = second.uuid
        wait_until(lambda: list_conflicts(second))
        (message,) = list_conflicts(second)
        for part in (owner, other, "with 1 consumer,", "placement adopt host-1", "placement heal"):
            assert part in message
        assert list_conflicts(first) == []
        before = first.read(owner)
        planned = second.manage("heal", "--dry-run", code=1)
        assert planned[0]["result"].startswith("kept: ")
        assert second.manage("heal", code=1)[0]["result"] == planned[0]["result"]
        assert second.manage("adopt", "host-1", "--dry-run")[0]["uuid"] == owner
        assert (second.uuid, second.read(other), first.read(owner)) == (other, None, before)
    configure(second, port=1)  # where nothing answers
    with second.programs.start() as agent:
        agent.wait_for("is ready")
        assert list_conflicts(second) == [message]
    configure(second)
    with second.programs.start():
        second.manage("adopt", "host-1")
        assert second.uuid == owner
        wait_until(lambda: second.read(owner)[1]["inventories"]["VCPU"]["total"] == 4, 60)
        wait_until(lambda: not list_conflicts(second))
