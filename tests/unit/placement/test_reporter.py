"""The reporter in its threads, over a model of placement."""

import logging
import threading
from dataclasses import replace

import pytest

from nodetracker.accounting.placement.tree import Inventory, PlacedConsumer, PlacedProvider
from nodetracker.model.audit import AuditReport
from nodetracker.model.claim import ClaimState, MigrationStatus
from nodetracker.model.errors import (
    PlacementNameError,
    PlacementRefusedError,
    PlacementTimeoutError,
    PlacementUnavailableError,
    StoreUnavailableError,
)
from nodetracker.model.warning import WarningKind
from nodetracker.placement.reporter import LOSS_LIFETIME_SECONDS
from tests.builders import make_guest
from tests.placement_model import NODE, STANDARD_TRAITS, make_claim, make_move, make_node, make_uuid
from tests.programs import wait_until
from tests.unit.placement.scene import Scene

OTHER = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.reporter.stop(10)


WEB = make_claim(1)
WEB_HAS = {NODE: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}}


def test_a_new_node_takes_three_requests_and_a_steady_one_none(scene) -> None:
    requests = scene.report(is_disabled=True)
    assert [method for method, subject in requests if "trait" not in subject] == [
        "GET",
        "POST",
        "PUT",
    ]
    provider = scene.model.providers[NODE]
    assert provider.name == "node-1"
    assert provider.traits == {
        "COMPUTE_NODE", "COMPUTE_STATUS_DISABLED", "CUSTOM_OWNER_NODETRACKER"
    }  # fmt: skip
    assert provider.inventories.keys() == {"VCPU", "MEMORY_MB", "DISK_GB"}
    assert scene.reserved("MEMORY_MB") == 512
    scene.generation -= 1
    assert scene.report(is_disabled=True) == []


def test_a_spare_host_has_its_trait_until_that_ends(scene) -> None:
    others = {"COMPUTE_NODE", "CUSTOM_OWNER_NODETRACKER"}
    for is_spare, own in ((True, {"CUSTOM_NODETRACKER_SPARE"}), (False, set())):
        scene.report(is_spare=is_spare)
        assert scene.model.providers[NODE].traits == others | own


def test_a_node_that_somebody_creates_meanwhile_is_reported_all_the_same(scene) -> None:
    def create(method, subject):
        if (method, subject) == ("POST", f"provider {NODE}"):
            scene.model.fail = lambda method, subject: None
            scene.model.providers[NODE] = PlacedProvider(NODE, "node-1", 5)

    scene.model.fail = create
    scene.report()
    assert scene.reserved("MEMORY_MB") == 512
    assert scene.warnings() == {}


def test_a_name_that_another_provider_has_below_the_node_is_a_warning(scene) -> None:
    def fail(method, subject):
        if (method, subject) == ("PUT", f"traits {NODE}"):  # for a card, as it were
            raise PlacementNameError("POST", "node-1_0000:81:00.0 already exists")

    scene.model.fail = fail
    scene.report()
    warning = scene.warnings()[WarningKind.PLACEMENT_REFUSED]
    assert warning.message.endswith("reported of the node: node-1_0000:81:00.0 already exists")


def test_a_claim_is_one_request_an_unclaimed_guest_too_and_a_fraction_two(scene) -> None:
    scene.report()
    assert scene.report([WEB]) == [("POST", "allocations 1")]
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    assert scene.report([WEB], [make_guest(7, vcpu_milli=4000, memory_mb=100)]) == [
        ("PUT", f"inventories {NODE}")
    ]
    assert scene.reserved("MEMORY_MB") == 612
    half = make_claim(2, vcpu_milli=500, memory_mb=64)
    assert scene.report([WEB, half], [make_guest(7, vcpu_milli=4000, memory_mb=100)]) == [
        ("PUT", f"inventories {NODE}"), ("POST", "allocations 1")
    ]  # fmt: skip
    assert scene.reserved("VCPU") == 2


def test_a_thousand_claims_take_at_most_twelve_requests(scene) -> None:
    scene.report(memory_mb=10**6)
    claims = [make_claim(n, vcpu_milli=10, memory_mb=64) for n in range(1, 1001)]
    requests = scene.report(claims, memory_mb=10**6)
    assert len(requests) <= 12
    assert len(scene.model.consumers) == 1000


def test_a_released_claim_is_removed_also_after_a_restart(scene) -> None:
    scene.report([WEB])
    assert scene.report([]) == [("POST", "allocations 1")]
    assert scene.held() == {}
    scene.report([WEB])
    scene.restart()
    scene.ledger.known = {WEB.workload.uuid}
    scene.report([])
    assert scene.held() == {}


