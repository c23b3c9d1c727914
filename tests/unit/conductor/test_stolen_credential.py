"""What who stole a credential, or a join token, can do to another host: nothing."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.conductor.authorization import Authorizer
from nodetracker.conductor.endpoint import AgentEndpoint
from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.db.schema import tables
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.credential import hash_secret
from nodetracker.model.listing import ClaimQuery, WorkloadQuery
from nodetracker.model.node import NodeValues
from nodetracker.model.service import COMPUTE_BINARY, AgentKey, Incarnation, ServiceChange
from nodetracker.ports import AdmissionPolicy
from nodetracker.process.clock import DatabaseClock
from tests.stores import SqliteStore

POLICY = AdmissionPolicy(60, 600)
AGENTS = {f"h{n}": f"6a0e1f6c-5a34-4a64-9d3a-00000000000{n}" for n in (1, 2)}
NODES = {f"h{n}": f"7a0e1f6c-5a34-4a64-9d3a-00000000000{n}" for n in (1, 2)}
WORKLOAD = "8a0e1f6c-5a34-4a64-9d3a-000000000001"
VALUES = NodeValues(
    vcpus=16, memory_mb=65536, local_gb=500, cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0
)
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


class Fleet:
    """A conductor with two hosts that have joined; h2 has a claim."""

    def __init__(self):
        self.store = SqliteStore()
        self.endpoint = AgentEndpoint(
            "c1", self.store, Authorizer(self.store, POLICY, 60), DatabaseClock()
        )
        self.store.create_join_token(hash_secret("token"), None, 9, timedelta(hours=1), "admin")
        for host in AGENTS:
            assert self.join(host, AGENTS[host], f"secret {host}")[0] == "200 OK"
            incarnation = Incarnation(AGENTS[host], "boot", 1, 2, 3, 10)
            self.own(
                host, "register_agent", host, COMPUTE_BINARY, "compute", "1", incarnation, None
            )
            create = NodeChange(ChangeKind.CREATE, host, host, NODES[host], None, VALUES)
            self.own(host, "apply_changes", self.key(host), (create,), 60)
        request = parse_claim_request(
            {"workload": {"uuid": WORKLOAD}, "resources": {"VCPU": 1, "MEMORY_MB": 64}}
        )
        self.claim = self.store.create_claim(request, "h2", "h2", POLICY)

    def key(self, host):
        (row,) = self.store.list_services(host)
        return AgentKey(host, COMPUTE_BINARY, AGENTS[host], row.epoch, row.uuid)

    def post(self, path, body, secret=""):
        data = json.dumps(body).encode()
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": path,
            "REMOTE_ADDR": "192.0.2.66",
            "HTTP_AUTHORIZATION": f"Bearer {secret}",
            "wsgi.input": io.BytesIO(data),
        }
        statuses = []
        parts = self.endpoint(environ, lambda status, headers: statuses.append(status))
        return statuses[0], json.loads(b"".join(parts))

    def join(self, host, agent_id, secret):
        body = {"token": "token", "host": host, "agent_id": agent_id}
        return self.post("/join", body | {"secret_hash": hash_secret(secret)})

    def call(self, host, method, *values, **named):
        arguments = CONDUCTOR.methods[method].encode_arguments(*values, **named)
        body = {"version": CONDUCTOR.version, "arguments": arguments}
        return self.post(f"/store/{method}", body, f"secret {host}")

    def own(self, host, method, *values):
        status, answer = self.call(host, method, *values)
        assert (status, "error" in answer) == ("200 OK", False), answer

    def dump(self):
        """Return all rows but those of h1."""
        with self.store.engine.connect() as connection:
            return {
                table.name: [
                    tuple(map(repr, row))
                    for row in connection.execute(sa.select(table))
                    if "'h1'" not in repr(row)
                ]
                for table in tables.metadata.sorted_tables
            }


@pytest.fixture
def fleet():
    return Fleet()


def big(fleet, kind):
    (record,) = fleet.store.list_nodes("h2")
    values = replace(VALUES, vcpus=4096, local_gb=1 << 20)
    columns = ("vcpus", "local_gb")
    return NodeChange(kind, "h2", "h2", NODES["h2"], record, values, columns)


def h1_taking(fleet):
    create = NodeChange(ChangeKind.CREATE, "h1", "h2", NODES["h2"], None, VALUES)
    return ("apply_changes", fleet.key("h1"), (create,), -100000)


def taking_row(fleet):
    (row,) = fleet.store.list_services("h2")
    incarnation = Incarnation(AGENTS["h1"], "boot", 1, 2, 3, 10)
    return row, incarnation


ATTACKS = {
    "disable": lambda f: ("set_service", "h2", COMPUTE_BINARY, ServiceChange(disabled=True)),
    "force down": lambda f: ("set_service", "h2", COMPUTE_BINARY, ServiceChange(forced_down=True)),
    "take the services row": lambda f: (
        "register_agent", "h1", COMPUTE_BINARY, "compute", "1", taking_row(f)[1], taking_row(f)[0]
    ),
    "register as another host": lambda f: (
        "register_agent", "h2", COMPUTE_BINARY, "compute", "1", taking_row(f)[1], taking_row(f)[0]
    ),
    "write its node": lambda f: (
        "apply_changes", f.key("h1"), (big(f, ChangeKind.UPDATE),), -100000
    ),
    "write its node as its agent": lambda f: (
        "apply_changes", f.key("h2"), (big(f, ChangeKind.UPDATE),), -100000
    ),
    "delete its node": lambda f: (
        "apply_changes", f.key("h1"), (big(f, ChangeKind.DELETE),), -100000
    ),
    "take its node": h1_taking,
    "delete the node's row": lambda f: ("delete_node", "h2", "h2"),
    "delete the service": lambda f: ("delete_service", "h2", COMPUTE_BINARY, -100000),
    "rename": lambda f: ("rename_host", "h2", "h3", COMPUTE_BINARY, None),
    "erase history": lambda f: ("purge", FUTURE),
    "read its workloads": lambda f: ("list_workloads", WorkloadQuery(host="h2")),
    "read its claims": lambda f: ("list_claims", "h2"),
    "release its claim": lambda f: ("abort_claim", f.claim.uuid),
    "confirm a move": lambda f: ("confirm_migration", f.claim.uuid),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_stolen_credential_changes_nothing_of_another_host(fleet, name, caplog):
    before = fleet.dump()
    status, answer = fleet.call("h1", *ATTACKS[name](fleet))
    assert "error" in answer or answer["value"]["refused"], answer
    assert status != "403 Forbidden" or "Refused /store/" in caplog.text
    assert fleet.dump() == before


def test_lists_of_all_hosts_are_those_of_its_own(fleet):
    for method, query in (("list_workloads", WorkloadQuery()), ("list_claim_page", ClaimQuery())):
        _, answer = fleet.call("h1", method, query)
        assert answer["value"]["items"] == []
    assert fleet.call("h1", "list_claims")[1]["value"] == []


def test_a_claim_of_another_host_that_a_change_names_is_left_alone(fleet):
    (record,) = fleet.store.list_nodes("h1")
    change = NodeChange(
        ChangeKind.UPDATE,
        "h1",
        "h1",
        NODES["h1"],
        record,
        VALUES,
        ("vcpus",),
        claims=(fleet.claim,),
    )
    fleet.call("h1", "apply_changes", fleet.key("h1"), (change,), 60)
    assert fleet.store.list_claims("h2") == [fleet.claim]


@pytest.mark.parametrize("agent_id", [AGENTS["h1"], AGENTS["h2"]])
def test_a_stolen_join_token_does_not_take_the_name_of_a_host(fleet, agent_id, caplog):
    before = fleet.dump()
    assert fleet.join("h2", agent_id, "stolen")[0] == "403 Forbidden"
    assert "Refused /join from 192.0.2.66" in caplog.text
    assert fleet.dump() == before
