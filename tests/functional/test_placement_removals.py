"""Providers of deleted nodes leave the real placement, and nothing of others with them."""

import uuid

import pytest
from oslo_config import cfg

from nodetracker.accounting.placement.steps import ConsumerWrite
from nodetracker.accounting.placement.tree import Inventory
from nodetracker.bootstrap.clients import build_placement_client
from nodetracker.bootstrap.options.agent import PLACEMENT
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.node import NodeValues
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY
from nodetracker.model.warning import WarningKind
from nodetracker.placement.removal import HostRemovals, ProviderRemover, UnservedRemovals
from nodetracker.ports import AgentKey
from tests.builders import make_incarnation, take_service
from tests.stores import SqliteStore

URGENT = RemovalQuery(is_urgent=True)
ALWAYS_DOWN = -1


def make_uuid():
    return str(uuid.uuid4())


class Deleted:
    """A node that was deleted while placement has its provider, a child and consumers."""

    def __init__(self, client, placement):
        self.client, self.placement = client, placement
        self.store = SqliteStore()
        self.root, self.child, self.elsewhere = make_uuid(), make_uuid(), make_uuid()
        self.own, self.shared = make_uuid(), make_uuid()
        service = take_service(self.store, "host-1", make_incarnation())
        agent = AgentKey(
            "host-1", COMPUTE_BINARY, service.incarnation.agent_id, service.epoch, service.uuid
        )
        values = NodeValues()
        create = NodeChange(ChangeKind.CREATE, "host-1", "node-1", self.root, None, values)
        self.store.apply_changes(agent, [create], 60)
        self.store.delete_node("host-1", "node-1")
        for provider, parent in (
            (self.root, None),
            (self.child, self.root),
            (self.elsewhere, None),
        ):
            client.create_provider(provider, f"p-{provider}", parent)
            client.set_inventories(provider, 0, {"VCPU": Inventory(8, max_unit=8)})
        one = {"VCPU": 1}
        self.write(self.own, "NODETRACKER_INSTANCE", {self.root: one, self.child: one})
        self.write(self.shared, "NODETRACKER_MIGRATION", {self.root: one, self.elsewhere: one})
        self.remover = ProviderRemover(client, self.store)

    def write(self, consumer, kind, resources):
        self.client.write_consumers([ConsumerWrite(consumer, None, kind, "p", "u", resources)])

    def exists(self, provider):
        return bool(self.client.list_providers(uuid=provider))


@pytest.fixture
def client(tmp_path, placement):
    path = tmp_path / "placement.conf"
    path.write_text(placement.configuration())
    conf = cfg.ConfigOpts()
    conf.register_opts(PLACEMENT.options, group=PLACEMENT.name)
    conf([], default_config_files=[str(path)])
    return build_placement_client(conf)


@pytest.fixture
def deleted(client, placement):
    return Deleted(client, placement)


def test_a_deleted_nodes_tree_goes_with_its_consumers_parts(deleted) -> None:
    assert [r.error for r in deleted.remover.remove_due(URGENT)] == [None]
    assert not deleted.exists(deleted.root)
    assert not deleted.exists(deleted.child)
    assert deleted.client.read_consumer(deleted.own) is None
    shared = deleted.client.read_consumer(deleted.shared)
    assert (shared.resources, shared.type) == (
        {deleted.elsewhere: {"VCPU": 1}}, "NODETRACKER_MIGRATION"
    )  # fmt: skip
    assert deleted.store.list_provider_removals() == []
    assert list(deleted.remover.remove_due(URGENT)) == []


def test_providers_of_others_below_a_child_go_before_it(deleted) -> None:
    below = [make_uuid() for _ in range(3)]
    for provider in below:
        deleted.client.create_provider(provider, f"p-{provider}", deleted.child)
    assert [r.error for r in deleted.remover.remove_due(URGENT)] == [None]
    assert not any(map(deleted.exists, (deleted.root, deleted.child, *below)))


class KilledError(BaseException):
    """The process was killed; nothing after the request runs."""


