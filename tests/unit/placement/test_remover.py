"""Removals over a model of placement."""

from nodetracker.accounting.placement.tree import PlacedProvider
from nodetracker.model.errors import PlacementTimeoutError
from nodetracker.placement.removal import ProviderRemover
from tests.placement_model import NODE, PlacementModel, make_uuid
from tests.stores import SqliteStore


def test_consumers_that_are_not_removed_in_time_are_removed_in_halves() -> None:
    model, sizes = PlacementModel(), []
    model.providers[NODE] = PlacedProvider(NODE, "node-1", 0)
    for number in range(1, 41):
        model.allocate(make_uuid(number), {"VCPU": 1}, "NODETRACKER_INSTANCE")

    def fail(method, subject):
        if subject.startswith("allocations ") and method == "POST":
            sizes.append(int(subject.split()[1]))
            if sizes[-1] > 10:
                raise PlacementTimeoutError(method, "no answer in time")

    model.fail = fail
    assert ProviderRemover(model, SqliteStore()).remove(NODE) is None
    assert sizes == [40, 20, 10, 10, 20, 10, 10]
    assert (model.providers, model.consumers) == ({}, {})


def test_a_tree_is_removed_from_its_leaves() -> None:
    """Neutron's agents are providers below the node's, and their bridges below them."""
    model = PlacementModel()
    agent, bridge = make_uuid(1), make_uuid(2)
    model.create_provider(NODE, "node-1")
    model.create_provider(agent, "node-1:Open vSwitch agent", NODE)
    model.create_provider(bridge, "node-1:Open vSwitch agent:br-ex", agent)
    assert ProviderRemover(model, SqliteStore()).remove(NODE) is None
    assert model.providers == {}
