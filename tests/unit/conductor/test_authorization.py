"""What the credential of a host lets its holder call: every method, own host and another's."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from nodetracker.accounting.placement.tree import PlacedConsumer
from nodetracker.conductor.authorization import RULES, Authorizer, Caller
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.schema import tables
from nodetracker.model.change import ChangeKind, ItemDiff, NodeChange
from nodetracker.model.claim import Migration, MigrationStatus, MigrationType, Move, Workload
from nodetracker.model.errors import AuthenticationError, ForbiddenError, RequestError
from nodetracker.model.fleet import FleetQuery
from nodetracker.model.listing import (
    ClaimQuery,
    DeviceQuery,
    HistoryQuery,
    MigrationQuery,
    ServiceQuery,
    WarningQuery,
    WorkloadQuery,
)
from nodetracker.model.node import NodeValues
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    AgentKey,
    AuditState,
    Incarnation,
    ServiceRecord,
)
from nodetracker.model.warning import NOT_OF_AGENTS, HostWarning, WarningKind
from nodetracker.placement.reconciler import is_in_ledger
from nodetracker.ports import AdmissionPolicy
from tests.builders import (
    ask,
    delete,
    make_guest,
    make_node,
    make_record,
    make_values,
    node,
    read_history,
    register,
    update,
)
from tests.stores import SqliteStore

OWN, OTHER = "h1", "h2"
UUIDS = {
    "5ed4b27f-6f5c-4a35-9a56-3f2ba5fd6c7e": OWN,
    "b8a5c6d2-6f5c-4a35-9a56-3f2ba5fd6c7e": OTHER,
}
"""Whose each node is."""
UUID, UUID_OF_OTHER = UUIDS
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALLER = Caller(OWN, "agent-1")
NEW = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b77"
POLICY = AdmissionPolicy(60, 600)


@dataclasses.dataclass
class Found:
    """A row as far as the rules look at it."""

    host: str
    id: int = 0
    node_id: int = 0
    uuid: str = ""
    state: str = ""
    reason: str = ""
    expires_at: str = ""
    project: str = ""


class Rows:
    """What the store has of each host: a claim, a node and a removal named after it."""

    def list_claims(self, uuid):
        return [Found(uuid, uuid=uuid, node_id=1 if uuid == OWN else 2)]

    def list_services(self, host, binary):
        return []

    def load_nodes(self, host, ids):
        return [STORED] if (host, {STORED.id}) == (OWN, ids) else []

    def list_migrations(self, host, uuid):
        # One between both hosts, and one that does not concern the caller's.
        return [make_move(uuid).migration] if (host, uuid) == (OWN, OWN) else []

    def list_nodes(self, host):
        return [Found(host, id=1 if host == OWN else 2)]

    def list_fleet(self, query):
        node = dataclasses.make_dataclass("FleetNode", ["node"])(Found(UUIDS[query.uuid]))
        return dataclasses.make_dataclass("Page", ["items"])([node])


STORED = make_record(id=1, host=OWN, nodename="n", uuid=UUID)
"""The caller's node."""


def key(host, agent_id="agent-1", binary=COMPUTE_BINARY):
    return AgentKey(host, binary, agent_id, 1, "service")


def change(host, uuid=UUID):
    return NodeChange(ChangeKind.CREATE, host, "n", uuid, None, NodeValues())


def changed(**changes):
    """Return a change of the caller's node."""
    return dataclasses.replace(update(STORED), **changes)


def warning(kind):
    return HostWarning(kind, "", "", "message")


def arguments(method, host):
    """Return arguments of a call that concerns one host."""
    queries = {
        "list_fleet": FleetQuery(host=host),
        "list_workloads": WorkloadQuery(host=host),
        "list_claim_page": ClaimQuery(host=host),
        "list_migration_page": MigrationQuery(host=host),
        "list_history_page": HistoryQuery(host=host),
        "list_warning_page": WarningQuery(host=host),
        "list_service_page": ServiceQuery(host=host),
        "list_device_page": DeviceQuery(node_id=1 if host == OWN else 2),
        "take_provider_removals": RemovalQuery(host=host),
    }
    special = {
        "register_agent": {
            "host": host,
            "binary": COMPUTE_BINARY,
            "incarnation": Incarnation("agent-1", "", 0, 0, 0, 10),
        },
        "report_state": {"agent": key(host), "report_count": 1, "state": AuditState()},
        "mark_service": {"agent": key(host), "reason": None},
        "take_news": {"agent": key(host)},
        "create_call": {"host": host, "method": "reboot", "lifetime": timedelta(minutes=1)},
        "sync_warnings": {"agent": key(host), "active": ()},
        "raise_warning": {"host": host, "warning": warning(WarningKind.DUPLICATE_REFUSED)},
        "apply_changes": {"agent": key(host), "changes": (), "service_down_time": -100000},
        "create_claim": {"host": host, "request": ask(VCPU=1)},
        "try_claim": {"host": host, "request": ask(VCPU=1)},
        "admit_start": {"host": host, "guest": make_guest(), "claim_uuid": NEW},
        "confirm_claim": {"uuid": host},
        "renew_claim": {"uuid": host, "policy": None},
        "abort_claim": {"uuid": host},
        "sum_hosts": {"hosts": [host]},
    }
    if method in queries:
        return {"query": queries[method]}
    return special.get(method, {"host": host})


