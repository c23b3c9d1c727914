import dataclasses

import pytest

from nodetracker.accounting.audit.view import account
from nodetracker.model.fact import failed, fresh
from nodetracker.model.guest import CpuAffinity, GuestPins, ResourceKind, UnresolvedUse
from nodetracker.model.host import Filesystem, Gpu, StorageInfo
from nodetracker.model.node import NodeListing
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool, ReservedPages
from nodetracker.model.service import API_BINARY
from nodetracker.model.settings import Policy
from nodetracker.views.readiness import (
    Barrier,
    Finding,
    Level,
    Verdict,
    evaluate_agents,
    evaluate_barrier,
    evaluate_conductors,
    evaluate_cpu_sets,
    evaluate_free_amounts,
    evaluate_host_name,
    evaluate_listing,
    evaluate_liveness,
    evaluate_names,
    evaluate_old_claims,
    evaluate_reserved,
    evaluate_services,
    evaluate_spares,
    evaluate_unresolved,
    failures,
)
from tests.builders import (
    NOW,
    later,
    make_guest,
    make_incarnation,
    make_record,
    make_service,
    make_snapshot,
    make_values,
)

AGENT = make_incarnation().agent_id

CELL = NumaCell(
    0,
    frozenset(range(16)),
    65536,
    pages=(PagePool(4, 1000), PagePool(2048, 512, reserved=12)),
)
NUMA = fresh("test", NumaTopology((CELL,)))


def level_and_details(verdict):
    return verdict.level, verdict.details


def cpus(*ids):
    return frozenset(ids)


@pytest.mark.parametrize(
    ("days", "level"), [(None, Level.SUCCESS), (89, Level.SUCCESS), (91, Level.WARNING)]
)
def test_claims_that_nothing_deletes_are_named_after_90_days(days, level):
    verdict = evaluate_old_claims(None if days is None else later(-86400 * days), NOW)
    assert verdict.level is level
    assert level is Level.SUCCESS or "released_claims_days" in verdict.details


@pytest.mark.parametrize(
    ("policy", "level", "text"),
    [
        (Policy(), Level.SUCCESS, None),
        (Policy(reserved_memory_mb=65535), Level.SUCCESS, None),
        (
            Policy(reserved_memory_mb=65536),
            Level.WARNING,
            "node node-1: reserved_host_memory_mb: 64 GiB reserves all 64 GiB of memory; "
            "nothing is left for guests",
        ),
        (
            Policy(reserved_memory_mb=65537),
            Level.FAILURE,
            "node node-1: reserved_host_memory_mb: 65,537 MiB exceeds the 64 GiB of memory",
        ),
        (
            Policy(reserved_disk_mb=512001),
            Level.FAILURE,
            "node node-1: reserved_host_disk_mb: 512,001 MiB exceeds the 500 GiB of disk at /srv",
        ),
        (
            Policy(reserved_cpus=16),
            Level.WARNING,
            "node node-1: reserved_host_cpus: 16 reserves all 16 CPUs that guests share; "
            "nothing is left for guests",
        ),
        (
            Policy(reserved_cpus=3, cpu_shared_set=cpus(0, 1, 99)),
            Level.FAILURE,
            "node node-1: reserved_host_cpus: 3 exceeds the 2 CPUs that guests share",
        ),
        (Policy(reserved_cpus=0, cpu_dedicated_set=cpus(0)), Level.SUCCESS, None),
        (Policy(reserved_pages=(ReservedPages(0, 2048, 499),)), Level.SUCCESS, None),
        (
            Policy(reserved_pages=(ReservedPages(0, 2048, 500),)),
            Level.WARNING,
            "node node-1: reserved_huge_pages: 500 reserves all 500 pages of 2048 KiB in cell 0; "
            "nothing is left for guests",
        ),
        (
            Policy(reserved_pages=(ReservedPages(0, 2048, 300), ReservedPages(0, 2048, 201))),
            Level.FAILURE,
            "node node-1: reserved_huge_pages: 501 exceeds the 500 pages of 2048 KiB in cell 0",
        ),
        (
            Policy(reserved_pages=(ReservedPages(0, 1048576, 1),)),
            Level.FAILURE,
            "node node-1: reserved_huge_pages: cell 0 has no pages of 1048576 KiB",
        ),
        (
            Policy(reserved_pages=(ReservedPages(7, 2048, 1),)),
            Level.FAILURE,
            "node node-1: reserved_huge_pages: NUMA cell 7 does not exist",
        ),
        (
            Policy(reserved_cpus=16, reserved_memory_mb=70000),
            Level.FAILURE,
            "node node-1: reserved_host_memory_mb: 70,000 MiB exceeds the 64 GiB of memory; "
            "node node-1: reserved_host_cpus: 16 reserves all 16 CPUs that guests share; "
            "nothing is left for guests",
        ),
    ],
    ids=[
        "the defaults",
        "nearly all memory",
        "all memory",
        "more memory",
        "more disk",
        "all CPUs",
        "more CPUs than are shared and online",
        "no CPU is shared and none reserved",
        "nearly all pages that are not the host's own",
        "all those pages",
        "two entries of one pool add up",
        "no such size",
        "no such cell",
        "several, the worst first",
    ],
)
def test_reserved_is_compared_with_what_the_row_would_show(policy, level, text):
    assert level_and_details(evaluate_reserved([make_snapshot(numa=NUMA)], policy)) == (level, text)


