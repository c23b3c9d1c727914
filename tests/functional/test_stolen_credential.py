"""What somebody who has a host's credential, or a join token, tries on a real conductor."""

import dataclasses
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.claim import Claim, ClaimState, Migration, MigrationStatus
from nodetracker.model.credential import hash_secret
from nodetracker.model.listing import ClaimQuery, HistoryQuery, WorkloadQuery
from nodetracker.model.service import (
    COMPUTE_BINARY,
    CONDUCTOR_BINARY,
    UNKNOWN_COUNT,
    AgentKey,
    AuditState,
    ServiceChange,
    ServiceRecord,
)
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import (
    ADMISSION_POLICY,
    ask,
    claim,
    create,
    delete,
    key_of,
    make_guest,
    make_incarnation,
    make_node,
    move,
    node,
    register,
    update,
)
from tests.contract.stores import make_url
from tests.functional.conductors import NODE, Conductor, Remote
from tests.functional.servers.mariadb import MariaDB
from tests.programs import Running, wait_until

MINUTE = timedelta(minutes=1)
THIEF, VICTIM = "host-1", "host-2"
THIEF_AGENT, SECRET = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11", "a stolen credential"
NEW_AGENT = "0d9ac0f4-6f5c-4a35-9a56-3f2ba5fd6c7e"
_CHANGING = {"used_at", "address"}


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The rows of the victim, and those of the thief's own host."""

    store: SqlStore
    conductor: Conductor
    running: Running
    own: AgentKey
    claim: Claim
    moved: Migration

    @property
    def victim(self) -> ServiceRecord:
        (service,) = self.store.list_services(VICTIM, COMPUTE_BINARY)
        return service

    def post(self, path: str, body: dict[str, Any], secret: str | None = None) -> tuple[int, Any]:
        """Return the status and the answer."""
        headers = {"Content-Type": "application/json"}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.conductor.endpoint}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def call(self, method: str, *arguments: Any, secret: str = SECRET) -> tuple[int, Any]:
        """Call a method of the store with the stolen credential."""
        plain = CONDUCTOR.methods[method].encode_arguments(*arguments)
        body = {"version": CONDUCTOR.version, "arguments": plain}
        return self.post(f"/store/{method}", body, secret)

    def join(self, token: str, host: str, agent_id: str, secret: str) -> tuple[int, Any]:
        """Exchange a join token."""
        body = {"token": token, "host": host, "agent_id": agent_id}
        return self.post("/join", body | {"secret_hash": hash_secret(secret)})

    def read_rows(self) -> dict[str, list[Any]]:
        """Return all rows but the conductor's own, without when a credential was used.

        Those of trends and tolerances are the conductor's own: it samples the fleet, and looks
        whether that survives losses, by its own clock.
        """
        with self.store.engine.connect() as connection:
            return {
                table.name: [
                    {name: value for name, value in row.items() if name not in _CHANGING}
                    for row in connection.execute(sa.select(table)).mappings()
                    if row.get("binary") != CONDUCTOR_BINARY
                ]
                for table in tables.metadata.sorted_tables
                if table not in (tables.trends, tables.host_tolerances)
            }


