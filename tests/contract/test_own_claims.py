"""An audit writes the claims of the nodes that it changes, whatever claims its changes have."""

import dataclasses

import pytest

from nodetracker.model.claim import ClaimState
from nodetracker.ports import Store
from tests.builders import ask, claim, make_node, update


@pytest.mark.parametrize("host", ["alpha", "beta"])
def test_a_claim_is_released_by_a_change_of_its_own_node_alone(store: Store, host: str) -> None:
    agents = {name: make_node(store, host=name) for name in ("alpha", "beta")}
    held = claim(store, ask(MEMORY_MB=64), host="alpha")
    (record,) = store.load_nodes(host)
    released = dataclasses.replace(held, state=ClaimState.RELEASED, reason="deleted")
    change = dataclasses.replace(update(record), claims=(released,))
    store.apply_changes(agents[host], [change], 60)
    (stored,) = store.list_claims(uuid=held.uuid)
    assert (stored.state is ClaimState.RELEASED) == (host == "alpha")