@pytest.fixture
def authorizer():
    return Authorizer(Rows(), POLICY, 60)


def test_an_agent_reads_the_answer_about_its_own_loss_without_the_plan(authorizer):
    for asked in ({}, {"host": OWN, "with_plans": True}):
        assert authorizer.authorize(CALLER, "list_tolerances", asked) == {"host": OWN}


def test_every_method_of_the_store_has_a_rule():
    assert set(RULES) == set(CONDUCTOR.methods)


MOVES = {name for name in RULES if "migration" in name and not name.startswith("list_")}
SERVED = sorted(name for name, rule in RULES.items() if rule is not None and name not in MOVES)


@pytest.mark.parametrize("method", SERVED)
def test_an_agent_may_call_it_for_its_own_host(authorizer, method):
    authorizer.authorize(CALLER, method, arguments(method, OWN))


@pytest.mark.parametrize("method", [name for name in SERVED if name != "now"])
def test_no_agent_may_call_it_for_another_host(authorizer, method):
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, method, arguments(method, OTHER))


@pytest.mark.parametrize("method", sorted(set(RULES) - set(SERVED)))
@pytest.mark.parametrize("host", [OWN, OTHER])
def test_what_concerns_other_hosts_is_not_served(authorizer, method, host):
    with pytest.raises(ForbiddenError, match="REST API"):
        authorizer.authorize(CALLER, method, arguments(method, host))


QUERIES = [name for name in SERVED if "query" in arguments(name, OWN)]


@pytest.mark.parametrize("method", [name for name in QUERIES if name != "list_device_page"])
def test_a_query_of_all_hosts_is_one_of_the_own_host(authorizer, method):
    asked = arguments(method, OWN)["query"]
    narrowed = authorizer.authorize(
        CALLER, method, {"query": dataclasses.replace(asked, host=None)}
    )
    assert narrowed == {"query": asked}


@pytest.mark.parametrize(
    "method",
    [
        "list_services", "list_nodes", "list_warnings", "list_claims", "list_migrations",
        "list_provider_removals", "fail_provider_removal", "finish_provider_removal",
    ],
)  # fmt: skip
def test_a_list_of_all_hosts_is_that_of_the_own_host(authorizer, method):
    assert authorizer.authorize(CALLER, method, {}) == {"host": OWN}


def test_a_sum_of_all_hosts_is_that_of_the_own_host(authorizer):
    assert authorizer.authorize(CALLER, "sum_hosts", {}) == {"hosts": [OWN]}
    assert authorizer.authorize(CALLER, "sum_hosts", {"hosts": []}) == {"hosts": []}


@pytest.mark.parametrize(
    "method", ["load_nodes", "load_versions", "sum_versions", "list_split_brains"]
)
def test_a_call_without_a_host_is_refused(authorizer, method):
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, method, {})


def test_whether_a_consumer_in_placement_is_known_may_be_asked(authorizer):
    asked = {"query": ClaimQuery(workload_uuid="u", limit=1)}
    assert authorizer.authorize(CALLER, "list_claim_page", asked) == asked
    assert authorizer.authorize(CALLER, "list_migrations", {"uuid": "u"}) == {"uuid": "u"}
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, "list_migrations", {"uuid": "u", "host": OTHER})


@pytest.mark.parametrize("limit", [2, 1000])
def test_more_claims_of_a_workload_than_one_are_those_of_the_host(authorizer, limit):
    asked = {"query": ClaimQuery(workload_uuid="u", limit=limit)}
    (found,) = authorizer.authorize(CALLER, "list_claim_page", asked).values()
    assert (found.host, found.limit) == (CALLER.host, limit)