def test_reserved_disk_is_compared_with_whole_gib():
    storage = fresh("test", StorageInfo(Filesystem("/srv", 2047, 0, 2047)))
    verdict = evaluate_reserved([make_snapshot(storage=storage)], Policy(reserved_disk_mb=1025))
    assert "1,025 MiB exceeds the 1 GiB of disk" in (verdict.details or "")


def test_every_node_is_evaluated():
    verdict = evaluate_reserved(
        [make_snapshot("a"), make_snapshot("b")], Policy(reserved_memory_mb=65537)
    )
    assert [finding.text.split(":")[0] for finding in verdict.findings] == ["node a", "node b"]


@pytest.mark.parametrize(
    ("fact", "policy"),
    [
        ("memory", Policy(reserved_memory_mb=1)),
        ("storage", Policy(reserved_disk_mb=1)),
        ("cpu", Policy(reserved_cpus=1)),
        ("numa", Policy(reserved_pages=(ReservedPages(0, 4, 1),))),
    ],
)
def test_a_failed_fact_is_a_warning_where_it_is_needed(fact, policy):
    snapshot = make_snapshot(**{fact: failed("/sys/x", "boom")})
    verdict = evaluate_reserved([snapshot], policy)
    assert verdict.level is Level.WARNING
    assert verdict.details is not None
    assert verdict.details.endswith("could not be read (/sys/x: boom)")
    assert evaluate_reserved([snapshot], Policy(reserved_memory_mb=0)) == Verdict()


@pytest.mark.parametrize(
    ("policy", "level", "text"),
    [
        (Policy(), Level.SUCCESS, None),
        (Policy(cpu_shared_set=cpus(0, 15)), Level.SUCCESS, None),
        (
            Policy(cpu_shared_set=cpus(15, 16, 17)),
            Level.WARNING,
            "node node-1: cpu_shared_set: 16-17 is offline and ignored",
        ),
        (
            Policy(cpu_dedicated_set=cpus(16, 17)),
            Level.FAILURE,
            "node node-1: cpu_dedicated_set: none of 16-17 is online",
        ),
        (
            Policy(cpu_shared_set=cpus(0, 20), cpu_dedicated_set=cpus(16)),
            Level.FAILURE,
            "node node-1: cpu_dedicated_set: none of 16 is online; "
            "node node-1: cpu_shared_set: 20 is offline and ignored",
        ),
    ],
    ids=["none configured", "all online", "some offline", "none online", "both"],
)
def test_cpu_sets_are_compared_with_the_online_cpus(policy, level, text):
    assert level_and_details(evaluate_cpu_sets([make_snapshot()], policy)) == (level, text)


def test_a_failed_cpu_fact_is_a_warning_only_with_configured_cpu_sets():
    snapshot = make_snapshot(cpu=failed("/sys", "boom"))
    assert evaluate_cpu_sets([snapshot], Policy()) == Verdict()
    assert evaluate_cpu_sets([snapshot], Policy(cpu_shared_set=cpus(0))).level is Level.WARNING


