"""A write of any store changes the rows that it is about, and no others.

Each write is made in a scene whose hosts, nodes, guests, devices, claims and
migrations share every name (`scene.py`). All rows are compared before and
after, and the changes with a file in ``tests/golden/writes``.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.trends import PART_NODES
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import MigrationStatus, PlacedRequest
from nodetracker.model.credential import hash_secret
from nodetracker.model.node import NodeVersion, VersionSums
from nodetracker.model.provider import RemovalQuery
from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY, AuditState, ServiceChange
from nodetracker.model.warning import WarningKind
from nodetracker.ports import AgentKey, CallStore, CredentialStore, Store
from tests.builders import (
    availability_of,
    create,
    delete,
    key_of,
    make_device,
    make_guest,
    make_incarnation,
    measure,
    read_history,
    take_service,
    update,
)
from tests.contract.dumps import Delta, Rows, compare, render
from tests.contract.scene import (
    ADDRESSES,
    CPU,
    CUT_OFF,
    NAMES,
    PAST,
    PLACES,
    POLICY,
    Scene,
    ask,
    ask_move,
    build,
    expire,
    fail,
    list_devices,
    list_guests,
    node_uuid,
    uuid_of,
)
from tests.contract.stores import SQL_BACKENDS, StoreMaker, open_sharing
from tests.goldens import check_golden
from tests.oracle import check_usage

ALWAYS_DOWN = -1
READS = ("count_", "find_", "list_", "load_", "read_", "sum_", "now", "close")
Touched = dict[str, set[str] | None]


@dataclass(frozen=True)
class Write:
    """A call of a store.

    Attributes:
        touched: pattern of rows that it changes -> the columns that change,
            None = any.
        is_audit: the row is what an audit decided, so its usage is not checked.
    """

    method: str
    case: str
    call: Callable[[Scene], Any]
    touched: Touched
    is_audit: bool = False

    @property
    def id(self) -> str:
        return f"{self.method}-{self.case.replace(',', '').replace(' ', '-')}"


def rows(*patterns: str) -> Touched:
    return dict.fromkeys(patterns)


def warning_id(scene: Scene) -> int:
    (found,) = (x for x in scene.store.list_warnings("alpha") if x.warning.kind is CUT_OFF.kind)
    return found.id


def conductor_of(scene: Scene, host: str) -> AgentKey:
    return key_of(scene.service(host, CONDUCTOR_BINARY))


def register(scene: Scene, binary: str) -> None:
    take_service(scene.store, "alpha", make_incarnation("another"), binary)


def update_children(scene: Scene) -> None:
    record = scene.record("a1")
    bare, queue = record.guests[uuid_of("bare")], record.guests[uuid_of("queue")]
    changed, removed = (record.devices[address] for address in ADDRESSES[:2])
    guests = ItemDiff(
        (make_guest("added", uuid=uuid_of("added")),),
        (dataclasses.replace(queue, name="Queue"),),
        (bare,),
    )
    devices = ItemDiff(
        (make_device("0000:82:00.0"),), (dataclasses.replace(changed, driver="new"),), (removed,)
    )
    scene.apply(update(record, guests, devices))


def expire_claim(scene: Scene) -> None:
    record = scene.record("a1")
    scene.apply(dataclasses.replace(update(record), claims=(expire(record, "new a1"),)))


def fail_move(scene: Scene) -> None:
    record = scene.record("a1")
    scene.apply(dataclasses.replace(update(record), moves=(fail(record, "web"),)))


def create_node(scene: Scene, nodename: str, uuid: str) -> None:
    """Create a node of alpha."""
    guests, devices = list_guests("a1"), list_devices("a1")
    scene.apply(create(scene.agents["alpha"], nodename, None, guests, devices, uuid))


def rename(scene: Scene) -> None:
    scene.store.rename_host("alpha", "omega", COMPUTE_BINARY, scene.service("alpha"))


def claim(name: str, label: str) -> Callable[[Scene], None]:
    return lambda scene: scene.claim(ask(name), label)


def of_claim(method: str, name: str) -> Callable[[Scene], Any]:
    return lambda scene: getattr(scene.store, method)(uuid_of(name))


GENERATION = {"generation", "limits_generation"}
CHILDREN_OF_G1 = rows("guest g1 *", "device g1 *", "claim past g1", "claim passed g1", "removal g1")
PAST_CLAIMS = rows("claim past *", "claim moved a2", "claim moved b2", "move of moved")
WRITES = [
    Write(
        "register_agent",
        "agent",
        lambda scene: register(scene, COMPUTE_BINARY),
        {**rows("service alpha compute"), "node a1": {"epoch"}, "node a2": {"epoch"}}
        | rows("history alpha  service *"),
    ),
    Write(
        "register_agent",
        "conductor",
        lambda scene: register(scene, CONDUCTOR_BINARY),
        rows("service alpha conductor") | rows("history alpha  service *"),
    ),
    Write(
        "report_state",
        "agent",
        lambda scene: scene.store.report_state(
            scene.agents["alpha"], 2, AuditState(1.0, by_conductor=True)
        ),
        rows("service alpha compute"),
    ),
    Write(
        "report_state",
        "conductor",
        lambda scene: scene.store.report_state(
            conductor_of(scene, "alpha"), 2, AuditState(1.0, by_conductor=True)
        ),
        rows("service alpha conductor"),
    ),
    Write(
        "mark_service",
        "agent",
        lambda scene: scene.store.mark_service(scene.agents["alpha"], "AUTO: away"),
        {
            "service alpha compute": {
                "disabled",
                "disabled_at",
                "disabled_reason",
                "updated_at",
            }
        }
        | rows("history alpha  service changed *"),
    ),
    Write(
        "set_service",
        "conductor",
        lambda scene: scene.store.set_service(
            "alpha", CONDUCTOR_BINARY, ServiceChange(maintenance=True)
        ),
        {"service alpha conductor": {"maintenance", "updated_at"}}
        | rows("history alpha  service changed *"),
    ),
    Write(
        "delete_service",
        "agent",
        lambda scene: scene.store.delete_service("gamma", COMPUTE_BINARY, ALWAYS_DOWN),
        rows("service gamma compute", "node g1", "warning gamma *")
        | rows("history gamma n1 delete 1", "history gamma  delete 1")
        | CHILDREN_OF_G1,
    ),
    Write(
        "delete_service",
        "conductor",
        lambda scene: scene.store.delete_service("gamma", CONDUCTOR_BINARY, ALWAYS_DOWN),
        rows("service gamma conductor") | rows("history gamma  service retired *"),
    ),
    Write(
        "rename_host",
        "agent",
        rename,
        rows(
            *("service alpha compute", "service omega compute", "node a1", "node a2"),
            *("history alpha *", "history omega *", "warning alpha *", "warning omega *"),
            *("move of *", "removal gone alpha", "credential alpha", "credential omega"),
        ),
    ),
    Write(
        "take_over_node",
        "of a host that is down",
        lambda scene: scene.store.take_over_node("beta", "n2", "gamma", ALWAYS_DOWN),
        {
            "node b2": {"host", "updated_at"} | GENERATION,
            "move of *": {"dest_host"},
        }
        | rows("history gamma n2 update 1", "warning beta fact_held n2 *"),
    ),
    Write(
        "delete_node",
        "idle",
        lambda scene: scene.store.delete_node("gamma", "n1"),
        rows("node g1", "history gamma n1 delete 1") | CHILDREN_OF_G1,
    ),
    Write(
        "purge_host",
        "with moves from and to another",
        lambda scene: scene.store.purge_host("beta", ALWAYS_DOWN),
        {"node a1": GENERATION, "node a2": GENERATION}
        | {f"move of {name}": {"status", "updated_at"} for name in ("web", "db", "stray", "astray")}
        | rows("node b?", "guest b? *", "device b? *", "claim * b?", "removal b?")
        | rows("warning beta fact_held *", "history beta n? delete 1")
        | rows("history beta n? claim released *", "history alpha n? move cancelled *"),
    ),
    Write(
        "apply_changes",
        "update",
        update_children,
        rows(
            *("node a1", "guest a1 added", "guest a1 queue", "guest a1 bare"),
            *(f"device a1 {address}" for address in (*ADDRESSES[:2], "0000:82:00.0")),
            "history alpha n1 update *",
        ),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "measurement",
        lambda scene: scene.apply(measure(scene.record("a1"), mem_available=1)),
        {"node a1": {"mem_available", "updated_at"}},
    ),
    Write(
        "apply_changes",
        "expired claim",
        expire_claim,
        rows("node a1", "claim new a1", "history alpha n1 update *")
        | rows("history alpha n1 claim released *"),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "move in error",
        fail_move,
        {"move of web": {"status", "updated_at"}, "node b1": GENERATION}
        | rows("node a1", "history alpha n1 update *")
        | rows("history alpha n1 move error *"),
    ),
    Write(
        "apply_changes",
        "creation",
        lambda scene: create_node(scene, "n3", uuid_of("a3")),
        rows("node a3", "guest a3 *", "device a3 *", "history alpha n3 create 1"),
        is_audit=True,
    ),
    Write(
        "apply_changes",
        "deletion",
        lambda scene: scene.apply(delete(scene.record("a2"))),
        rows(
            *("node a2", "guest a2 *", "device a2 *", "history alpha n2 delete 1"),
            *("claim stray a2", "claim astray a2", "claim moved a2", "removal a2"),
        ),
    ),
    Write(
        "sync_warnings",
        "one kept, one resolved, one raised again",
        lambda scene: scene.store.sync_warnings(scene.agents["alpha"], [CPU, PAST]),
        {
            "warning alpha clock_skew": {"resolved_at"},
            "warning alpha fact_held n2 cpu": {"earlier", "first_seen", "last_seen", "resolved_at"},
        }
        | rows("history alpha  warning resolved *", "history alpha n2 warning raised *"),
    ),
    Write(
        "raise_warning",
        "again",
        lambda scene: scene.store.raise_warning("alpha", CUT_OFF),
        {"warning alpha agent_unreachable": {"count", "last_seen"}},
    ),
    Write(
        "create_call",
        "one",
        lambda scene: scene.store.create_call("gamma", "reboot", {}, "api:c", timedelta(hours=1)),
        {"service gamma compute": {"calls"}} | rows("call gamma", "call expired"),
    ),
    Write(
        "take_news",
        "own",
        lambda scene: scene.store.take_news(scene.agents["alpha"]),
        {"call alpha": {"taken_at"}},
    ),
    Write(
        "answer_call",
        "own",
        lambda scene: scene.store.answer_call("alpha", scene.call_id, {"value": 1.0}),
        {"call alpha": {"answer", "answered_at"}},
    ),
    Write(
        "resolve_warnings",
        "of one kind",
        lambda scene: scene.store.resolve_warnings(WarningKind.AGENT_UNREACHABLE),
        {"warning * agent_unreachable": {"resolved_at"}} | rows("history *  warning resolved *"),
    ),
    Write(
        "silence_warning",
        "one",
        lambda scene: scene.store.silence_warning(warning_id(scene), "known", 60, "amy"),
        {"warning alpha agent_unreachable": {"silenced_until", "silenced_reason", "silenced_by"}}
        | rows("history alpha  warning silenced *"),
    ),
    Write(
        "create_claim",
        "of a guest",
        claim("queue a2", "a2"),
        rows("claim queue a2", "node a2", "guest a2 queue", "device a2 *")
        | rows("history alpha n2 claim created *"),
    ),
    Write(
        "create_claim",
        "without a guest",
        claim("fresh b2", "b2"),
        rows("claim fresh b2", "node b2", "device b2 *") | rows("history beta n2 claim created *"),
    ),
    Write(
        "create_claims",
        "without a guest",
        lambda scene: scene.store.create_claims(
            [PlacedRequest(ask("fresh b2"), "beta", "n2")], POLICY
        ),
        rows("claim fresh b2", "node b2", "device b2 *") | rows("history beta n2 claim created *"),
    ),
    Write(
        "try_claim",
        "of a guest",
        lambda scene: scene.store.try_claim(ask("queue a2"), "alpha", "n2", POLICY),
        {},
    ),
    Write(
        "confirm_claim",
        "held",
        of_claim("confirm_claim", "new a1"),
        rows("claim new a1", "node a1", "device a1 *") | rows("history alpha n1 claim confirmed *"),
    ),
    Write(
        "renew_claim",
        "held",
        lambda scene: scene.store.renew_claim(uuid_of("new a1"), POLICY),
        {"claim new a1": {"expires_at", "updated_at"}, "node a1": GENERATION},
    ),
    Write(
        "abort_claim",
        "of a guest with claims elsewhere",
        of_claim("abort_claim", "web b2"),
        rows("claim web b2", "node b2", "guest b2 web", "device b2 *")
        | rows("history beta n2 claim released *"),
    ),
    Write(
        "abort_claim",
        "of a guest and a device that are missing",
        of_claim("abort_claim", "lost a1"),
        rows("claim lost a1", "node a1", "guest a1 lost", "device a1 *")
        | rows("history alpha n1 claim released *"),
    ),
    Write(
        "abort_claim",
        "destination of a move",
        of_claim("abort_claim", "web b1"),
        {"node a1": GENERATION}
        | rows("claim web b1", "node b1", "guest b1 web", "device b1 *", "move of web")
        | rows("history beta n1 claim released *", "history alpha n1 move cancelled *"),
    ),
    Write(
        "create_migration",
        "to another host",
        lambda scene: scene.claim(ask_move("queue a2", "queue b1"), "a2"),
        {"node b1": GENERATION}
        | rows("claim queue a2", "move of queue", "node a2", "guest a2 queue", "device a2 *")
        | rows("history alpha n2 claim created *", "history beta n1 move started *"),
    ),
    Write(
        "confirm_migration",
        "between two hosts",
        of_claim("confirm_migration", "move of web"),
        rows(
            *("move of web", "claim web a1", "claim web b1", "node a1", "node b1"),
            *("guest a1 web", "device a1 *"),
        )
        | rows("history * claim *", "history alpha n1 move confirmed *"),
    ),
    Write(
        "revert_migration",
        "between two hosts",
        of_claim("revert_migration", "move of web"),
        {"node a1": GENERATION}
        | rows("move of web", "claim web b1", "node b1", "guest b1 web", "device b1 *")
        | rows("history beta n1 claim released *", "history alpha n1 move reverted *"),
    ),
    Write(
        "set_migration_status",
        "between two hosts",
        lambda scene: scene.store.set_migration_status(
            uuid_of("move of web"), MigrationStatus.MIGRATING
        ),
        {
            "move of web": {"status", "updated_at"},
            "node a1": GENERATION,
            "node b1": GENERATION,
        }
        | rows("history alpha n1 move migrating *"),
    ),
    Write(
        "purge",
        "of the past",
        lambda scene: scene.store.purge(scene.cut),
        {"node *": GENERATION} | PAST_CLAIMS | rows("history *", "warning * fact_held n2 cpu"),
    ),
    Write(
        "purge",
        "of everything that has ended",
        lambda scene: scene.store.purge(scene.store.now() + timedelta(seconds=1)),
        {"node *": GENERATION}
        | PAST_CLAIMS
        | rows("claim passed *", "history *", "warning * fact_held n2 *", "removal gone alpha"),
    ),
    Write(
        "sample_trends",
        "of all nodes",
        lambda scene: scene.store.sample_trends(),
        rows("trend 3600 fleet", "trend 3600 nodes"),
    ),
    Write(
        "adopt_uuid",
        "of one node",
        lambda scene: scene.store.adopt_uuid("alpha", "n1", node_uuid("a1"), uuid_of("new a1")),
        rows("node *", "* a1 *", "claim *", "history alpha n1 update *"),
    ),
    Write(
        "accept_node",
        "of one node",
        lambda scene: scene.store.accept_node("alpha", "n1"),
        {"node a1": {"updated_at"} | GENERATION} | rows("history alpha n1 update *"),
    ),
    Write(
        "take_provider_removals",
        "of one host",
        lambda scene: scene.store.take_provider_removals(RemovalQuery(host="alpha")),
        {"removal gone alpha": {"attempts", "lease_until"}},
    ),
    Write(
        "fail_provider_removal",
        "of one provider",
        lambda scene: scene.store.fail_provider_removal(uuid_of("gone beta"), "in use", 60.0),
        {"removal gone beta": {"error", "lease_until"}},
    ),
    Write(
        "finish_provider_removal",
        "of one provider",
        lambda scene: scene.store.finish_provider_removal(uuid_of("gone beta")),
        rows("removal gone beta"),
    ),
]

HOUR = timedelta(hours=1)


def join(store: Any, host: str, token: str, secret: str) -> None:
    store.join_agent(hash_secret(token), host, f"agent of {host}", hash_secret(secret), "")


def report_for_news(scene: Any) -> None:
    agent = scene.agents["alpha"]
    heartbeat = {"agent": agent, "report_count": 2, "state": AuditState(1.0)}
    scene.store.find_credential(hash_secret("secret of alpha"), "")
    scene.store.report_for_news(hash_secret("secret of alpha"), lambda found: heartbeat)


ACCESS = [
    Write(
        "create_join_token",
        "beside an expired one",
        lambda scene: scene.store.create_join_token(hash_secret("t"), None, 1, HOUR, "another"),
        rows("token another", "token expired"),
    ),
    Write(
        "join_agent",
        "of a new host",
        lambda scene: join(scene.store, "delta", "token of any", "secret of delta"),
        {"token any": {"uses"}} | rows("credential delta"),
    ),
    Write(
        "join_agent",
        "again",
        lambda scene: join(scene.store, "alpha", "token of alpha", "another secret"),
        {"token alpha": {"uses"}, "credential alpha": {"secret_hash", "issued_at"}},
    ),
    Write(
        "renew_credential",
        "of one host",
        lambda scene: scene.store.renew_credential("alpha", hash_secret("next of alpha")),
        {"credential alpha": {"next_hash"}},
    ),
    Write(
        "find_credential",
        "at its first use",
        lambda scene: scene.store.find_credential(hash_secret("secret of alpha"), "192.0.2.1"),
        {"credential alpha": {"used_at", "address"}},
    ),
    Write(
        "find_credential",
        "that replaces another",
        lambda scene: scene.store.find_credential(hash_secret("next of beta"), ""),
        {"credential beta": {"secret_hash", "next_hash", "previous_hash", "used_at", "issued_at"}},
    ),
    Write(
        "revoke_credential",
        "of one host",
        lambda scene: scene.store.revoke_credential("alpha"),
        rows("credential alpha", "service alpha compute", "history alpha *"),
    ),
    Write(
        "report_for_news",
        "of one host",
        report_for_news,
        {"call alpha": {"taken_at"}, "credential alpha": {"used_at"}}
        | rows("service alpha compute"),
    ),
]
"""Writes that are no methods of `Store`, by which hosts get credentials and calls."""

_scenes: dict[str, tuple[Scene, Any]] = {}


@pytest.fixture
def opened(stores: StoreMaker) -> Iterator[Rows]:
    found = Rows(stores.url, NAMES)
    yield found
    found.close()


def give_access(url: str) -> int:
    """Create calls, join tokens and credentials of two hosts; return the id of alpha's call."""
    store = open_sharing(url)
    alpha, _ = (
        store.create_call(host, "host_power_action", {}, "api:c", HOUR)
        for host in ("alpha", "beta")
    )
    store.create_join_token(hash_secret("token of any"), None, 5, HOUR, "any")
    for host in ("alpha", "beta"):
        store.create_join_token(hash_secret(f"token of {host}"), host, 5, HOUR, host)
        join(store, host, f"token of {host}", f"secret of {host}")
        store.renew_credential(host, hash_secret(f"next of {host}"))
    expired = {"created_at": store.now() - HOUR, "expires_at": store.now(), "sender": "api:c"}
    with store.engine.begin() as connection:
        connection.execute(
            sa.insert(tables.host_calls).values(
                host="expired", method="reboot", arguments={}, **expired
            )
        )
        connection.execute(
            sa.update(tables.agent_credentials)
            .values(next_hash=None)
            .where(tables.agent_credentials.c.host == "alpha")
        )
    store.create_join_token(hash_secret("token of expired"), None, 5, -HOUR, "expired")
    store.close()
    return alpha


