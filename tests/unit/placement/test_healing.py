"""Which uuids of nodes are replaced by a provider's, and the host that a comparison is limited to."""

import uuid
from typing import Any

import pytest

from nodetracker.accounting.placement.tree import PlacedProvider
from nodetracker.model.errors import NotFoundError, RefusedError
from nodetracker.model.service import AuditState
from nodetracker.usecases.healing import PlacementHealer
from nodetracker.usecases.reads import find_node
from tests.builders import create, make_incarnation, register, take_service
from tests.placement_model import PlacementModel
from tests.stores import SqliteStore

OTHER = "99999999-9999-4999-8999-999999999999"


class Scene:
    """A node whose uuid another agent, or one of another nodename, derived; and its rival."""

    def __init__(self) -> None:
        self.store = SqliteStore()
        self.placement: Any = PlacementModel()
        self.placement.providers[OTHER] = PlacedProvider(OTHER, "n1", 3)
        self.agent = register(self.store, agent_id=str(uuid.uuid4()))
        self.store.apply_changes(self.agent, [create(self.agent, "n1")], 60)
        self.healer = PlacementHealer(self.placement, self.store, False)

    @property
    def uuid(self) -> str:
        return find_node(self.store, "alpha").uuid

    def adopt(self, **options: bool) -> str:
        return self.healer.adopt(find_node(self.store, "alpha", "n1"), **options)


def test_a_uuid_of_an_earlier_agent_or_nodename_is_replaced() -> None:
    scene = Scene()
    scene.store.report_state(scene.agent, 1, AuditState(has_driver_uuids=False))
    before = scene.uuid
    assert (scene.adopt(is_dry=True), scene.uuid) == (OTHER, before)
    assert (scene.adopt(), scene.uuid) == (OTHER, OTHER)


@pytest.mark.parametrize("has_driver_uuids", [True, None])
def test_a_uuid_that_may_be_the_drivers_is_kept(has_driver_uuids: bool | None) -> None:
    scene = Scene()
    before = scene.uuid
    scene.store.report_state(scene.agent, 1, AuditState(has_driver_uuids=has_driver_uuids))
    with pytest.raises(RefusedError, match="is its driver's and stays"):
        scene.adopt()
    assert scene.uuid == before


def test_a_host_that_does_not_exist_is_not_one_without_differences() -> None:
    store, placement = SqliteStore(), PlacementModel()
    take_service(store, "alpha", make_incarnation())
    healer = PlacementHealer(placement, store, False)
    for work in (healer.audit, healer.heal):
        with pytest.raises(NotFoundError, match="^no such host: gamma$"):
            list(work("gamma"))
        assert list(work("alpha")) == []  # its agent has not stored a node yet
