"""Join tokens and credentials of agents, on every database."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from nodetracker.accounting.liveness import is_service_up
from nodetracker.db.schema import tables
from nodetracker.model.change import EventKind
from nodetracker.model.credential import RENEWAL_AGE, USE_INTERVAL, hash_secret
from nodetracker.model.errors import (
    AuthenticationError,
    ClaimRefusedError,
    ForbiddenError,
    HostNameError,
    NotFoundError,
)
from nodetracker.model.listing import HistoryQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState
from nodetracker.model.warning import WarningKind
from nodetracker.views.history import describe_entry
from tests.builders import (
    ask,
    claim,
    key_of,
    make_incarnation,
    make_node,
    register,
    take_service,
)
from tests.contract.stores import SQL_BACKENDS
from tests.database_clock import set_clock

DAY = timedelta(days=1)
TOKEN, SECRET, NEXT = hash_secret("token"), hash_secret("secret"), hash_secret("next")

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)


@pytest.fixture
def joined(store):
    """A host that has joined by a token of many uses."""
    store.create_join_token(TOKEN, None, 5, DAY, "admin")
    store.join_agent(TOKEN, "h1", "agent-1", SECRET, "192.0.2.1")
    return store


def test_a_token_is_exchanged_for_a_credential_of_one_host(joined):
    found = joined.find_credential(SECRET, "192.0.2.1")
    assert (found.host, found.agent_id, found.address) == ("h1", "agent-1", "192.0.2.1")
    assert [item.host for item in joined.list_credentials()] == ["h1"]


def test_hosts_are_found_by_each_secret_that_is_valid_or_was_replaced(joined):
    joined.join_agent(TOKEN, "h2", "agent-2", hash_secret("h2"), "")
    many = [hash_secret(f"stranger {number}") for number in range(1200)]
    assert joined.find_hosts([*many, SECRET, hash_secret("h2")]) == {
        SECRET: "h1",
        hash_secret("h2"): "h2",
    }
    joined.renew_credential("h1", NEXT)
    assert joined.find_hosts([SECRET, NEXT]) == {SECRET: "h1", NEXT: "h1"}
    joined.find_credential(NEXT, "")
    assert joined.find_hosts([SECRET, NEXT]) == {SECRET: "h1", NEXT: "h1"}
    joined.revoke_credential("h1")
    assert joined.find_hosts([SECRET, NEXT]) == joined.find_hosts([]) == {}


def test_a_token_is_used_up(store):
    store.create_join_token(TOKEN, None, 1, DAY, "admin")
    store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")
    with pytest.raises(AuthenticationError, match="used up"):
        store.join_agent(TOKEN, "h2", "agent-2", NEXT, "")


def test_a_repeated_join_returns_the_same_and_uses_nothing_up(store):
    store.create_join_token(TOKEN, None, 1, DAY, "admin")
    first = store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")
    again = store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")
    assert (again.host, again.issued_at) == (first.host, first.issued_at)


def test_a_token_expires_by_the_database_clock(store):
    token = store.create_join_token(TOKEN, None, 1, DAY, "admin")
    set_clock(store.engine, lambda: token.expires_at)
    with pytest.raises(AuthenticationError, match="expired"):
        store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")


def test_an_unknown_token_is_refused(store):
    with pytest.raises(AuthenticationError):
        store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")


@pytest.mark.parametrize("agent_id", ["agent-1", "agent-2"])
def test_a_token_for_any_host_does_not_join_one_that_has_a_credential(joined, agent_id):
    with pytest.raises(ForbiddenError, match="--host h1"):
        joined.join_agent(TOKEN, "h1", agent_id, NEXT, "")


def test_a_token_for_any_host_does_not_take_the_name_of_another_agent(store):
    register(store, "h1", "agent-1")
    store.create_join_token(TOKEN, None, 5, DAY, "admin")
    with pytest.raises(ForbiddenError, match=r"another agent holds it.*--host h1") as refused:
        store.join_agent(TOKEN, "h1", "agent-2", SECRET, "")
    assert "agent-1" not in str(refused.value), "which joins"
    store.join_agent(TOKEN, "h1", "agent-1", SECRET, "")  # an upgrade


@pytest.mark.parametrize("has_joined", [False, True])
def test_no_token_joins_another_hosts_agent(store, has_joined):
    """That host's agent would find itself under another name, and end."""
    if has_joined:
        store.create_join_token(hash_secret("own"), "h1", 1, DAY, "admin")
        store.join_agent(hash_secret("own"), "h1", "agent-1", NEXT, "")
    else:
        register(store, "h1", "agent-1")
    store.create_join_token(TOKEN, None, 5, DAY, "admin")
    with pytest.raises(ForbiddenError, match=r"agent-1 is that of another host: .* OLD h2"):
        store.join_agent(TOKEN, "h2", "agent-1", SECRET, "")
    store.create_join_token(hash_secret("h2"), "h2", 1, DAY, "admin")
    with pytest.raises(ForbiddenError, match="agent-1 is that of host h1: "):
        store.join_agent(hash_secret("h2"), "h2", "agent-1", SECRET, "")
    store.join_agent(hash_secret("h2"), "h2", "agent-2", SECRET, "")


