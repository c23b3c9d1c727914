"""A write of any store changes the rows that it is about, and no others.

Each write is made in a scene whose hosts, nodes, guests, devices, claims and
migrations share every name (`scene.py`). All rows are compared before and
after, and the changes with a file in ``tests/golden/writes``.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.trends import PART_NODES
from nodetracker.model.credential import hash_secret
from nodetracker.model.node import NodeVersion, VersionSums
from nodetracker.model.service import COMPUTE_BINARY, AuditState
from nodetracker.ports import CallStore, CredentialStore, Store
from tests.builders import availability_of, read_history
from tests.contract.dumps import Delta, Rows, compare, render
from tests.contract.scene import NAMES, PLACES, Scene, build
from tests.contract.stores import SQL_BACKENDS, StoreMaker, open_sharing
from tests.contract.writes import WRITES, Touched, Write, rows
from tests.goldens import check_golden
from tests.oracle import check_usage

READS = ("count_", "find_", "list_", "load_", "read_", "sum_", "now", "close")


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
