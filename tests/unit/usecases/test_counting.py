"""How many more of these fit: compared with claims until the ledger refuses."""

import itertools
import random
from dataclasses import replace
from uuid import UUID

import pytest

from nodetracker.accounting.ledger.request import build_candidate_request
from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.model.amounts import Amounts
from nodetracker.model.candidate import CandidateOrder
from nodetracker.model.errors import ClaimRefusedError, RequestError
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from nodetracker.model.settings import CandidatePolicy
from nodetracker.usecases import candidates
from nodetracker.usecases.candidates import CandidateFinder, count_by_amounts
from tests.builders import ask, create, make_empty_values, make_guest, register
from tests.packing_fleets import POLICY, draw_node, draw_request
from tests.statements import count_statements
from tests.stores import SqliteStore

_numbers = itertools.count(10_000)


def add_node(store, host, values=None, devices=(), guests=()):
    agent = register(store, host, f"agent-of-{host}")
    store.report_state(agent, 1, AuditState())
    values = make_empty_values() if values is None else values
    charge = sum((charge_of_guest(guest, 0) for guest in guests), Amounts())
    used = usage_columns(charge, values.reserved, values.memory_mb, values.local_gb)
    change = create(agent, "n", replace(values, **used), tuple(guests), tuple(devices))
    store.apply_changes(agent, [change], 60)


def count(store, request, **options):
    """Return host -> count of the nodes where any fits, and the whole answer."""
    found = CandidateFinder(store, POLICY, **options).count(request)
    hosts = {node.id: node.host for node in store.list_nodes()}
    return {hosts[node_id]: fit for node_id, fit in found.by_node.items() if fit}, found


def claim_until_refused(store, request):
    """Return host -> number of claims alike that each node grants."""
    granted = {}
    for node in store.list_nodes():
        for number in _numbers:
            uuid = str(UUID(int=number, version=4))
            alike = replace(request, uuid=uuid, workload=replace(request.workload, uuid=uuid))
            try:
                store.create_claim(alike, node.host, node.nodename, POLICY)
            except ClaimRefusedError:
                break
            granted[node.host] = granted.get(node.host, 0) + 1
    return granted


def draw_amounts(source):
    """Draw a request whose amounts alone decide, of an instance or a container."""
    kind = source.choice(["instance", "container"])
    memory = source.choice([192, 256, 700, 1024])
    body = {"VCPU": source.randint(0, 2), "MEMORY_MB": memory, "DISK_GB": source.randint(0, 3)}
    return ask(kind=kind, **body)


@pytest.mark.parametrize("seed", range(30))
def test_as_many_fit_as_are_granted(seed):
    source = random.Random(seed)
    store = SqliteStore()
    for number in range(source.randint(1, 4)):
        values, devices = draw_node(source)
        values = replace(
            values,
            overhead={"memory_mb": source.choice([0, 0, 7])},
            reserved={"memory_mb": source.choice([0, 300])},
            cpu_allocation_ratio=source.choice([1.0, 1.5]),
            inventory={"CUSTOM_FPGA": {"total": 3}},
        )
        add_node(store, f"h{number}", values, devices)
    own, amounts = draw_request(source, 1), draw_amounts(source)
    fpga = ask(MEMORY_MB=64, CUSTOM_FPGA=1)
    limited = ask(VCPU=1, MEMORY_MB=256, limits={"VCPU": 7})
    for request in source.sample([own, amounts, fpga, limited], 4):
        expected, found = count(store, request)
        granted = claim_until_refused(store, request)
        assert (expected, found.is_at_least) == (granted, False), request
        assert count(store, request)[0] == {}


def test_amounts_alone_are_divided_whatever_the_size_of_the_fleet():
    store = SqliteStore()
    for number in range(12):
        add_node(store, f"h{number}")
    request = build_candidate_request({"VCPU": 2, "MEMORY_MB": 2048}, [], {"required": []})
    with count_statements(store) as statements:
        counts = CandidateFinder(store, POLICY).count(request).by_node
    assert list(counts.values()) == [4] * 12
    assert len(statements) <= 3


def test_what_is_not_known_by_amounts_is_left_to_the_rule():
    store = SqliteStore()
    add_node(store, "h1", make_empty_values(tracks_resources=False))
    add_node(store, "h2")
    policy = CandidatePolicy(60, order=CandidateOrder.NAMED)
    request = ask(VCPU=2, MEMORY_MB=64)

    def divide(request):
        found = store.find_candidates(request, policy, 10).nodes
        return {node.host: count_by_amounts(request, node) for node in found}

    assert divide(request) == {"h1": None, "h2": 4}
    assert divide(ask(VCPU=2, MEMORY_MB=64, limits={"VCPU": 99}))["h2"] is None
    assert divide(ask(VCPU=2, MEMORY_MB=64, numa={"nodes": 1}))["h2"] is None


def test_at_most_so_many_are_tried(monkeypatch):
    monkeypatch.setattr(candidates, "MAX_COUNTED", 30)
    store = SqliteStore()
    add_node(store, "h1", make_empty_values(tracks_resources=False))
    add_node(store, "h2")
    counts, found = count(store, ask(VCPU=2, MEMORY_MB=64))
    assert (counts, found.total, found.is_at_least) == ({"h1": 30, "h2": 4}, 34, True)


def test_it_ends_in_time_with_the_nodes_of_the_page_first(monkeypatch):
    monkeypatch.setattr(candidates, "LATER_PART", 1)
    store = SqliteStore()
    for number in range(3):
        add_node(store, f"h{number}")
    request = ask(VCPU=2, MEMORY_MB=64, limits={"DISK_GB": 9})
    clock = itertools.count()
    finder = CandidateFinder(store, POLICY, monotonic=lambda: 2.0 * next(clock))
    first = finder.select(replace(request, host="h2"))
    found = finder.count(request, first)
    assert (found.by_node, found.is_at_least) == ({first[0].id: 3}, True)


def test_each_is_of_a_workload_of_its_own():
    store = SqliteStore()
    guest = make_guest(1, vcpu_milli=2000, memory_mb=64, disk_mb=0)
    add_node(store, "h1", make_empty_values(), guests=[guest])
    request = ask(guest.uuid, VCPU=2, MEMORY_MB=64)
    store.create_claim(request, "h1", "n", POLICY)
    assert count(store, request)[0] == {"h1": 3}


def test_spare_hosts_are_left_out():
    store = SqliteStore()
    for host in ("h1", "h2"):
        add_node(store, host)
    store.set_service("h1", COMPUTE_BINARY, ServiceChange(spare=True))
    assert count(store, ask(VCPU=2, MEMORY_MB=64))[0] == {"h2": 4}
    assert count(store, ask(VCPU=2, MEMORY_MB=64, host="h1"))[0] == {"h1": 4}


def test_nothing_cannot_be_counted():
    with pytest.raises(RequestError, match="resources"):
        CandidateFinder(SqliteStore(), POLICY).count(ask())