def test_a_released_claim_that_a_row_still_has_needs_no_look_into_the_ledger(scene) -> None:
    scene.report([WEB])
    scene.restart()
    scene.ledger.error = StoreUnavailableError("not asked")
    scene.report([replace(WEB, state=ClaimState.RELEASED)])
    assert scene.held() == {}


def test_a_restart_reads_a_node_and_writes_nothing(scene) -> None:
    scene.report([WEB])
    scene.restart()
    requests = scene.report([WEB])
    assert {method for method, _ in requests} == {"GET"}
    assert len([r for r in requests if r[1] != "trait names"]) == 4


def test_a_workload_that_nobody_claims_any_more_is_leaked_after_a_grace(scene) -> None:
    scene.report([WEB])
    scene.restart()
    scene.report([])
    assert scene.warnings() == {}
    scene.wake(61)
    assert scene.warnings().keys() == {WarningKind.PLACEMENT_LEAKED}
    assert WEB.workload.uuid in scene.warnings()[WarningKind.PLACEMENT_LEAKED].message
    assert scene.reporter.status().leaked == 1
    scene.refresh()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}


def test_stored_warnings_are_kept_until_the_first_report_has_an_outcome(scene) -> None:
    scene.model.providers[OTHER] = PlacedProvider(OTHER, "node-1", 3)
    scene.report([WEB])
    stored = scene.reporter.list_warnings()
    gone = replace(stored[0], nodename="deleted")
    scene.earlier = [*stored, gone]
    scene.restart()
    scene.model.fail = _fail_all
    assert scene.reporter.list_warnings() == [*stored, gone]
    scene.audit([WEB])
    wait_until(lambda: scene.reporter.status().error is not None)
    assert scene.reporter.list_warnings() == stored
    scene.model.fail = lambda method, subject: None
    del scene.model.providers[OTHER]
    assert scene.reporter._slots.wait_idle(10)
    scene.wake(100)
    scene.settle()
    assert scene.reporter.list_warnings() == []


def test_a_leak_that_was_stored_is_one_without_another_grace(scene) -> None:
    scene.report([WEB])
    scene.restart()
    scene.report([])
    scene.wake(61)
    scene.earlier = scene.reporter.list_warnings()
    scene.restart()
    scene.report([])
    assert scene.reporter.list_warnings() == scene.earlier != []


def _fail_all(method, subject):
    raise PlacementUnavailableError(method, "no answer in time")


def test_a_leak_is_deleted_where_that_is_configured() -> None:
    scene = Scene(heals_leaks=True)
    scene.report([WEB])
    scene.restart()
    scene.report([])
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    scene.refresh()
    wait_until(lambda: scene.held() == {})
    scene.settle()
    assert scene.warnings() == {}
    assert scene.reporter.stop(10)


def test_a_consumer_of_another_type_is_never_written(scene) -> None:
    scene.report()
    scene.model.allocate(WEB.workload.uuid, {"VCPU": 1})
    scene.model.allocate(OTHER, {"VCPU": 3})
    before = dict(scene.model.consumers)
    scene.report([WEB])
    scene.report([WEB, make_claim(2)])
    scene.report([])
    assert scene.model.consumers == before
    assert scene.warnings()[WarningKind.PLACEMENT_FOREIGN].nodename == "node-1"


def test_a_scheduler_s_allocation_counts_for_its_workload_and_the_rest_is_reserved(scene) -> None:
    scene.report()
    scene.model.allocate(WEB.workload.uuid, {"VCPU": 1, "MEMORY_MB": 4096})
    scene.report([WEB])
    # 1 of 2 CPUs are allocated, and 1 of 4 times 16 is reserved; of the memory too much is.
    assert (scene.reserved("VCPU"), scene.reserved("MEMORY_MB")) == (1, 512)
    assert scene.warnings() == {}


def test_a_workload_whose_consumer_is_another_s_elsewhere_is_reserved(scene) -> None:
    scene.report()
    scene.model.providers[OTHER] = PlacedProvider(OTHER, "other", 0)
    foreign = PlacedConsumer(WEB.workload.uuid, 5, {OTHER: {"VCPU": 2}}, True, "INSTANCE", "p", "u")
    scene.model.consumers[WEB.workload.uuid] = foreign
    scene.report([WEB])
    assert scene.model.consumers == {WEB.workload.uuid: foreign}
    assert (scene.reserved("VCPU"), scene.reserved("MEMORY_MB")) == (1, 2560)
    del scene.model.consumers[WEB.workload.uuid]
    scene.refresh()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    assert scene.reserved("VCPU") == 0


