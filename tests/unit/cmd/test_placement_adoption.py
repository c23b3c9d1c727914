"""Which uuids of nodes `placement adopt` replaces."""

import argparse
import uuid
from types import SimpleNamespace

import pytest

from nodetracker.accounting.placement.tree import PlacedProvider
from nodetracker.cmd.commands.placement import AdoptProvider
from nodetracker.model.errors import RefusedError
from nodetracker.model.service import AuditState
from tests.builders import create, register
from tests.placement_model import PlacementModel
from tests.stores import SqliteStore

OTHER = "99999999-9999-4999-8999-999999999999"


class Scene:
    """A node whose uuid another agent, or one of another nodename, derived; and its rival."""

    def __init__(self) -> None:
        self.store, self.placement = SqliteStore(), PlacementModel()
        self.placement.providers[OTHER] = PlacedProvider(OTHER, "n1", 3)
        self.agent = register(self.store, agent_id=str(uuid.uuid4()))
        self.store.apply_changes(self.agent, [create(self.agent, "n1")], 60)

    @property
    def uuid(self) -> str:
        return next(iter(self.store.load_nodes("alpha"))).uuid

    def adopt(self) -> None:
        app = SimpleNamespace(store=self.store, reader=self.store, build_option_parser=None)
        command = AdoptProvider(app, None)
        command.client = self.placement
        command.take_action(
            argparse.Namespace(host="alpha", nodename="n1", force=False, dry_run=False)
        )


def test_a_uuid_of_an_earlier_agent_or_nodename_is_replaced() -> None:
    scene = Scene()
    scene.store.report_state(scene.agent, 1, AuditState(has_driver_uuids=False))
    scene.adopt()
    assert scene.uuid == OTHER


@pytest.mark.parametrize("has_driver_uuids", [True, None])
def test_a_uuid_that_may_be_the_drivers_is_kept(has_driver_uuids) -> None:
    scene = Scene()
    before = scene.uuid
    scene.store.report_state(scene.agent, 1, AuditState(has_driver_uuids=has_driver_uuids))
    with pytest.raises(RefusedError, match="is its driver's and stays"):
        scene.adopt()
    assert scene.uuid == before