def test_nodes_with_fewer_pcpus_by_sets_that_guests_name_are_listed():
    """Until the row has been audited."""
    policy = Policy(cpu_shared_set=cpus(0, 1), cpu_dedicated_set=cpus(2, 3))
    pins = GuestPins(affinities=(CpuAffinity(cpus(2, 3), 1000),))
    topology = NumaTopology((NumaCell(0, cpus(0, 1, 2, 3), 4096),))
    snapshot = make_snapshot("node-1", make_guest(pins=pins), numa=fresh("t", topology))
    row = make_record(make_values(pcpus=2, pcpus_used=0), updated_at=NOW)
    text = "node node-1: 0 PCPU are free instead of 2, as guests name CPUs of cpu_dedicated_set: "
    found = evaluate_cpu_sets([snapshot], policy, [row])
    assert level_and_details(found) == (Level.WARNING, text + make_guest().name)
    audited = make_record(account(snapshot, row, policy, NOW).values, updated_at=NOW)
    assert evaluate_cpu_sets([snapshot], policy, [audited]) == Verdict()


def test_another_host_of_this_agent_is_a_failure_that_names_the_command():
    others = [
        make_service(),
        make_service(host="elsewhere", incarnation=make_incarnation(agent_id="another")),
        make_service(host="old", binary="nodetracker-api"),
    ]
    assert evaluate_host_name("host-1", AGENT, others) == Verdict()
    verdict = evaluate_host_name("new", AGENT, others)
    assert verdict.level is Level.FAILURE
    assert verdict.details is not None
    assert verdict.details.endswith("run nodetracker-manage host rename host-1 new")


@pytest.mark.parametrize(("down_time", "level"), [(30, Level.SUCCESS), (29, Level.FAILURE)])
def test_a_host_may_miss_two_heartbeats(down_time, level):
    assert evaluate_liveness(down_time, 10).level is level


@pytest.mark.parametrize(
    ("listing", "level"),
    [
        (NodeListing(("a",)), Level.SUCCESS),
        (NodeListing(("a",), ("qemu:///b",)), Level.WARNING),
        (NodeListing(()), Level.WARNING),
    ],
    ids=["complete", "a source does not answer", "no node"],
)
def test_every_node_should_be_listed(listing, level):
    assert evaluate_listing(listing).level is level


def test_services_of_earlier_schemas_are_named():
    def service(host, revision):
        audit = {} if revision is None else {"schema_revision": revision}
        return make_service(host=host, last_audit=audit)

    services = [service("h1", "0012"), service("h2", "0013"), service("h3", None)]
    assert evaluate_services(services[:2], "0012") == Verdict()
    level, details = level_and_details(evaluate_services(services, "0012"))
    assert level is Level.WARNING
    assert details.startswith("nodetracker-compute on host h3: of a version that does not report")
    level, details = level_and_details(evaluate_services(services, "0013"))
    assert level is Level.FAILURE
    assert details.startswith("nodetracker-compute on host h1: written for a schema before")
    assert "h3" in details
    assert "h2" not in details


def test_agents_that_call_conductors_over_the_broker_are_named():
    services = [
        make_service(host="h1", last_audit={"by_conductor": True}),
        make_service(host="h2", last_audit={"by_conductor": True}),
        make_service(host="h3", last_audit={}),
    ]
    assert evaluate_agents(services, ["h1", "h2"]) == Verdict()
    level, details = level_and_details(evaluate_agents(services, ["h1"]))
    assert level is Level.WARNING
    assert details.startswith("nodetracker-compute on host h2: calls conductors over the broker")


def test_rest_services_that_place_claims_on_spare_hosts_are_named():
    def api(host, revision):
        return make_service(host=host, binary=API_BINARY, last_audit={"schema_revision": revision})

    apis = [api("c1", "0027"), api("c2", None), api("c3", "0028")]
    spare = make_service(host="h1", spare=True)
    assert evaluate_spares([*apis, make_service()]) == Verdict()
    assert evaluate_spares([spare, apis[-1]]) == Verdict()
    level, details = level_and_details(evaluate_spares([spare, *apis]))
    assert level is Level.WARNING
    assert details == (
        "nodetracker-api on host c1, nodetracker-api on host c2: places claims on spare hosts (h1) "
        "as on others; upgrade it"
    )


