"""Every store accepts texts of hypervisors and engines of any length and with any character."""

import pytest

from nodetracker.accounting.audit.planner import plan
from nodetracker.accounting.audit.view import account
from nodetracker.model.change import NodeChange
from nodetracker.model.fact import failed, fresh
from nodetracker.model.host import HypervisorInfo, SystemInfo
from nodetracker.model.node import HostSnapshot
from nodetracker.model.pci import PciDevice
from nodetracker.model.service import AuditState
from nodetracker.model.settings import Policy
from nodetracker.ports import AgentKey, Store
from tests.builders import NOW, SOURCE, make_guest, make_snapshot, register

UUIDS = {"n1": "11111111-1111-4111-8111-111111111111"}

SAID = pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("p" * 300, "p" * 255),
        ("🌱" * 300, "🌱" * 255),
        ("ü" * 70_000, "ü" * 255),
        ("a\0b", "a?b"),
        ("a\ud800b", "a?b"),
    ],
    ids=["too long", "too long in bytes", "longer than any", "NUL", "half a character"],
)


def plan_again(store: Store, agent: AgentKey, snapshot: HostSnapshot) -> list[NodeChange]:
    """Plan a change as an agent that has just read its rows."""
    records = {record.nodename: record for record in store.load_nodes(agent.host)}
    view = account(snapshot, records.get("n1"), Policy(), NOW)
    return plan(agent.host, [view], records, UUIDS, NOW)


def write(store: Store, agent: AgentKey, snapshot: HostSnapshot) -> None:
    """Write a reading, and check that the same reading writes nothing again."""
    changes = plan_again(store, agent, snapshot)
    assert changes
    result = store.apply_changes(agent, changes, 60)
    assert [result.records["n1"]] == store.load_nodes(agent.host)
    assert plan_again(store, agent, snapshot) == []


@SAID
def test_any_text_of_a_guest_is_stored_and_written_once(store: Store, said: str, kept: str) -> None:
    agent = register(store)
    odd = make_guest(1, name=said, project_id=said, details={"image": said, said: ["x", said]})
    write(store, agent, make_snapshot("n1", make_guest(2)))
    write(store, agent, make_snapshot("n1", make_guest(2), odd))  # it is added
    write(store, agent, make_snapshot("n1", odd, make_guest(2, project_id=said)))  # changed
    guests = store.load_nodes(agent.host)[0].guests
    assert [guest.project_id for guest in guests.values()] == [kept, kept]
    long = said.replace("\0", "?").replace("\ud800", "?")
    assert guests[odd.uuid].name == long[:16_000]
    long = long[:1000]
    assert guests[odd.uuid].details == {"image": long, long: ["x", long]}


def test_a_guest_s_name_of_any_length_is_stored(store: Store) -> None:
    agent = register(store)
    write(store, agent, make_snapshot("n1", make_guest(1, name="ü" * 70_000)))
    (guest,) = store.load_nodes(agent.host)[0].guests.values()
    assert guest.name == "ü" * 16_000


@SAID
def test_any_text_of_a_node_is_stored_and_written_once(store: Store, said: str, kept: str) -> None:
    agent = register(store)
    device = PciDevice("0000:00:02.0", said, "2335", driver=said)
    snapshot = make_snapshot(
        "n1",
        hypervisor=fresh(SOURCE, HypervisorInfo(said)),
        system=fresh(SOURCE, SystemInfo("n1", "linux", said, said, boot_id=said)),
        pci=fresh(SOURCE, (device,)),
        gpus=failed(said, said),
    )
    write(store, agent, snapshot)
    (record,) = store.load_nodes(agent.host)
    assert record.values.hypervisor_type == kept
    assert (record.values.os, record.values.kernel_version) == (kept, kept)
    assert record.values.boot_id == kept
    error = said.replace("\0", "?").replace("\ud800", "?")[:1000]
    assert record.values.facts["gpus"].error == error
    (tracked,) = record.devices.values()
    assert (tracked.vendor_id, tracked.driver) == (kept[:16], kept)
    write(store, agent, make_snapshot("n1"))


@SAID
def test_any_error_of_a_node_is_stored_by_a_heartbeat(store: Store, said: str, kept: str) -> None:
    agent = register(store)
    failed = {"age_seconds": None, "error": said}
    store.report_state(agent, 1, AuditState(nodes={"n1": failed, said: failed}))
    assert store.list_services("alpha")[0].last_audit["nodes"]["n1"]["error"].startswith(kept)