def test_a_move_is_held_by_two_consumers_until_it_ends(scene) -> None:
    dest = make_claim(2, workload=1, vcpu_milli=4000, memory_mb=4096)
    move = make_move(1, WEB, dest)
    scene.report([WEB])
    scene.report([WEB, dest], moves=[move])
    new = {NODE: {"VCPU": 4, "MEMORY_MB": 4096}}
    assert scene.held() == {WEB.workload.uuid: new, move.migration.uuid: WEB_HAS}
    assert scene.model.consumers[move.migration.uuid].type == "NODETRACKER_MIGRATION"
    scene.report([replace(WEB, state=ClaimState.RELEASED), dest])
    assert scene.held() == {WEB.workload.uuid: new}
    scene.report([dest])
    scene.report([WEB, dest], moves=[make_move(2, dest, WEB, MigrationStatus.FINISHED)])
    scene.report([dest])
    assert scene.held() == {WEB.workload.uuid: new}


def test_only_this_node_s_part_of_a_consumer_is_changed(scene) -> None:
    """The other end of a move belongs to another agent."""
    scene.report()
    elsewhere = {"VCPU": 2}
    inventories = {"VCPU": Inventory(8, max_unit=8)}
    scene.model.providers[OTHER] = PlacedProvider(OTHER, "other", 0, None, inventories)
    scene.model.consumers[WEB.workload.uuid] = PlacedConsumer(
        WEB.workload.uuid, 5, {OTHER: elsewhere}, True, "NODETRACKER_INSTANCE", "p1", "u1"
    )
    scene.report([WEB])
    assert scene.held() == {WEB.workload.uuid: {OTHER: elsewhere, **WEB_HAS}}
    scene.report([])
    assert scene.held() == {WEB.workload.uuid: {OTHER: elsewhere}}


def test_of_a_batch_what_placement_refuses_is_reserved_and_tried_again_with_a_change(scene) -> None:
    scene.report()
    large = make_claim(9, vcpu_milli=17000, memory_mb=64)  # more than max_unit
    scene.report([WEB, large])
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    assert scene.reserved("VCPU") == 5
    message = scene.warnings()[WarningKind.PLACEMENT_REFUSED].message
    assert "of consumer vm-9, whose amounts" in message
    assert "over capacity" in message
    assert scene.reporter.status().refused == 1
    scene.report([WEB, large], vcpus=32)
    assert scene.held().keys() == {WEB.workload.uuid, large.workload.uuid}
    assert scene.warnings() == {}


def test_what_only_placement_refuses_does_not_keep_a_batch_from_being_written(scene) -> None:
    """Placement may know better than the plan, as when somebody allocated meanwhile."""
    scene.report()
    refusals = []

    def fail(method, subject):
        if method == "POST" and subject == "allocations 3":
            scene.model.allocate(OTHER, {"MEMORY_MB": 65536 - 512 - 2 * 2048})
            refusals.append(subject)

    scene.model.fail = fail
    scene.report([make_claim(1), make_claim(2), make_claim(3)])
    assert refusals
    assert len(scene.model.consumers) == 3
    assert scene.reporter.status().refused == 1
    assert scene.reserved("MEMORY_MB") == 512 + 2048


def test_a_full_node_adopts_an_unclaimed_guest(scene) -> None:
    guest = make_guest(1, vcpu_milli=64000, memory_mb=65024, disk_mb=512000)
    scene.report([], [guest])
    assert scene.reserved("VCPU") == 16
    claim = make_claim(1, vcpu_milli=16000, memory_mb=65024, disk_mb=512000)
    scene.report([claim], [replace(guest, claim_uuid=claim.uuid)])
    assert scene.held() == {guest.uuid: {NODE: {"VCPU": 16, "MEMORY_MB": 65024, "DISK_GB": 500}}}
    assert (scene.reserved("VCPU"), scene.reserved("MEMORY_MB")) == (12, 512)