@pytest.fixture
def fleet(mariadb: MariaDB, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    connection = make_url("mariadb", request, tmp_path)
    # Nothing writes heartbeats of its hosts.
    conductor = Conductor(tmp_path, connection, down_after=3600)
    store = open_store(DatabaseSettings(connection))
    for host in (VICTIM, "host-3"):
        make_node(store, host=host, guests=(make_guest(f"guest of {host}"),))
    held = claim(store, ask(VCPU=1, MEMORY_MB=64), VICTIM)
    moved = move(store, claim(store, ask(VCPU=1, MEMORY_MB=64), VICTIM), "host-3")
    own = register(store, THIEF, THIEF_AGENT)
    store.apply_changes(own, [create(own, "node-1")], 60)
    with conductor.start_conductor() as running:
        found = Fleet(store, conductor, running, own, held, moved)
        token = conductor.make_token("--host", THIEF)
        assert found.join(token, THIEF, THIEF_AGENT, SECRET)[0] == 200
        yield found
    store.close()


def attack(fleet: Fleet) -> Iterator[tuple[str, tuple[int, Any]]]:
    """Yield what is tried with a stolen credential, and the answer to it."""
    store, own, victim = fleet.store, fleet.own, fleet.victim
    call, theirs = fleet.call, node(store, VICTIM)
    agent = AgentKey(VICTIM, COMPUTE_BINARY, victim.incarnation.agent_id, victim.epoch, victim.uuid)
    disabled = ServiceChange(disabled=True, disabled_reason="gone", disabled_by="admin")
    yield "disable", call("set_service", VICTIM, COMPUTE_BINARY, disabled)
    forced = ServiceChange(forced_down=True)
    yield "force down", call("set_service", VICTIM, COMPUTE_BINARY, forced)
    start = dataclasses.replace(make_incarnation(), agent_id=THIEF_AGENT)
    for host in (VICTIM, THIEF):
        taken = (host, COMPUTE_BINARY, "compute", "1", start, victim, 0)
        yield f"take over as {host}", call("register_agent", *taken)
    yield "report", call("report_state", agent, 10**9, AuditState())
    grown = update(theirs, vcpus=4096, memory_mb=2**30)
    yield "write a node", call("apply_changes", agent, [grown], 60)
    as_own = dataclasses.replace(grown, host=THIEF)
    for name, change in {
        "write a node as one's own": as_own,
        "delete a node": delete(theirs),
        "take a node's uuid": create(own, "node-2", node_uuid=theirs.uuid),
    }.items():
        yield name, call("apply_changes", own, [change], -100000)
    yield "delete a service", call("delete_service", VICTIM, COMPUTE_BINARY, -100000)
    yield "delete a node by name", call("delete_node", VICTIM, "node-1")
    yield "purge", call("purge_host", VICTIM, -100000)
    yield "accept a node", call("accept_node", VICTIM, "node-1")
    yield "rename", call("rename_host", VICTIM, "host-9", COMPUTE_BINARY, victim)
    yield "take a node over", call("take_over_node", VICTIM, "node-1", THIEF, -100000)
    yield "erase the history", call("purge", datetime(2999, 1, 1, tzinfo=UTC), (), False)
    yield "list workloads", call("list_workloads", WorkloadQuery(host=VICTIM))
    yield "list claims", call("list_claim_page", ClaimQuery(host=VICTIM))
    yield "read the history", call("list_history_page", HistoryQuery(host=VICTIM))
    yield "read its nodes", call("load_nodes", VICTIM)
    yield "claim there", call("create_claim", ask(VCPU=1), VICTIM, "node-1", ADMISSION_POLICY)
    for method in ("confirm_claim", "abort_claim"):
        yield method, call(method, fleet.claim.uuid)
    for method in ("confirm_migration", "revert_migration"):
        yield method, call(method, fleet.moved.uuid)
    yield "warn of it", call("sync_warnings", agent, [])
    for kind in (WarningKind.CREDENTIAL_REUSED, WarningKind.HOST_DOWN):
        evidence = HostWarning(kind, "", "", "forged")
        yield f"raise {kind}", call("raise_warning", THIEF, evidence)
        yield f"report {kind}", call("sync_warnings", own, [evidence])
    in_capitals = create(own, "node-3", node_uuid=theirs.uuid.upper())
    yield "take a uuid in capitals", call("apply_changes", own, [in_capitals], 60)


def test_a_stolen_credential_changes_nothing_of_another_host(fleet: Fleet) -> None:
    before = fleet.read_rows()
    answers = dict(attack(fleet))
    granted = {name: answer for name, (status, answer) in answers.items() if status == 200}
    # Neither row is one of its host.
    assert granted.keys() == {"write a node as one's own", "take a node's uuid"}
    assert granted["write a node as one's own"]["value"]["conflicts"] == ["node-1"]
    assert granted["take a node's uuid"]["value"]["refused"].keys() == {"node-2"}
    # Lists of everything are those of its own host.
    for method, query in (("list_workloads", WorkloadQuery()), ("list_claim_page", ClaimQuery())):
        status, answer = fleet.call(method, query)
        assert (status, answer["value"]["items"]) == (200, [])
    assert fleet.read_rows() == before
    # Naming another host's claim in a change of its own node does not release that.
    released = dataclasses.replace(fleet.claim, state=ClaimState.RELEASED, reason="deleted")
    named = dataclasses.replace(update(node(fleet.store, THIEF)), claims=(released,))
    assert fleet.call("apply_changes", fleet.own, [named], 60)[0] == 403
    assert fleet.read_rows()["claims"] == before["claims"]
    fleet.running.wait_for("Refused /store/set_service from 127.0.0.1")
    assert "ForbiddenError" not in fleet.running.output()


def test_a_stolen_credential_has_the_calls_of_its_own_host_alone(fleet: Fleet) -> None:
    calls = {
        host: fleet.store.create_call(host, "host_power_action", {}, "api:ctl", MINUTE)
        for host in (VICTIM, THIEF)
    }
    status, answer = fleet.call(
        "report_state", fleet.own, 10**7, AuditState(), None, False, UNKNOWN_COUNT
    )
    assert (status, [call["id"] for call in answer["value"]["calls"]]) == (200, [calls[THIEF]])
    before = fleet.read_rows()
    forged = {"value": "forged"}
    assert fleet.call("answer_call", VICTIM, calls[VICTIM], forged)[0] == 403
    assert fleet.call("answer_call", THIEF, calls[VICTIM], forged)[0] == 200
    assert fleet.call("find_answer", VICTIM, calls[VICTIM])[0] == 403
    call = ("host_power_action", {"action": "reboot"}, "admin", MINUTE)
    assert fleet.call("create_call", VICTIM, *call)[0] == 403
    assert fleet.read_rows() == before
    assert fleet.call("answer_call", THIEF, calls[THIEF], forged)[0] == 200
    assert fleet.store.find_answer(THIEF, calls[THIEF]) == forged
    fleet.running.wait_for(
        f"agent of host {THIEF}, answer_call, target host {THIEF} from 127.0.0.1"
    )
    assert fleet.call("create_call", THIEF, *call)[0] == 200
    fleet.running.wait_for(f"agent of host {THIEF}, create_call, target host {THIEF}")


def test_what_a_thief_wrote_does_not_outlive_a_revoke(fleet: Fleet, tmp_path: Path) -> None:
    def see() -> ServiceRecord:
        return fleet.store.list_services(THIEF, COMPUTE_BINARY)[0]

    run, place = make_incarnation(THIEF_AGENT), (THIEF, COMPUTE_BINARY, "compute", "1")
    for _ in range(5):  # by the largest steps
        assert fleet.call("register_agent", *place, run, see(), 2**63 - 2)[0] == 400
        assert fleet.call("register_agent", *place, run, see(), see().epoch + 10**6)[0] == 200
        agent = dataclasses.replace(key_of(see()), report_count=see().report_count)
        count = agent.report_count + 10**8
        fleet.call("report_state", agent, 2**63 - 2, AuditState())
        fleet.call("report_state", agent, count + 1, AuditState())
        assert see().report_count == agent.report_count
        assert fleet.call("report_state", agent, count, AuditState())[0] == 200
    assert (see().epoch, see().report_count) == (5 * 10**6 + 6, 5 * 10**8)
    with fleet.store.engine.begin() as connection:  # through a conductor of the release before
        for statement in (
            f"UPDATE services SET epoch = {2**63 - 2}, report_count = {2**63 - 2} "
            f"WHERE host = '{THIEF}'",
            f"UPDATE compute_nodes SET epoch = {2**63 - 2} WHERE host = '{THIEF}'",
        ):
            connection.execute(sa.text(statement))
    # Its agent's id under a name that a token is for would keep it from starting again.
    token = fleet.conductor.make_token("--host", "host-9")
    assert fleet.join(token, "host-9", THIEF_AGENT, "another")[0] == 403
    assert fleet.conductor.manage("agent", "revoke", THIEF).returncode == 0
    token = fleet.conductor.make_token("--host", THIEF)
    remote = Remote(
        tmp_path / "own", fleet.conductor.endpoint, token, THIEF, update_resources_interval=1
    )
    state = tmp_path / "own" / "state"
    state.mkdir(exist_ok=True)
    (state / "compute_id").write_text(f"{THIEF_AGENT}\n")
    with remote.start() as running:
        running.wait_for("is ready")
        wait_until(lambda: node(fleet.store, THIEF).values.vcpus == NODE["vcpus"])
        assert (see().damaged, node(fleet.store, THIEF).damaged) == ((), ())
        nodes = fleet.conductor.ask("node", "list", "--host", THIEF)
        assert [(item["nodename"], item["state"]) for item in nodes] == [("node-1", "up")]
        assert running.stop() == 0


def test_a_host_that_a_thief_filled_is_emptied_once_it_is_revoked(fleet: Fleet) -> None:
    names = [f"node-{number}" for number in range(2, 132)]
    grown = update(node(fleet.store, THIEF), local_gb=10**6, disk_allocation_ratio=1.0)
    created = [create(fleet.own, name, guests=(make_guest(name),)) for name in names]
    assert fleet.call("apply_changes", fleet.own, [grown, *created], 60)[0] == 200
    fleet.call("report_state", fleet.own, 1, AuditState())
    assert fleet.call("create_claim", ask(VCPU=1), THIEF, "node-2", ADMISSION_POLICY)[0] == 200
    held = claim(fleet.store, ask(VCPU=1, MEMORY_MB=64), VICTIM)
    moved = move(fleet.store, held, THIEF)
    before = fleet.read_rows()
    manage = fleet.conductor.manage
    refused = manage("host", "purge", THIEF, "--yes")
    assert (refused.returncode, fleet.read_rows()) == (1, before)
    assert "is alive" in refused.stderr
    assert "stop it or revoke its credential first" in refused.stderr
    assert manage("agent", "revoke", THIEF).returncode == 0
    unsure = manage("host", "purge", THIEF)
    assert (unsure.returncode, "requires --yes" in unsure.stderr) == (2, True)
    done = manage("host", "purge", THIEF, "--yes")
    assert (done.returncode, done.stdout) == (0, f"131 nodes of host {THIEF} deleted\n")
    again = manage("host", "purge", THIEF, "--yes")
    assert (again.returncode, f"host {THIEF} has no nodes" in again.stderr) == (1, True)
    assert fleet.call("apply_changes", fleet.own, created, 60)[0] == 401
    assert fleet.conductor.ask("node", "list", "--host", THIEF) == []
    assert [one.host for one in fleet.store.list_claims()] == [VICTIM, VICTIM, "host-3", VICTIM]
    (ended,) = fleet.store.list_migrations(uuid=moved.uuid)
    assert ended.status is MigrationStatus.CANCELLED
    after = fleet.read_rows()
    for table in ("compute_nodes", "guests", "pci_devices"):
        own = {row["id"] for row in before["compute_nodes"] if row["host"] == THIEF}
        key = "id" if table == "compute_nodes" else "compute_node_id"
        changing = {"generation", "limits_generation"}
        assert [drop(row, changing) for row in after[table]] == [
            drop(row, changing) for row in before[table] if row[key] not in own
        ]


def drop(row: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return a row without some columns."""
    return {name: value for name, value in row.items() if name not in names}


def test_a_stolen_token_takes_no_name_that_has_an_agent(fleet: Fleet) -> None:
    other = register(fleet.store, "host-5", str(uuid.uuid4()))
    before = fleet.read_rows()
    token = fleet.conductor.make_token("--uses", "9")
    for host in (VICTIM, THIEF):
        status, answer = fleet.join(token, host, NEW_AGENT, "another")
        assert (status, "value" in answer) == (403, False), answer
    taken = fleet.join(token, "host-4", other.agent_id, "another")
    assert (taken[0], "that of another host" in json.dumps(taken[1])) == (403, True)
    for host, agent_id in (("host 4", NEW_AGENT), ("host-4\n", NEW_AGENT), ("host-4", "none")):
        assert fleet.join(token, host, agent_id, "another")[0] == 400
    for host in ("HOST-2", "host-2.", ".."):
        status, answer = fleet.join(token, host, NEW_AGENT, "another")
        assert (status, answer["error"]["type"]) == (409, "HostNameError"), answer
    assert fleet.call("now", secret=token)[0] == 401
    assert fleet.join(token, "host-4", NEW_AGENT, "another")[0] == 200
    assert fleet.call("load_nodes", VICTIM, secret="another")[0] == 403
    after = fleet.read_rows()
    for table in ("services", "compute_nodes", "claims", "guests", "history", "warnings"):
        assert after[table] == before[table]
    fleet.running.wait_for("Refused /join")


def test_an_expired_token_and_a_revoked_credential_are_refused(fleet: Fleet) -> None:
    with fleet.store.engine.begin() as connection:
        past = fleet.store.now() - timedelta(seconds=1)
        token = fleet.conductor.make_token()
        connection.execute(sa.update(tables.join_tokens).values(expires_at=past))
    assert fleet.join(token, "host-4", NEW_AGENT, "another")[0] in (401, 403)
    assert fleet.conductor.manage("agent", "revoke", THIEF).returncode == 0
    assert fleet.call("load_nodes", THIEF)[0] == 401