ALIKE = ["H1", "h1.", "\uff481", "\uff28\uff11\uff0e"]
"""Other names than h1 that can be taken for it."""


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("known", ["a credential", "an agent"])
@pytest.mark.parametrize("token_host", ["any", "its own"])
def test_a_new_host_has_no_name_that_can_be_taken_for_anothers(store, name, known, token_host):
    if known == "an agent":
        register(store, "h1", "agent-1")
    else:
        store.create_join_token(hash_secret("own"), "h1", 1, DAY, "admin")
        store.join_agent(hash_secret("own"), "h1", "agent-1", NEXT, "")
    store.create_join_token(TOKEN, None if token_host == "any" else name, 1, DAY, "admin")
    with pytest.raises(HostNameError, match="has the name of host h1 in other characters"):
        store.join_agent(TOKEN, name, "agent-2", SECRET, "")
    assert name not in [item.host for item in store.list_credentials()]
    if known == "an agent":
        with pytest.raises(HostNameError, match="host h1"):
            register(store, name, "agent-2")
        assert [service.host for service in store.list_services()] == ["h1"]


@pytest.mark.parametrize("name", [".", "..", "\uff0e"])
def test_a_new_host_is_not_called_as_a_directory(store, name):
    store.create_join_token(TOKEN, None, 1, DAY, "admin")
    with pytest.raises(HostNameError, match="not a valid host name"):
        store.join_agent(TOKEN, name, "agent-2", SECRET, "")
    with pytest.raises(HostNameError, match="not a valid host name"):
        register(store, name, "agent-2")


def test_names_that_are_stored_stay(store):
    """They are compared by their bytes."""
    with store.engine.begin() as connection:  # as a release wrote them that compared no names
        for name in ("h1", "H1", ".."):
            row = {"host": name, "agent_id": f"agent of {name}", "issued_at": store.now()}
            connection.execute(sa.insert(tables.agent_credentials).values(address="", **row))
    keys = {name: register(store, name, f"agent of {name}") for name in ("h9", "h2")}
    with store.engine.begin() as connection:
        rename = sa.update(tables.services).where(tables.services.c.host == "h9")
        connection.execute(rename.values(host="H2"))
    for name, agent_id in (("H2", "agent of h9"), ("h2", "agent of h2")):
        assert register(store, name, agent_id).epoch == keys["h9"].epoch + 1
    for name in ("h1", "H1", ".."):
        own = hash_secret(f"for {name}")
        store.create_join_token(own, name, 1, DAY, "admin")
        store.join_agent(own, name, f"agent of {name}", hash_secret(f"secret of {name}"), "")
        assert store.find_credential(hash_secret(f"secret of {name}"), "").host == name


def test_a_token_for_a_host_replaces_its_credential_and_joins_no_other(joined):
    other = hash_secret("for h1")
    joined.create_join_token(other, "h1", 2, DAY, "admin")
    with pytest.raises(ForbiddenError, match="for host h1, not for h2"):
        joined.join_agent(other, "h2", "agent-2", NEXT, "")
    joined.join_agent(other, "h1", "agent-9", NEXT, "")
    assert joined.find_credential(NEXT, "").agent_id == "agent-9"
    with pytest.raises(AuthenticationError, match="unknown"):
        joined.find_credential(SECRET, "")


@pytest.mark.parametrize("is_used", [False, True])
def test_joining_again_ends_those_that_were_to_replace_another_or_were_replaced(joined, is_used):
    joined.renew_credential("h1", NEXT)
    if is_used:
        joined.find_credential(NEXT, "")
    joined.create_join_token(hash_secret("own"), "h1", 1, DAY, "admin")
    joined.join_agent(hash_secret("own"), "h1", "agent-1", hash_secret("new"), "")
    assert joined.find_hosts([SECRET, NEXT, hash_secret("new")]) == {hash_secret("new"): "h1"}
    for secret in (SECRET, NEXT):
        with pytest.raises(AuthenticationError, match="unknown"):
            joined.find_credential(secret, "")


def test_both_credentials_are_valid_until_the_new_one_is_used(joined):
    joined.renew_credential("h1", NEXT)
    assert joined.find_credential(SECRET, "").host == "h1"
    assert joined.find_credential(NEXT, "").host == "h1"
    with pytest.raises(AuthenticationError, match="replaced"):
        joined.find_credential(SECRET, "192.0.2.9")
    (warning,) = joined.list_warnings("h1")
    assert warning.warning.kind is WarningKind.CREDENTIAL_REUSED
    assert "192.0.2.9" in warning.warning.message


def test_a_revoked_host_joins_again_by_a_token_of_its_own_only(joined):
    assert joined.revoke_credential("h1").revoked_at is not None
    with pytest.raises(AuthenticationError):
        joined.find_credential(SECRET, "")
    with pytest.raises(NotFoundError):
        joined.renew_credential("h1", NEXT)
    with pytest.raises(ForbiddenError):
        joined.join_agent(TOKEN, "h1", "agent-1", NEXT, "")
    joined.create_join_token(hash_secret("own"), "h1", 1, DAY, "admin")
    joined.join_agent(hash_secret("own"), "h1", "agent-1", NEXT, "")
    assert joined.find_credential(NEXT, "").revoked_at is None