def test_a_class_that_vanishes_while_it_is_used_is_kept_and_all_reserved(scene) -> None:
    license_class = {"CUSTOM_LICENSE": {"total": 9, "reserved": 0, "allocation_ratio": 1.0}}
    claim = make_claim(1, vcpu_milli=1000, resources={"CUSTOM_LICENSE": 2})
    scene.report([claim], inventory=license_class)
    assert "CUSTOM_LICENSE" in scene.model.classes
    scene.model.allocate(OTHER, {"CUSTOM_LICENSE": 1})
    scene.report([make_claim(1, vcpu_milli=1000)])
    assert scene.reserved("CUSTOM_LICENSE") == 9
    assert "CUSTOM_LICENSE" in scene.warnings()[WarningKind.PLACEMENT_REFUSED].message
    del scene.model.consumers[OTHER]
    provider = scene.model.providers[NODE]
    scene.model.providers[NODE] = replace(provider, generation=provider.generation + 1)
    scene.refresh()
    assert "CUSTOM_LICENSE" not in scene.model.providers[NODE].inventories


def test_a_node_that_does_not_track_resources_has_traits_only(scene) -> None:
    scene.report([WEB], tracks_resources=False)
    assert scene.model.providers[NODE].inventories == {}
    assert scene.model.providers[NODE].traits
    assert scene.held() == {}


def test_what_others_change_is_put_back_by_a_refresh(scene) -> None:
    scene.report([WEB])
    provider = scene.model.providers[NODE]
    scene.model.providers[NODE] = replace(
        provider,
        generation=provider.generation + 3,
        inventories={
            name: replace(entry, allocation_ratio=9.0)
            for name, entry in provider.inventories.items()
        },
        traits=frozenset(
            {"COMPUTE_STATUS_DISABLED", "CUSTOM_RACK_7", "HW_CPU_X86_AVX", "STORAGE_DISK_SSD"}
        ),
    )
    scene.model.traits |= {"CUSTOM_RACK_7", "STORAGE_DISK_SSD"}
    scene.refresh()
    assert scene.model.providers[NODE].inventories == provider.inventories
    assert scene.model.providers[NODE].traits == provider.traits | {
        "CUSTOM_RACK_7",
        "STORAGE_DISK_SSD",
    }
    assert len(scene.refresh()) == 2


def change_parts(scene, consumer, change):
    """Change what a consumer has, without a trace in generations, as a deletion does."""
    found = scene.model.consumers.pop(consumer)
    resources = {uuid: change(dict(held)) for uuid, held in found.resources.items()}
    if any(resources.values()):
        scene.model.consumers[consumer] = replace(found, resources=resources)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda held: {}, "10 DISK_GB, 2048 MEMORY_MB, 2 VCPU"),
        (lambda held: held | {"VCPU": 1}, "1 VCPU"),
    ],
    ids=["deleted", "reduced"],
)
def test_allocations_that_somebody_removed_are_put_back_with_a_warning(scene, change, lost):
    scene.report([WEB])
    change_parts(scene, WEB.workload.uuid, change)
    scene.refresh()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    warning = scene.warnings()[WarningKind.PLACEMENT_LOST]
    assert (warning.nodename, warning.item) == ("node-1", WEB.workload.uuid)
    assert f"{lost} of consumer vm-1 from" in warning.message
    assert len(scene.refresh()) == 2
    assert WarningKind.PLACEMENT_LOST in scene.warnings()
    scene.wake(LOSS_LIFETIME_SECONDS)
    assert scene.warnings() == {}


def test_a_class_that_a_consumer_of_others_held_goes_after_that_consumer(scene) -> None:
    licenses = {"CUSTOM_LICENSE": {"total": 9, "reserved": 0, "allocation_ratio": 1.0}}
    scene.report(inventory=licenses)
    other = make_uuid(77)
    scene.model.consumers[other] = PlacedConsumer(
        other, 1, {NODE: {"CUSTOM_LICENSE": 1}}, True, "INSTANCE", "p", "u"
    )
    scene.report()
    assert scene.model.providers[NODE].inventories["CUSTOM_LICENSE"].reserved == 9
    change_parts(scene, other, lambda held: {})
    scene.refresh()
    assert "CUSTOM_LICENSE" not in scene.model.providers[NODE].inventories
    assert WarningKind.PLACEMENT_LOST not in scene.warnings()


def test_a_provider_that_somebody_deleted_comes_back(scene) -> None:
    scene.report([WEB])
    scene.model.providers.clear()
    scene.model.consumers.clear()
    scene.refresh()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}


def test_a_placement_that_lost_its_database_gets_all_again(scene) -> None:
    licenses = {"CUSTOM_LICENSE": {"total": 9, "reserved": 0, "allocation_ratio": 1.0}}
    scene.report(inventory=licenses)
    before = scene.model.tree().providers[NODE]
    scene.model.providers.clear()
    scene.model.classes.clear()
    scene.model.traits = set(STANDARD_TRAITS)
    scene.refresh()
    after = scene.model.tree().providers[NODE]
    assert (after.traits, after.inventories) == (before.traits, before.inventories)
    assert scene.warnings() == {}