@pytest.fixture
def scene(stores: StoreMaker, opened: Rows) -> Scene:
    """The scene in one of the stores; it is built once for each and then restored."""
    store = stores.open()
    if stores.backend not in _scenes:
        if stores.backend == "postgresql":
            opened.number_nodes_from(PART_NODES - 2)
        built = build(store)
        built.call_id = give_access(stores.url)
        saved = opened.save()
        for row in saved[tables.compute_nodes]:
            row["created_at"] -= timedelta(hours=1)  # this hour is sampled
        _scenes[stores.backend] = built, saved
    built, saved = _scenes[stores.backend]
    opened.restore(saved)
    return dataclasses.replace(built, store=store)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.id)
def test_a_write_touches_nothing_but_its_own_rows(scene: Scene, opened: Rows, write: Write) -> None:
    before = opened.dump()
    write.call(scene)
    delta = compare(before, opened.dump())
    assert list_untouched(write.touched, delta) == []
    assert list_unexpected(write.touched, delta) == []
    rendered = re.sub('"until": "[^"]+"', '"until": "TIME"', render(delta))  # it counts from now
    check_golden(f"writes/{write.id}.txt", rendered)
    for host in () if write.is_audit else ("alpha", "beta", "gamma", "omega"):
        check_usage(scene.store, host)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.id)