def test_a_process_that_is_killed_after_any_write_leaves_the_rest_to_the_next(
    deleted, monkeypatch
) -> None:
    writes = []

    def kill_after(name):
        original = getattr(deleted.client, name)

        def write(*arguments):
            original(*arguments)
            writes.append(name)
            raise KilledError

        monkeypatch.setattr(deleted.client, name, write)

    kill_after("write_consumers")
    kill_after("delete_provider")
    query = RemovalQuery(is_urgent=True, lease_seconds=0)  # no waiting for the dead one's lease
    for _ in range(3):
        with pytest.raises(KilledError):
            list(ProviderRemover(deleted.client, deleted.store).remove_due(query))
    assert writes == ["write_consumers", "delete_provider", "delete_provider"]
    assert [r.error for r in ProviderRemover(deleted.client, deleted.store).remove_due(query)] == [
        None
    ]
    assert not deleted.exists(deleted.root)
    assert not deleted.exists(deleted.child)
    assert deleted.client.read_consumer(deleted.own) is None
    shared = deleted.client.read_consumer(deleted.shared)
    assert shared.resources == {deleted.elsewhere: {"VCPU": 1}}
    assert deleted.store.list_provider_removals() == []


def test_a_provider_that_does_not_exist_is_done(deleted) -> None:
    list(deleted.remover.remove_due(URGENT))
    assert deleted.remover.remove(deleted.root) is None


def test_a_foreign_allocation_keeps_the_provider_with_a_warning_until_it_is_gone(deleted) -> None:
    foreign = make_uuid()
    deleted.write(foreign, "INSTANCE", {deleted.root: {"VCPU": 2}})
    before = deleted.client.read_consumer(foreign)
    worker = HostRemovals("host-1", deleted.remover, deleted.store)
    worker.work()
    (warning,) = worker.list_warnings()
    assert (warning.kind, warning.nodename) == (WarningKind.PLACEMENT_REMOVAL, "node-1")
    assert warning.message.endswith(f"consumers of others have allocations on it: {foreign}")
    assert deleted.exists(deleted.root)
    assert deleted.client.read_consumer(deleted.own) is None
    assert deleted.client.read_consumer(foreign) == before
    deleted.placement.request("DELETE", f"/allocations/{foreign}")
    worker.work()  # not due yet
    assert len(worker.list_warnings()) == 1
    assert [r.error for r in deleted.remover.remove_due(URGENT)] == [None]
    worker.work()
    assert worker.list_warnings() == ()


def test_a_provider_of_novas_is_not_touched(deleted) -> None:
    generation, _ = deleted.client.read_traits(deleted.root)
    deleted.client.set_traits(deleted.root, generation, ["OWNER_NOVA"])
    paths = [f"/resource_providers/{deleted.root}{part}" for part in ("", "/allocations")]
    before = [deleted.placement.get(path) for path in paths]
    (removal,) = deleted.remover.remove_due(URGENT)
    assert removal.error == "the provider has the trait OWNER_NOVA"
    assert [deleted.placement.get(path) for path in paths] == before


def test_providers_of_hosts_without_an_agent_are_removed_by_others(deleted) -> None:
    foreign = make_uuid()
    deleted.write(foreign, "INSTANCE", {deleted.root: {"VCPU": 2}})
    worker = UnservedRemovals(deleted.remover, deleted.store)
    worker.work()
    assert deleted.store.list_warnings() == []
    deleted.store.delete_service("host-1", COMPUTE_BINARY, ALWAYS_DOWN)
    worker.work()
    (record,) = deleted.store.list_warnings("host-1")
    assert (record.warning.kind, record.resolved_at) == (WarningKind.PLACEMENT_REMOVAL, None)
    deleted.placement.request("DELETE", f"/allocations/{foreign}")
    (removal,) = deleted.store.list_provider_removals()
    deleted.store.fail_provider_removal(removal.provider_uuid, removal.error, 0)
    worker.work()
    (record,) = deleted.store.list_warnings("host-1")
    assert record.resolved_at is not None
    assert not deleted.exists(deleted.root)