def test_a_renamed_node_renames_its_provider(scene) -> None:
    scene.report()
    scene.audit()
    record = replace(make_node(generation=9), nodename="node-2")
    scene.reporter.audited(AuditReport(nodes={"node-2": record}))
    scene.settle()
    assert scene.model.providers[NODE].name == "node-2"


@pytest.mark.parametrize(
    ("traits", "ways_out"),
    [
        (set(), ("placement adopt host-1 node-1 gives", "placement heal")),
        ({"OWNER_NOVA"}, ("give the node another name", "adopt host-1 node-1 --force")),
    ],
)
def test_another_provider_with_the_name_is_left_alone_and_named(scene, traits, ways_out) -> None:
    other = PlacedProvider(OTHER, "node-1", 3, None, {}, frozenset(traits))
    scene.model.providers[OTHER] = other
    scene.report([WEB])
    assert scene.model.providers == {OTHER: other}
    warning = scene.warnings()[WarningKind.PLACEMENT_NAME_CONFLICT]
    for part in (OTHER, NODE, *traits, *ways_out):
        assert part in warning.message
    assert ("placement heal" in warning.message) == (not traits)
    assert scene.reporter.status().name_conflicts == 1
    del scene.model.providers[OTHER]
    scene.refresh()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    assert scene.warnings() == {}


@pytest.mark.parametrize("step", range(8))
def test_an_outage_at_any_request_delays_the_report_and_changes_nothing_else(
    scene, step, caplog
) -> None:
    """Also when the request was carried out and only its answer was lost."""
    caplog.set_level(logging.INFO, "nodetracker.placement")
    is_out = threading.Event()
    is_out.set()
    count = 0

    def fail(method, subject):
        nonlocal count
        count += 1
        if count > step and is_out.is_set():
            raise PlacementUnavailableError(f"{method} {subject}", "no answer in time")

    scene.model.fail = fail
    scene.audit([WEB])
    status = scene.reporter.status
    wait_until(lambda: status().error is not None or not status().waiting_nodes)
    assert scene.reporter._slots.wait_idle(10)  # the time of the next try is known
    is_out.clear()
    scene.wake(100)
    scene.settle()
    assert scene.held() == {WEB.workload.uuid: WEB_HAS}
    assert scene.reporter.status().error is None
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("nodetracker.placement")]
    assert len(lines) == 2


def test_a_batch_that_takes_too_long_is_halved_and_no_outage(scene) -> None:
    scene.report(memory_mb=10**6)
    most, sizes = 20, []

    def fail(method, subject):
        if method == "POST":
            sizes.append(int(subject.split()[1]))
            if sizes[-1] > most:
                raise PlacementTimeoutError(f"{method} {subject}", "no answer in time")

    scene.model.fail = fail
    claims = [make_claim(n, vcpu_milli=10, memory_mb=64) for n in range(1, 101)]
    scene.report(claims, memory_mb=10**6)
    assert sizes == [100, 50, 25] + [12] * 8 + [4]
    assert len(scene.model.consumers) == 100
    assert scene.reporter.status().error is None
    most, sizes[:] = 1, []
    scene.report([], memory_mb=10**6)
    assert sizes[:4] == [12, 6, 3, 1]
    assert scene.held() == {}


def test_a_timeout_of_a_single_consumer_is_an_outage(scene) -> None:
    scene.report()

    def fail(method, subject):
        if method == "POST":
            raise PlacementTimeoutError(f"{method} {subject}", "no answer in time")

    scene.model.fail = fail
    scene.audit([WEB])
    wait_until(lambda: scene.reporter.status().error is not None)
    assert scene.reporter.status().waiting_nodes == 1


def test_during_an_outage_one_node_is_tried_at_a_time_later_and_later(scene) -> None:
    tries = []

    def fail(method, subject):
        tries.append(scene.clock.seconds)
        raise PlacementUnavailableError(method, "no answer in time")

    scene.model.fail = fail
    scene.audit([WEB])
    wait_until(lambda: len(tries) == 1)
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        count = len(tries)
        assert scene.reporter._slots.wait_idle(10)
        scene.wake(seconds - 0.5)
        scene.wake(0.5)
        wait_until(lambda count=count: len(tries) == count + 1)
    assert scene.reporter.status().waiting_nodes == 1