def test_a_write_that_changes_the_versions_of_a_host_changes_their_sums(
    scene: Scene, write: Write
) -> None:
    services = scene.store.list_services(binary=COMPUTE_BINARY)
    hosts = [service.host for service in services]
    before = {host: read_versions(scene.store, host) for host in hosts}
    write.call(scene)
    left = {service.host for service in scene.store.list_services(binary=COMPUTE_BINARY)}
    for host in left.intersection(hosts):
        versions, sums = read_versions(scene.store, host)
        assert (sums != before[host][1]) is (versions != before[host][0])


def read_versions(store: Any, host: str) -> tuple[Mapping[str, NodeVersion], VersionSums]:
    versions = store.load_versions(host, COMPUTE_BINARY).by_nodename
    sums = store.sum_versions(host, COMPUTE_BINARY).sums
    assert sums == VersionSums.of(versions.values())
    return versions, sums


@pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
@pytest.mark.parametrize("write", ACCESS, ids=lambda write: write.id)
def test_access_of_one_host_touches_nothing_of_another(
    scene: Scene, opened: Rows, write: Write
) -> None:
    before = opened.dump()
    write.call(scene)
    delta = compare(before, opened.dump())
    assert (list_untouched(write.touched, delta), list_unexpected(write.touched, delta)) == ([], [])