def make_joined_node(store):
    """Give h1 a node on which a claim is granted, and return the key of its agent."""
    store.create_join_token(hash_secret("own"), "h1", 9, DAY, "admin")
    key = make_node(store, host="h1")
    store.join_agent(hash_secret("own"), "h1", key.agent_id, SECRET, "")
    claim(store, ask(VCPU=1), "h1")
    return key


def is_up(store):
    (service,) = store.list_services("h1")
    return is_service_up(service, store.now(), 60)


def list_texts(store):
    lines = store.list_history_page(HistoryQuery(host="h1", kinds=(EventKind.SERVICE,))).items
    return [change.text for line in reversed(lines) for change in describe_entry(line, {})]


def test_a_revoked_host_is_down_at_once_until_its_agent_joins_again(store):
    key = make_joined_node(store)
    assert is_up(store)
    first = store.revoke_credential("h1")
    assert not is_up(store)
    with pytest.raises(ClaimRefusedError, match="down"):
        claim(store, ask(VCPU=1), "h1")
    assert list_texts(store)[-1] == "nodetracker-compute down: its credential was revoked"
    store.report_state(key, 2, AuditState())  # one that was sent before
    assert not is_up(store)
    store.join_agent(hash_secret("own"), "h1", key.agent_id, NEXT, "")
    assert is_up(store)
    claim(store, ask(VCPU=1), "h1")
    assert list_texts(store)[-1] == "nodetracker-compute up"
    assert store.revoke_credential("h1").revoked_at > first.revoked_at


def test_to_revoke_again_ends_no_agent_that_needs_no_credential_by_then(store):
    key = make_joined_node(store)
    first = store.revoke_credential("h1")
    store.report_state(register(store, "h1", key.agent_id), 2, AuditState())
    assert store.revoke_credential("h1").revoked_at == first.revoked_at
    assert is_up(store)


def test_another_agent_that_joins_a_revoked_host_does_not_bring_it_up(store):
    make_joined_node(store)
    store.revoke_credential("h1")
    store.join_agent(hash_secret("own"), "h1", "another", NEXT, "")
    assert not is_up(store)


def test_the_last_use_is_that_of_the_last_heartbeat_where_it_is_later(store):
    def last_use():
        return store.list_credentials()[0].used_at

    key = make_joined_node(store)
    assert last_use() is None  # its heartbeat was before it joined
    used_at = store.find_credential(SECRET, "").used_at
    assert last_use() == used_at
    store.report_state(key, 2, AuditState())  # with the database's password
    assert last_use() == used_at
    store.report_state(key, 3, AuditState(by_conductor=True))
    assert last_use() == store.list_services("h1")[0].last_seen_up > used_at


def test_a_host_with_several_services_has_one_credential(joined):
    """That of its agent, whose heartbeats alone use it."""
    register(joined, "h1", "agent-1")
    run = make_incarnation("agent-1")
    conductor = key_of(take_service(joined, "h1", run, CONDUCTOR_BINARY))
    joined.report_state(conductor, 1, AuditState(by_conductor=True))
    (found,) = joined.list_credentials()
    assert (found.host, found.used_at) == ("h1", None)


def test_an_unknown_host_cannot_be_revoked(store):
    with pytest.raises(NotFoundError, match="h1"):
        store.revoke_credential("h1")


def test_a_use_is_stored_from_time_to_time(joined):
    first = joined.find_credential(SECRET, "192.0.2.1")
    times = [first.used_at + USE_INTERVAL / 2]
    set_clock(joined.engine, lambda: times[-1])
    assert joined.find_credential(SECRET, "192.0.2.1").used_at == first.used_at
    assert joined.find_credential(SECRET, "192.0.2.2").address == "192.0.2.2"
    times.append(first.used_at + USE_INTERVAL * 3)
    assert joined.find_credential(SECRET, "192.0.2.2").used_at > first.used_at + USE_INTERVAL


def test_a_credential_is_due_after_a_month_and_does_not_expire(joined):
    issued = joined.find_credential(SECRET, "").issued_at
    set_clock(joined.engine, lambda: issued + RENEWAL_AGE * 4)
    assert joined.find_credential(SECRET, "").is_due


def test_a_renamed_host_keeps_its_credential_and_a_deleted_one_loses_it(joined):
    register(joined, "h1", "agent-1")
    (service,) = joined.list_services("h1")
    joined.rename_host("h1", "h2", COMPUTE_BINARY, service)
    assert joined.find_credential(SECRET, "").host == "h2"
    set_clock(joined.engine, lambda: service.created_at + DAY)
    joined.delete_service("h2", COMPUTE_BINARY, 60)
    with pytest.raises(AuthenticationError):
        joined.find_credential(SECRET, "")