def test_the_ledger_s_outage_delays_a_report(scene) -> None:
    scene.report([WEB])
    scene.restart()
    scene.ledger.error = StoreUnavailableError("no database")
    scene.audit([])
    wait_until(lambda: scene.reporter._slots.wait_idle(10))
    assert scene.reporter.status().waiting_nodes == 1
    scene.ledger.error, scene.ledger.known = None, {WEB.workload.uuid}
    scene.wake(61)
    scene.settle()
    assert scene.held() == {}


def test_the_newest_state_of_a_node_wins(scene) -> None:
    started, go = threading.Event(), threading.Event()

    def fail(method, subject):
        started.set()
        assert go.wait(30)

    scene.model.fail = fail
    scene.audit([WEB])
    assert started.wait(30)
    for count in range(2, 6):
        scene.audit([make_claim(n) for n in range(1, count + 1)])
    go.set()
    scene.settle()
    assert len(scene.model.consumers) == 5


def test_many_nodes_are_listed_at_once(scene) -> None:
    records = {
        f"node-{n}": replace(make_node(), uuid=make_uuid(n, 9), nodename=f"node-{n}", id=n)
        for n in range(1, 21)
    }
    scene.reporter.audited(AuditReport(nodes=records))
    scene.settle()
    others = [r for r in scene.model.requests if "trait " not in r[1] and "names" not in r[1]]
    assert len(others) == 1 + 3 * 20
    scene.restart()
    before = len(scene.model.requests)
    scene.reporter.audited(AuditReport(nodes=records))
    scene.settle()
    assert len(scene.model.requests) - before == 1 + 1 + 3 * 20
    before = len(scene.model.requests)
    scene.refresh()
    assert len(scene.model.requests) - before == 1 + 20  # the allocations of each


def test_a_batch_that_was_carried_out_late_is_read_and_not_written_again(scene) -> None:
    """The server went on with a request whose answer nobody waited for any more."""
    scene.report()
    claims = [make_claim(n, memory_mb=64) for n in range(1, 51)]
    is_late = True

    def fail(method, subject):
        nonlocal is_late
        if method == "POST" and is_late:
            is_late = False
            for claim in claims:
                scene.model.allocate(claim.workload.uuid, {"MEMORY_MB": 64}, "NODETRACKER_INSTANCE")

    scene.model.fail = fail
    requests = scene.report(claims)
    assert [method for method, _ in requests] == ["POST", "GET", "GET", "GET", "GET"]
    assert scene.held() == {c.workload.uuid: {NODE: {"MEMORY_MB": 64}} for c in claims}


def test_a_removal_that_placement_refuses_is_not_tried_for_ever(scene) -> None:
    scene.report([WEB])

    def fail(method, subject):
        if method == "POST":
            raise PlacementRefusedError(method, "not now")

    scene.model.fail = fail
    assert len(scene.report([])) <= 2
    assert WarningKind.PLACEMENT_REFUSED in scene.warnings()
    scene.model.fail = lambda method, subject: None
    scene.report([])
    assert scene.held() == {}


def test_nothing_more_is_written_of_a_node_that_is_deleted_meanwhile(scene) -> None:
    def fail(method, subject):
        if method == "POST":
            scene.reporter.audited(AuditReport(nodes={}))

    scene.model.fail = fail
    scene.audit([WEB])
    wait_until(lambda: scene.model.providers)
    assert scene.reporter._slots.wait_idle(10)
    assert scene.model.requests[-1] == ("POST", f"provider {NODE}")
    assert scene.model.providers[NODE].traits == frozenset()


def test_providers_of_others_at_any_depth_belong_to_their_node(scene) -> None:
    """With many nodes, all providers are listed by one request, of whatever tree they are."""
    records = {
        f"node-{n}": replace(make_node(), uuid=make_uuid(n, 9), nodename=f"node-{n}", id=n)
        for n in range(1, 11)
    }
    scene.reporter.audited(AuditReport(nodes=records))
    scene.settle()
    agent, bridge = make_uuid(1), make_uuid(2)
    scene.model.create_provider(agent, "agent", make_uuid(1, 9))
    scene.model.create_provider(bridge, "bridge", agent)
    scene.refresh()
    [slot] = [slot for slot in scene.reporter._slots if slot.record.nodename == "node-1"]
    assert slot.state.placed.providers.keys() == {make_uuid(1, 9), agent, bridge}
    assert len(scene.refresh()) == 1 + 10