@pytest.mark.parametrize("project", ["", "its own", "another"])
def test_a_host_claims_on_itself_alone_whatever_the_project(authorizer, project):
    request = dataclasses.replace(ask(VCPU=1), workload=Workload(UUID, project_id=project))
    asked = {"request": request, "host": OWN, "nodename": "n1"}
    allowed = authorizer.authorize(CALLER, "create_claim", asked)
    assert allowed["request"].workload.project_id == project
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, "create_claim", asked | {"host": OTHER})


def test_an_agent_asks_placement_s_consumers_of_a_conductor_as_of_a_database():
    """Those of another host's claims are not leaks, and not this agent's to delete."""
    store = SqliteStore()
    make_node(store, host=OTHER)
    request = ask(VCPU=1)
    store.create_claim(request, OTHER, "node-1", POLICY)

    class Conductor:
        def list_claim_page(self, query):
            allowed = Authorizer(store, POLICY, 60).authorize(
                CALLER, "list_claim_page", {"query": query}
            )
            return store.list_claim_page(**allowed)

    for uuid, is_known in ((request.workload.uuid, True), (UUID, False)):
        consumer = PlacedConsumer(uuid, 1, {})
        assert is_in_ledger(Conductor(), consumer) is is_known


def test_an_agent_finds_itself_under_another_name(authorizer):
    asked = {"binary": COMPUTE_BINARY, "agent_id": "agent-1"}
    assert authorizer.authorize(CALLER, "list_services", asked) == asked


def test_services_of_another_agent_are_those_of_the_host_alone(authorizer):
    asked = {"binary": COMPUTE_BINARY, "agent_id": "agent-2"}
    assert authorizer.authorize(CALLER, "list_services", asked) == asked | {"host": OWN}


def test_each_change_is_one_of_the_host(authorizer):
    own = changed()
    asked = arguments("apply_changes", OWN)
    authorizer.authorize(CALLER, "apply_changes", asked | {"changes": [own, own]})
    other = dataclasses.replace(own, host=OTHER)
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, "apply_changes", asked | {"changes": [own, other]})


@pytest.mark.parametrize("method", ["report_state", "mark_service", "sync_warnings"])
@pytest.mark.parametrize("agent", [key(OWN, agent_id="agent-2"), key(OWN, binary=CONDUCTOR_BINARY)])
def test_another_agent_or_program_of_the_host_is_refused(authorizer, method, agent):
    with pytest.raises((AuthenticationError, ForbiddenError)):
        authorizer.authorize(CALLER, method, arguments(method, OWN) | {"agent": agent})


def test_a_copied_disk_cannot_register_another_agent(authorizer):
    asked = arguments("register_agent", OWN)
    asked["incarnation"] = dataclasses.replace(asked["incarnation"], agent_id="agent-2")
    refused = r"agent-1.*agent-2.*agent token create --host h1"
    with pytest.raises(AuthenticationError, match=refused):
        authorizer.authorize(CALLER, "register_agent", asked)


@pytest.mark.parametrize("method", ["create_claim", "try_claim", "admit_start", "renew_claim"])
def test_the_policy_is_the_conductors(authorizer, method):
    asked = arguments(method, OWN) | {"policy": AdmissionPolicy(10**9, 10**9)}
    assert authorizer.authorize(CALLER, method, asked)["policy"] is POLICY


def test_the_threshold_of_hosts_that_are_down_is_the_conductors(authorizer):
    asked = arguments("apply_changes", OWN)
    assert authorizer.authorize(CALLER, "apply_changes", asked)["service_down_time"] == 60


def test_nodes_of_other_hosts_are_not_created(authorizer):
    with pytest.raises(ForbiddenError):
        allow(authorizer, change(OTHER))


@pytest.mark.parametrize("changed", [{"host": OTHER}, {"binary": CONDUCTOR_BINARY}])
def test_the_row_that_a_registration_takes_over_is_the_own_hosts(authorizer, changed):
    row = ServiceRecord(
        "uuid",
        OWN,
        COMPUTE_BINARY,
        "compute",
        "1",
        Incarnation("agent-2", "", 0, 0, 0, 10),
        1,
        1,
        NOW,
    )
    asked = arguments("register_agent", OWN)
    authorizer.authorize(CALLER, "register_agent", asked | {"expected": row})
    other = dataclasses.replace(row, **changed)
    with pytest.raises(ForbiddenError):
        authorizer.authorize(CALLER, "register_agent", asked | {"expected": other})


