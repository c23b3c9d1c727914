"""What a stolen credential wrote keeps no host out once it is revoked, on every database."""

import pytest
import sqlalchemy as sa

from nodetracker.model.service import COMPUTE_BINARY, AuditState
from tests.builders import (
    ask,
    claim,
    key_of,
    make_incarnation,
    make_node,
    node,
    take_service,
    update,
)
from tests.contract.stores import SQL_BACKENDS

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**63 - 2, 2**63 - 1])
@pytest.mark.parametrize("column", ["epoch", "report_count", "node_epoch", "all"])
def test_a_host_comes_back_whatever_its_numbers_are(store, column, number):
    make_node(store)
    with store.engine.begin() as connection:
        if column in ("epoch", "all"):
            connection.execute(
                sa.text(f"UPDATE services SET epoch = {number}, ended_epoch = {number}")
            )
        if column in ("report_count", "all"):
            connection.execute(sa.text(f"UPDATE services SET report_count = {number}"))
        if column in ("node_epoch", "all"):
            connection.execute(sa.text(f"UPDATE compute_nodes SET epoch = {number}"))
    record = take_service(store, "alpha", make_incarnation("again"))
    agent = key_of(record)
    versions = store.load_versions("alpha", COMPUTE_BINARY)
    assert (versions.epoch, versions.report_count) == (agent.epoch, record.report_count)
    store.report_state(agent, record.report_count + 1, AuditState())
    result = store.apply_changes(agent, [update(node(store), boot_id="new")], 60)
    assert list(result.records) == ["node-1"]
    assert node(store).damaged == ()
    assert claim(store, ask(VCPU=1)).host == "alpha"
    (service,) = store.list_services("alpha")
    assert service.damaged == ()