def list_untouched(touched: Touched, delta: Delta) -> list[str]:
    """Return the patterns that no row meets."""
    return [p for p in touched if not any(fnmatchcase(label, p) for label in delta)]


def list_unexpected(touched: Touched, delta: Delta) -> list[str]:
    """Return the rows that no pattern includes, and those with other columns."""
    return [
        f"{label}: {sorted(row)}"
        for label, row in delta.items()
        if not any(
            fnmatchcase(label, pattern) and columns in (None, row.keys())
            for pattern, columns in touched.items()
        )
    ]


def test_every_write_of_a_store_is_among_these() -> None:
    methods = {name for name in dir(Store) if not name.startswith(("_", *READS))}
    assert methods - {"rehearse"} == {write.method for write in WRITES}, "it writes nothing"
    ports = (CredentialStore, CallStore)
    methods = {name for port in ports for name in dir(port) if not name.startswith(("_", *READS))}
    covered = {write.method for write in (*WRITES, *ACCESS)}
    assert methods - covered == set()


class TestReads:
    """What is read of one host or node is nothing of another."""

    @pytest.mark.parametrize("host", ["alpha", "beta", "gamma"])
    def test_of_one_host(self, scene: Scene, host: str) -> None:
        store = scene.store
        for read in (store.list_services, store.list_nodes, store.list_claims, store.list_warnings):
            every: list[Any] = read()  # type: ignore[operator]
            assert read(host) == [found for found in every if found.host == host] != []  # type: ignore[operator]
        moves = store.list_migrations()
        assert store.list_migrations(host) == [
            move for move in moves if host in (move.source_host, move.dest_host)
        ]
        assert {entry.host for entry in read_history(store, host)} == {host}
        assert {entry.nodename for entry in read_history(store, host, "n1")} == {"n1"}
        records = store.load_nodes(host)
        assert store.sum_versions(host, COMPUTE_BINARY).sums == VersionSums.of(records)
        versions = store.load_versions(host, COMPUTE_BINARY)
        assert {name: item.id for name, item in versions.by_nodename.items()} == {
            record.nodename: record.id for record in records
        }
        assert versions.service_uuid == scene.service(host).uuid

    def test_of_one_node(self, scene: Scene) -> None:
        active = [claim for claim in scene.store.list_claims() if claim.is_active]
        for label in PLACES:
            record = scene.record(label)
            (found,) = scene.store.load_ledger_nodes([record.id])
            service = scene.service(record.host)
            assert found.service == availability_of(service)
            mine = [claim for claim in active if claim.node_id == record.id]
            assert list(found.claims) == mine
            assert {uuid: c for uuid, c in record.claims.items() if c.is_active} == {
                claim.uuid: claim for claim in mine
            }
            assert found.devices == record.devices
            assert {guest.details["node"] for guest in record.guests.values()} == {label}
            assert found.unclaimed == {
                uuid: guest for uuid, guest in record.guests.items() if guest.claim_uuid is None
            }
            assert {NAMES[move.migration.uuid] for move in record.moves} == MOVES.get(label, set())


MOVES = {
    "a1": {"move of web", "move of db"},
    "b1": {"move of web", "move of db"},
    "a2": {"move of stray"},
    "b2": {"move of stray", "move of astray"},
}
"""Label of a node -> open migrations of its active and expired claims."""