def test_hosts_whose_names_can_be_taken_for_each_other_are_named():
    assert evaluate_names(["h1", "h1", "h2"]) == Verdict()
    level, details = level_and_details(evaluate_names(["h2", "h1", "H1", "h1.", "h1"]))
    assert level is Level.WARNING
    assert details.startswith("H1, h1, h1.: names of hosts that can be taken for each other")


def test_any_difference_of_the_schema_is_a_failure():
    assert failures([]) == Verdict()
    assert failures(["a", "b"]) == Verdict(
        (Finding(Level.FAILURE, "a"), Finding(Level.FAILURE, "b"))
    )


@pytest.mark.parametrize(
    ("directory", "reason"),
    [("/root", "that user may not enter /root"), (None, "Permission denied")],
    ids=["a closed directory", "something else"],
)
def test_a_python_that_the_service_cannot_run_is_a_failure_with_what_to_do(directory, reason):
    barrier = Barrier("nodetracker", "/opt/bin/python", directory, "Permission denied")
    level, details = level_and_details(evaluate_barrier(barrier))
    assert level is Level.FAILURE
    assert details.startswith(f"user nodetracker cannot run /opt/bin/python: {reason}; install ")
    assert "/usr/bin/python3 -m venv --clear /opt/nodetracker" in details
    assert level_and_details(evaluate_barrier(None)) == (Level.SUCCESS, None)


class TestConductors:
    @pytest.mark.parametrize(
        ("problems", "level"),
        [
            ({"https://a": None, "https://b": None}, Level.SUCCESS),
            ({"https://a": None, "https://b": "timed out"}, Level.WARNING),
            ({"https://a": "timed out", "https://b": "timed out"}, Level.FAILURE),
        ],
        ids=["all", "some", "none"],
    )
    @pytest.mark.parametrize("is_joined", [True, False])
    def test_one_that_answers_is_enough(self, problems, level, is_joined):
        found, details = level_and_details(evaluate_conductors(problems, is_joined, []))
        assert found == level
        assert ("not joined yet" in (details or "")) is not is_joined
        assert ("https://b: timed out" in (details or "")) is (level != Level.SUCCESS)

    def test_what_the_agent_lacks_is_a_failure(self):
        verdict = evaluate_conductors({"https://a": None}, False, ["there is no join token"])
        expected = "there is no join token; not joined yet; the agent joins at its first start"
        assert level_and_details(verdict) == (Level.FAILURE, expected)


def test_what_the_new_agent_would_withhold_is_listed():
    use = UnresolvedUse(ResourceKind.GPU, "0", "pynvml is not installed", "NVIDIA")
    guest = make_guest(1, name="train", pins=GuestPins(unresolved=(use,)))
    gpus = fresh("sysfs", (Gpu("0000:c0:00.0", "NVIDIA", "10de:20b2"),))
    assert level_and_details(
        evaluate_unresolved([make_snapshot("n", guest, gpus=gpus)], Policy())
    ) == (
        Level.WARNING,
        "node n: guest train uses GPU '0' (pynvml is not installed); 1 NVIDIA GPU is withheld from "
        "claims until it is known",
    )
    assert evaluate_unresolved([make_snapshot("n", guest)], Policy()) == Verdict()


def test_nodes_that_will_offer_less_memory_are_listed_with_why():
    pages = [{"size_kb": 1024, "total": 48 * 1024, "used": 8 * 1024, "reserved": 0}]
    cell = {"id": 0, "cpuset": [0], "pcpuset": [], "memory": 65536, "siblings": []}
    values = make_values(
        memory_mb=65536,
        ram_allocation_ratio=1.0,
        reserved={"memory_mb": 512},
        memory_mb_used=512 + 8192 + 4096,
        numa_topology={"cells": [cell | {"mempages": pages}]},
    )
    plain = dataclasses.replace(values, numa_topology={})
    assert level_and_details(evaluate_free_amounts([("n1", values), ("n2", plain)])) == (
        Level.WARNING,
        "node n1: 11.5 GiB instead of 51.5 GiB of memory are free for claims without a page size: "
        "48 GiB are huge pages, of which 8 GiB are used",
    )
    beyond = dataclasses.replace(values, memory_mb_used=50000)
    details = evaluate_free_amounts([("n1", beyond)]).details
    assert details.endswith("are used; its claims stay, and others are refused")