def make_move(uuid, source_claim="source"):
    migration = Migration(
        uuid=uuid, workload_uuid="w", migration_type=MigrationType.MIGRATION,
        status=MigrationStatus.ERROR, source_host=OWN, source_node="n", dest_host=OTHER,
        dest_node="n", source_claim=source_claim, dest_claim="dest", created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return Move(migration, True, True)


@pytest.mark.parametrize("move", [make_move(OTHER), make_move(OWN, source_claim="another")])
def test_only_moves_of_the_own_host_are_set_to_error(authorizer, move):
    written = changed(moves=(make_move(OWN),))
    allow(authorizer, written)
    with pytest.raises(ForbiddenError):
        allow(authorizer, dataclasses.replace(written, moves=(move,)))


def allow(authorizer, written):
    """Return a change as the store gets it."""
    asked = arguments("apply_changes", OWN) | {"changes": [written]}
    (allowed,) = authorizer.authorize(CALLER, "apply_changes", asked)["changes"]
    return allowed


def test_the_history_of_a_change_is_what_it_writes(authorizer):
    """Whoever reads histories relies on their form."""
    written = dataclasses.replace(
        change(OWN),
        columns=("vcpus",),
        values=NodeValues(vcpus=4),
        diff={"vcpus": 7, "service": "forged"},
    )
    assert allow(authorizer, written).diff == {"vcpus": [None, 4]}


def test_a_change_of_an_unknown_column_is_refused(authorizer):
    written = dataclasses.replace(change(OWN), columns=("vcpus", "no_such"))
    with pytest.raises(RequestError, match="columns: nodes have no no_such"):
        allow(authorizer, written)


@pytest.mark.parametrize(
    "written",
    [
        change(OWN, "no uuid"),
        dataclasses.replace(change(OWN), guests=ItemDiff(added=(make_guest(uuid="no uuid"),))),
        dataclasses.replace(change(OWN), guests=ItemDiff(changed=(make_guest(uuid="no uuid"),))),
        change(OWN, UUID_OF_OTHER.upper()),
        change(OWN, UUID_OF_OTHER.replace("-", "")),
        dataclasses.replace(
            change(OWN), guests=ItemDiff(added=(make_guest(uuid=UUID_OF_OTHER.upper()),))
        ),
    ],
)
def test_what_names_rows_is_a_uuid_in_its_one_form(authorizer, written):
    with pytest.raises(RequestError, match="uuid: '.*' is not a UUID in lower case"):
        allow(authorizer, written)


@pytest.mark.parametrize("method", ["create_claim", "try_claim"])
@pytest.mark.parametrize("of", ["claim", "workload"])
@pytest.mark.parametrize("uuid", ["none", UUID_OF_OTHER.upper()])
def test_what_names_a_claim_is_a_uuid_in_its_one_form(authorizer, method, of, uuid):
    request = ask(VCPU=1)
    named = dataclasses.replace(request if of == "claim" else request.workload, uuid=uuid)
    request = named if of == "claim" else dataclasses.replace(request, workload=named)
    with pytest.raises(RequestError, match=f"uuid: '{uuid}' is not a UUID"):
        authorizer.authorize(CALLER, method, arguments(method, OWN) | {"request": request})


def test_a_move_is_set_to_error_whatever_is_sent(authorizer):
    move = make_move(OWN)
    forged = dataclasses.replace(move.migration, status=MigrationStatus.CONFIRMED)
    moves = (dataclasses.replace(move, migration=forged),)
    (set_to,) = allow(authorizer, changed(moves=moves)).moves
    assert set_to.migration.status is MigrationStatus.ERROR


def test_only_states_of_own_claims_are_taken_from_a_change(authorizer):
    """Notifications have the rest of a claim, too."""
    sent = Found(OWN, uuid=OWN, state="released", reason="gone", project="forged")
    written = changed(claims=(sent,))
    assert allow(authorizer, written).claims == (
        Found(OWN, uuid=OWN, node_id=1, state="released", reason="gone"),
    )
    foreign = dataclasses.replace(written, claims=(dataclasses.replace(sent, uuid=OTHER),))
    with pytest.raises(ForbiddenError):
        allow(authorizer, foreign)


@pytest.mark.parametrize("kind", sorted(NOT_OF_AGENTS))
def test_evidence_about_a_host_is_not_its_own(authorizer, kind):
    for method, sent in {
        "raise_warning": {"warning": warning(kind)},
        "sync_warnings": {"active": (warning(WarningKind.DRIFT), warning(kind))},
    }.items():
        with pytest.raises(ForbiddenError, match=f"agents do not raise the warning {kind}"):
            authorizer.authorize(CALLER, method, arguments(method, OWN) | sent)


def test_what_a_row_was_is_what_is_stored(store):
    """Not what its host says that it was, nor of another node."""
    agent = make_node(store, host=OWN, guests=(make_guest(1), make_guest(2)))
    stored = node(store, OWN)
    forged = make_record(
        make_values(vcpus=1),
        **{name: getattr(stored, name) for name in ("id", "generation", "host")},
        nodename="another",
        guests={make_guest(3).uuid: make_guest(3)},
    )
    guests = ItemDiff(changed=(make_guest(1, memory_mb=7),), removed=(make_guest(2), make_guest(3)))
    written = dataclasses.replace(
        update(forged, guests, vcpus=16), kind=ChangeKind.CREATE, uuid=UUID_OF_OTHER
    )
    result = apply(store, agent, written)
    record = node(store, OWN)
    assert result.records == {record.nodename: record}
    (line,) = [entry for entry in read_history(store, OWN) if "vcpus" in entry.diff][-1:]
    assert (line.nodename, line.what) == (stored.nodename, ChangeKind.UPDATE)
    assert line.diff == {
        "vcpus": [stored.values.vcpus, 16],
        "guests": {
            "changed": [{"uuid": make_guest(1).uuid, "memory_mb": [make_guest(1).memory_mb, 7]}],
            "removed": [make_guest(2).uuid],
        },
    }


@pytest.mark.parametrize("generation", [0, 2])
def test_a_change_of_a_row_that_is_no_longer_stored_is_a_conflict(store, generation):
    agent = make_node(store, host=OWN)
    stored = node(store, OWN)
    sent = dataclasses.replace(stored, generation=stored.generation - 1 + generation)
    allowed = authorize(store, agent, update(sent, vcpus=16))
    # Another write between both may give the row the generation that was sent.
    store.apply_changes(agent, [update(stored, os="another")], 60)
    assert store.apply_changes(agent, [allowed], 60).conflicts == (stored.nodename,)


def test_a_deleted_row_leaves_nothing_behind(store):
    agent = make_node(store, host=OWN, guests=(make_guest(1),))
    stored = node(store, OWN)
    apply(store, agent, delete(dataclasses.replace(stored, guests={}, uuid=UUID_OF_OTHER)))
    with store.engine.begin() as connection:
        assert connection.execute(sa.select(tables.guests)).all() == []
    assert read_history(store, OWN)[-1].diff == {"uuid": [stored.uuid, None]}


def test_claims_of_another_node_are_not_those_of_a_change(authorizer):
    sent = Found(OWN, uuid=OTHER, state="released")
    with pytest.raises(ForbiddenError, match="not one of node n"):
        allow(authorizer, changed(claims=(sent,)))


@pytest.mark.parametrize(
    "written",
    [
        change(OWN),
        changed(kind=ChangeKind.MEASURE),
        changed(kind=ChangeKind.DELETE),
    ],
)
def test_what_writes_no_claims_announces_none(authorizer, written):
    sent = Found(OWN, uuid=OWN, state="released")
    written = dataclasses.replace(written, claims=(sent,), moves=(make_move(OWN),))
    assert (allow(authorizer, written).claims, allow(authorizer, written).moves) == ((), ())


def test_a_registration_takes_over_the_row_that_is_stored(store):
    register(store, OWN, "agent-1")
    (stored,) = store.list_services(OWN)
    forged = dataclasses.replace(stored, disabled=True, disabled_reason="forged")
    asked = arguments("register_agent", OWN) | {"expected": forged}
    authorizer = Authorizer(store, POLICY, 60)
    assert authorizer.authorize(CALLER, "register_agent", asked)["expected"] == stored
    older = dataclasses.replace(forged, report_count=7)
    asked = arguments("register_agent", OWN) | {"expected": older}
    assert authorizer.authorize(CALLER, "register_agent", asked)["expected"] == older


@pytest.fixture
def store():
    return SqliteStore()


def authorize(store, agent, written):
    """Return a change as the store of a conductor gets it."""
    asked = {"agent": agent, "changes": [written], "service_down_time": 60}
    caller = Caller(agent.host, agent.agent_id)
    (allowed,) = Authorizer(store, POLICY, 60).authorize(caller, "apply_changes", asked)["changes"]
    return allowed


def apply(store, agent, written):
    return store.apply_changes(agent, [authorize(store, agent, written)], 60)


def test_an_unknown_method_is_not_served(authorizer):
    with pytest.raises(ForbiddenError, match="no_such"):
        authorizer.authorize(CALLER, "no_such", {})
