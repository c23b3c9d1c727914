"""The ledger in every store: claims are granted, refused, returned again and released."""

import dataclasses
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.db.store import SqlStore
from nodetracker.model.amounts import Amounts
from nodetracker.model.claim import Claim, ClaimState
from nodetracker.model.errors import (
    ClaimConflictError,
    ClaimRefusedError,
    NotFoundError,
    RefusedError,
    RequestError,
)
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import CpuAffinity, GuestPins, WorkloadKind
from nodetracker.model.listing import WorkloadQuery
from nodetracker.model.numa import CellAssignment
from nodetracker.model.pci import Alias, AliasSpec, PciDeviceType, PciStatus
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.ports import AdmissionPolicy, Store
from nodetracker.usecases.scheduler import Scheduler
from tests.builders import (
    ADMISSION_POLICY,
    SINCE,
    ask,
    claim,
    make_device,
    make_guest,
    make_node,
    node,
    register,
    update,
)
from tests.contract.stores import SQL_BACKENDS, StoreMaker
from tests.oracle import check_usage
from tests.refusals import list_short, refusing
from tests.statements import count_statements


class TestGranting:
    def test_kinds_of_guests_that_cannot_be_seen_are_refused(self, store: Store) -> None:
        agent = make_node(store)
        unseen = FactEntry(FactState.HELD, "sock", SINCE, "away", (WorkloadKind.CONTAINER,))
        store.apply_changes(agent, [update(node(store), facts={"guests": unseen})], 60)
        instance = ask(VCPU=1)
        workload = dataclasses.replace(instance.workload, kind=WorkloadKind.CONTAINER)
        container = dataclasses.replace(instance, uuid=str(uuid.uuid4()), workload=workload)
        with pytest.raises(ClaimRefusedError, match="containers have not been listed since"):
            claim(store, container)
        answer = store.try_claim(container, "alpha", "node-1", ADMISSION_POLICY)
        assert [refusal.check for refusal in answer.refusals] == [AdmissionCheck.FACTS]
        assert claim(store, instance).is_active

    def test_a_claim_is_written_with_the_row_s_new_usage(self, store: Store) -> None:
        make_node(store)
        before = node(store)
        granted = claim(store, ask(VCPU=2, MEMORY_MB=1024, DISK_GB=10, PCPU=1, CUSTOM_FPGA=1))
        assert granted.state is ClaimState.HELD
        assert granted.expires_at is not None
        assert (granted.expires_at - granted.created_at).total_seconds() == 600
        after = node(store)
        assert after.claims == {granted.uuid: granted}
        assert (after.generation, after.epoch) == (before.generation + 1, before.epoch)
        values = after.values
        assert (values.vcpus_used, values.pcpus_used, values.memory_mb_used) == (3, 1, 1536)
        assert (values.local_gb_used, values.free_ram_mb, values.cpu_used) == (10, 6656, 2.0)
        assert store.list_claims() == [granted]

    def test_a_claim_that_does_not_fit_is_refused_with_every_reason_and_writes_nothing(
        self, store: Store
    ) -> None:
        make_node(store)
        before = node(store)
        with pytest.raises(ClaimRefusedError) as caught:
            claim(store, ask(VCPU=9, MEMORY_MB=9999, CUSTOM_FPGA=3))
        assert len(caught.value.reasons) == 3
        assert list_short(caught.value) == {
            "VCPU": (7, 9), "MEMORY_MB": (7680, 9999), "CUSTOM_FPGA": (2, 3)
        }  # fmt: skip
        assert node(store) == before

    def test_a_dry_run_writes_nothing(self, store: Store) -> None:
        make_node(store)
        before = node(store)
        answer = store.try_claim(ask(VCPU=2, MEMORY_MB=9999), "alpha", "node-1", ADMISSION_POLICY)
        assert list_short(answer) == {"MEMORY_MB": (7680, 9999)}
        assert answer.verdicts[0].free == 7
        assert node(store) == before

    def test_further_classes_are_not_oversold(self, store: Store) -> None:
        make_node(store)
        claim(store, ask(CUSTOM_FPGA=2))
        with refusing(CUSTOM_FPGA=0):
            claim(store, ask(CUSTOM_FPGA=1))

    def test_a_missing_node_refuses(self, store: Store) -> None:
        make_node(store)
        with pytest.raises(ClaimRefusedError, match="no such node"):
            store.create_claim(ask(VCPU=1), "alpha", "ghost", ADMISSION_POLICY)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (ServiceChange(disabled=True, disabled_reason="disk"), "alpha is disabled: disk"),
            (ServiceChange(forced_down=True), "alpha is down"),
        ],
    )
    def test_an_unavailable_service_refuses(
        self, store: Store, change: ServiceChange, reason: str
    ) -> None:
        make_node(store)
        held = claim(store, ask(VCPU=1))
        store.set_service("alpha", COMPUTE_BINARY, change)
        with pytest.raises(ClaimRefusedError, match=reason):
            claim(store, ask(VCPU=1))
        store.confirm_claim(held.uuid)
        assert store.abort_claim(held.uuid).reason == "aborted"

    def test_a_service_without_heartbeats_refuses(self, store: Store) -> None:
        make_node(store)
        silent = AdmissionPolicy(service_down_time=-1, claim_timeout=600)
        with pytest.raises(ClaimRefusedError, match="alpha is down"):
            store.create_claim(ask(VCPU=1), "alpha", "node-1", silent)


class TestAgain:
    def test_the_same_request_returns_the_same_claim(self, store: Store) -> None:
        make_node(store)
        request = ask(claim=str(uuid.uuid4()), VCPU=2)
        granted = claim(store, request)
        again = claim(store, request)
        assert again == granted
        assert (granted.is_repeated, again.is_repeated) == (False, True)
        assert node(store).values.vcpus_used == 3

    def test_the_same_claim_is_returned_when_it_would_not_fit_again(self, store: Store) -> None:
        make_node(store)
        request = ask(claim=str(uuid.uuid4()), VCPU=7)
        granted, again = claim(store, request), claim(store, request)
        assert again == granted
        assert again.is_repeated

    def test_another_body_is_a_conflict(self, store: Store) -> None:
        make_node(store)
        name = str(uuid.uuid4())
        claim(store, ask(claim=name, VCPU=2))
        for amount in (1, 7):
            with pytest.raises(ClaimConflictError, match=name):
                claim(store, ask(claim=name, VCPU=amount))

    def test_a_released_claim_is_not_granted_again(self, store: Store) -> None:
        make_node(store)
        request = ask(claim=str(uuid.uuid4()), VCPU=2)
        store.abort_claim(claim(store, request).uuid)
        assert claim(store, request).state is ClaimState.RELEASED
        assert node(store).values.vcpus_used == 1


class TestReleasing:
    def test_an_abort_returns_all_resources(self, store: Store) -> None:
        make_node(store)
        before = node(store)
        granted = claim(store, ask(VCPU=2, MEMORY_MB=333, DISK_GB=7, PCPU=1))
        released = store.abort_claim(granted.uuid)
        assert (released.state, released.reason) == (ClaimState.RELEASED, "aborted")
        after = node(store)
        assert after.values == before.values
        assert after.claims == {}
        assert after.generation == before.generation + 2

    def test_a_second_abort_changes_nothing(self, store: Store) -> None:
        make_node(store)
        granted = claim(store, ask(VCPU=2))
        released = store.abort_claim(granted.uuid)
        after = node(store)
        assert store.abort_claim(granted.uuid) == released
        assert node(store) == after

    def test_a_missing_object_is_not_found(self, store: Store) -> None:
        make_node(store)
        before = node(store)
        for call in (
            lambda: store.abort_claim("ghost"),
            lambda: store.confirm_claim("ghost"),
            lambda: store.renew_claim("ghost", ADMISSION_POLICY),
        ):
            with pytest.raises(NotFoundError, match="ghost"):
                call()
        assert node(store) == before

    def test_a_confirmed_claim_does_not_expire(self, store: Store) -> None:
        make_node(store)
        confirmed = store.confirm_claim(claim(store, ask(VCPU=2)).uuid)
        assert (confirmed.state, confirmed.expires_at) == (ClaimState.CONFIRMED, None)
        assert store.confirm_claim(confirmed.uuid) == confirmed
        assert store.renew_claim(confirmed.uuid, ADMISSION_POLICY) == confirmed

    def test_renewing_counts_from_now(self, store: Store) -> None:
        make_node(store)
        granted = claim(store, ask(VCPU=2))
        renewed = store.renew_claim(granted.uuid, AdmissionPolicy(60, 6000))
        assert granted.expires_at is not None
        assert renewed.expires_at is not None
        assert (renewed.expires_at - granted.expires_at).total_seconds() >= 5400

    def test_a_released_claim_cannot_be_confirmed_or_renewed(self, store: Store) -> None:
        make_node(store)
        granted = claim(store, ask(VCPU=2))
        store.abort_claim(granted.uuid)
        for call in (store.confirm_claim, lambda name: store.renew_claim(name, ADMISSION_POLICY)):
            with pytest.raises(RefusedError, match=r"is released \(aborted\)"):
                call(granted.uuid)

    def test_a_node_or_service_with_claims_is_not_deleted(self, store: Store) -> None:
        make_node(store)
        granted = claim(store, ask(VCPU=2))
        with pytest.raises(
            RefusedError, match=f"node node-1 holds 1 claim; to be.*: {granted.uuid}$"
        ):
            store.delete_node("alpha", "node-1")
        with pytest.raises(
            RefusedError, match=f"host alpha holds 1 claim; to be.*: {granted.uuid}$"
        ):
            store.delete_service("alpha", COMPUTE_BINARY, -1)
        store.abort_claim(granted.uuid)
        store.delete_service("alpha", COMPUTE_BINARY, -1)
        assert store.list_claims() == []


class TestNuma:
    def pinned(self, store: Store) -> list[list[int]]:
        return [cell["pinned_cpus"] for cell in node(store).values.numa_topology["cells"]]

    def test_a_pinned_claim_holds_its_cpus_until_it_is_released(self, store: Store) -> None:
        make_node(store)
        before = node(store)
        granted = claim(store, ask(PCPU=1, MEMORY_MB=1024))
        assert granted.numa is not None
        (cell,) = granted.numa.cells
        assert list(cell.pins.values()) in ([4], [9])
        assert store.list_claims(uuid=granted.uuid) == [granted]
        assert node(store).claims == {granted.uuid: granted}
        assert sorted(self.pinned(store)) == [[], list(cell.pins.values())]
        assert node(store).values.pcpus_used == 1
        store.abort_claim(granted.uuid)
        assert node(store).values == before.values

    def test_no_cpu_is_pinned_twice(self, store: Store) -> None:
        make_node(store)
        first, second = claim(store, ask(PCPU=1)), claim(store, ask(PCPU=1))
        pins = [
            cpu
            for granted in (first, second)
            if granted.numa is not None
            for cpu in granted.numa.cells[0].pins.values()
        ]
        assert sorted(pins) == [4, 9]
        with refusing(PCPU=0) as caught:
            claim(store, ask(PCPU=1))
        assert "NUMA topology cannot fit" in caught.value.reasons[-1]

    def test_a_refusal_reports_every_cell(self, store: Store) -> None:
        make_node(store)
        with pytest.raises(ClaimRefusedError) as caught:
            claim(store, ask(VCPU=1, MEMORY_MB=64, numa={"page_size": 1048576}))
        (reason,) = caught.value.reasons
        assert reason == (
            "Requested instance NUMA topology cannot fit the given host NUMA topology: "
            "guest cell 0 on host cell 0: no pages of 1048576 KiB; "
            "guest cell 0 on host cell 1: no pages of 1048576 KiB"
        )

    def test_a_cell_is_limited_as_its_node(self, store: Store) -> None:
        make_node(store)
        for _ in range(2):
            claim(store, ask(VCPU=1, MEMORY_MB=3000, numa={"nodes": 1}))
        more = ask(VCPU=1, MEMORY_MB=1200, numa={"nodes": 1})
        scheduler = Scheduler(store, ADMISSION_POLICY)
        assert scheduler.select(more) == []
        assert dict(scheduler.explain(more).counts) == {AdmissionCheck.NUMA: 1}
        answer = store.try_claim(more, "alpha", "node-1", ADMISSION_POLICY)
        assert answer.numa_reasons == tuple(
            f"guest cell 0 on host cell {cell}: "
            "free memory 1,096 MiB (4,096 MiB x 1) < requested 1,200 MiB"
            for cell in (0, 1)
        )
        with pytest.raises(ClaimRefusedError, match="NUMA topology cannot fit"):
            claim(store, more)
        lifted = ask(VCPU=1, MEMORY_MB=1200, numa={"nodes": 1}, limits={"numa": None})
        assert len(scheduler.select(lifted)) == 1
        assert claim(store, lifted).numa is not None

    def test_a_network_chooses_the_cell(self, store: Store) -> None:
        make_node(store)
        for _ in range(2):
            granted = claim(store, ask(VCPU=1, numa={"networks": ["physnet1", "anywhere"]}))
            assert granted.numa is not None
            assert [cell.host_cell for cell in granted.numa.cells] == [1]
        claim(store, ask(VCPU=0, PCPU=1, numa={"networks": ["physnet1"]}))
        with pytest.raises(ClaimRefusedError, match="together with requested networks"):
            claim(store, ask(VCPU=0, PCPU=1, numa={"networks": ["physnet1"]}))

    def test_a_workload_of_two_cells_is_on_both(self, store: Store) -> None:
        make_node(store)
        claim(store, ask(PCPU=2, numa={"nodes": 2}))
        assert self.pinned(store) == [[4], [9]]


class TestBoundGuests:
    """Resources that unclaimed guests are bound to are not available to others."""

    GUEST = make_guest(
        "web",
        vcpu_milli=1000,
        memory_mb=1024,
        disk_mb=10240,
        pins=GuestPins((CellAssignment(0, 0, 1024, pins={0: 4}),), ("10000:81:00.1",)),
    )
    CHARGE = Amounts(pcpus=1, memory_mb=1024, disk_mb=10240)
    HELD = make_device("10000:81:00.1", status=PciStatus.ALLOCATED, claim_uuid=GUEST.uuid)
    FREE = make_device("10000:81:00.2")
    ADMISSION_POLICY = AdmissionPolicy(
        60, 600, aliases={"nic": Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)}
    )

    def make(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE, (self.HELD, self.FREE))

    def ask_device(self, workload: str | None = None, count: int = 1) -> Any:
        return ask(workload, pci_requests=[{"alias": "nic", "count": count}])

    def claim(self, store: Store, request: Any) -> Claim:
        return store.create_claim(request, "alpha", "node-1", self.ADMISSION_POLICY)

    def holders(self, store: Store) -> dict[str, str | None]:
        return {address: device.claim_uuid for address, device in node(store).devices.items()}

    def test_pins_and_devices_are_stored_unchanged(self, store: Store) -> None:
        self.make(store)
        assert node(store).guests[self.GUEST.uuid].pins == self.GUEST.pins

    def test_a_pinned_cpu_is_not_claimed_again(self, store: Store) -> None:
        self.make(store)
        granted = self.claim(store, ask(PCPU=1))
        assert granted.numa is not None
        assert list(granted.numa.cells[0].pins.values()) == [9]
        with refusing(PCPU=0):
            self.claim(store, ask(PCPU=1))

    def test_a_claim_takes_over_its_guest_s_pins(self, store: Store) -> None:
        self.make(store)
        before = node(store)
        other = self.claim(store, ask(PCPU=1))
        granted = self.claim(store, ask(self.GUEST.uuid, PCPU=1, MEMORY_MB=1024, DISK_GB=10))
        assert granted.numa is not None
        assert list(granted.numa.cells[0].pins.values()) == [4]
        assert node(store).values.pcpus_used == 2
        store.abort_claim(other.uuid)
        store.abort_claim(granted.uuid)
        assert node(store).values.pcpus_used == before.values.pcpus_used
        cells = node(store).values.numa_topology["cells"]
        assert [cell["pinned_cpus"] for cell in cells] == [[4], []]

    NAMING = dataclasses.replace(
        GUEST,
        pins=GuestPins(
            (CellAssignment(0, isolated=frozenset({4})),),
            affinities=(CpuAffinity(frozenset({4}), 1000),),
        ),
    )

    def test_cpus_that_a_guest_names_are_its_own_with_and_without_a_claim(
        self, store: Store
    ) -> None:
        charge = dataclasses.replace(self.CHARGE, pcpus=1)
        make_node(store, (self.NAMING,), charge)
        uuid = self.NAMING.uuid
        assert node(store).guests[uuid].pins == self.NAMING.pins
        shared = self.claim(store, ask(uuid, VCPU=1, MEMORY_MB=1024, DISK_GB=10))
        assert (node(store).values.vcpus_used, node(store).values.pcpus_used) == (2, 1)
        other = self.claim(store, ask(PCPU=1))
        assert other.numa is not None
        assert list(other.numa.cells[0].pins.values()) == [9]
        with refusing(PCPU=0):
            self.claim(store, ask(PCPU=1))
        check_usage(store, "alpha")
        store.abort_claim(shared.uuid)
        check_usage(store, "alpha")
        granted = self.claim(store, ask(uuid, PCPU=1, MEMORY_MB=1024, DISK_GB=10))
        assert granted.numa is not None
        assert list(granted.numa.cells[0].pins.values()) == [4]
        check_usage(store, "alpha")
        assert node(store).values.pcpus_used == 2

    def test_a_device_of_a_guest_is_not_claimed_by_others(self, store: Store) -> None:
        self.make(store)
        assert self.claim(store, self.ask_device()).devices == (self.FREE.address,)
        with pytest.raises(ClaimRefusedError, match="nic"):
            self.claim(store, self.ask_device())

    def test_a_claim_takes_over_its_guest_s_devices_and_returns_them_to_it(
        self, store: Store
    ) -> None:
        self.make(store)
        before = self.holders(store)
        granted = self.claim(store, self.ask_device(self.GUEST.uuid, 2))
        assert set(self.holders(store).values()) == {granted.uuid}
        store.abort_claim(granted.uuid)
        assert self.holders(store) == before

    def test_schedulers_offer_a_further_claim_its_guest_s_devices(self, store: Store) -> None:
        self.make(store)
        self.claim(store, ask(self.GUEST.uuid, PCPU=1, MEMORY_MB=1024, DISK_GB=10))
        request = self.ask_device(self.GUEST.uuid, 2)
        assert store.count_exclusions(request, self.ADMISSION_POLICY).counts == {}
        granted = Scheduler(store, self.ADMISSION_POLICY).create_claim(request)
        assert set(granted.devices) == {self.HELD.address, self.FREE.address}


class TestPci:
    ALIAS = Alias("nic", (AliasSpec("8086", "154c"),), PciDeviceType.VF)
    ADMISSION_POLICY = AdmissionPolicy(60, 600, aliases={"nic": ALIAS})
    VFS = tuple(make_device(f"10000:81:00.{number}", numa_node=number - 1) for number in (1, 2))

    def claim(self, store: Store, count: int = 1, **more: Any) -> Claim:
        request = ask(pci_requests=[{"alias": "nic", "count": count}], **more)
        return store.create_claim(request, "alpha", "node-1", self.ADMISSION_POLICY)

    def held(self, store: Store) -> dict[str, tuple[str, str | None]]:
        return {
            address: (device.status.value, device.claim_uuid)
            for address, device in node(store).devices.items()
        }

    def test_a_device_is_claimed_allocated_and_freed(self, store: Store) -> None:
        make_node(store, devices=self.VFS)
        before = node(store)
        granted = self.claim(store)
        assert len(granted.devices) == 1
        assert self.held(store)[granted.devices[0]] == ("claimed", granted.uuid)
        assert sum(pool["count"] for pool in node(store).values.pci_stats) == 1
        assert store.list_claims(uuid=granted.uuid) == [granted]
        store.confirm_claim(granted.uuid)
        assert self.held(store)[granted.devices[0]] == ("allocated", granted.uuid)
        store.abort_claim(granted.uuid)
        assert node(store).devices == before.devices
        assert sum(pool["count"] for pool in node(store).values.pci_stats) == 2

    @pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
    def test_a_pair_costs_two_statements_more_than_a_plain_one(self, store: SqlStore) -> None:
        make_node(store, tuple(make_guest(f"guest-{n}") for n in range(50)), devices=self.VFS)
        with count_statements(store) as statements:
            store.abort_claim(self.claim(store).uuid)
        assert len(statements) == 12

    def test_no_device_is_assigned_twice(self, store: Store) -> None:
        make_node(store, devices=self.VFS)
        first, second = self.claim(store), self.claim(store)
        assert {*first.devices, *second.devices} == {vf.address for vf in self.VFS}
        with pytest.raises(ClaimRefusedError, match="nic"):
            self.claim(store)

    def test_a_node_that_is_given_to_another_host_keeps_its_claims_devices_and_cells(
        self, store: Store
    ) -> None:
        agent = make_node(store, devices=self.VFS)
        store.confirm_claim(self.claim(store, PCPU=1).uuid)
        held = self.claim(store, PCPU=1)
        before = node(store)
        other = register(store, "beta", "agent-b")
        store.take_over_node(agent.host, "node-1", "beta", -1)
        assert store.load_nodes(agent.host) == []
        (after,) = store.load_nodes("beta")
        assert after.devices == before.devices
        assert after.values == before.values
        assert after.claims.keys() == before.claims.keys()
        assert {claim.host for claim in after.claims.values()} == {"beta"}
        store.abort_claim(held.uuid)
        (freed,) = store.load_nodes("beta")
        assert freed.values.pcpus_used == before.values.pcpus_used - 1
        assert store.apply_changes(other, [update(freed, vcpus=1)], 60).conflicts == ()

    def test_devices_and_cells_are_chosen_together(self, store: Store) -> None:
        make_node(store, devices=self.VFS)
        for _ in range(2):
            granted = self.claim(store, PCPU=1)
            assert granted.numa is not None
            (address,) = granted.devices
            assert node(store).devices[address].numa_node == granted.numa.cells[0].host_cell

    @pytest.mark.parametrize("cell", [0, 1])
    def test_a_guest_is_placed_near_its_device_and_others_leave_that_cell_free(
        self, store: Store, cell: int
    ) -> None:
        near = make_device("0000:81:10.0", numa_node=cell, parent_addr=None)
        make_node(store, devices=(near,))
        other = claim(store, ask(VCPU=1, MEMORY_MB=64, numa={"nodes": 1}))
        assert other.numa is not None
        assert [placed.host_cell for placed in other.numa.cells] == [1 - cell]
        store.abort_claim(other.uuid)
        policy = {"alias": "nic", "numa_policy": "preferred"}
        request = ask(PCPU=1, pci_requests=[policy])
        granted = store.create_claim(request, "alpha", "node-1", self.ADMISSION_POLICY)
        assert granted.numa is not None
        assert [placed.host_cell for placed in granted.numa.cells] == [cell]

    def test_an_unknown_alias_refuses(self, store: Store) -> None:
        make_node(store)
        with pytest.raises(ClaimRefusedError, match="unknown PCI alias: nic"):
            claim(store, ask(pci_requests=[{"alias": "nic"}]))
        with pytest.raises(ClaimRefusedError, match="nic"):
            self.claim(store)


class TestEmptyRequests:
    def test_a_claim_that_holds_nothing_is_refused_and_a_question_is_not(
        self, store: Store
    ) -> None:
        make_node(store)
        before = node(store)
        for request in (ask(), ask(VCPU=0, CUSTOM_FPGA=0)):
            with pytest.raises(RequestError, match="resources: expected an amount above 0"):
                claim(store, request)
            assert store.try_claim(request, "alpha", "node-1", ADMISSION_POLICY).reasons == ()
        assert node(store) == before

    def test_a_move_that_would_hold_nothing_is_refused(self, store: Store) -> None:
        make_node(store)
        source = claim(store, ask(VCPU=1))
        body = {
            "workload": {"uuid": source.workload.uuid},
            "migration": {"type": "resize", "source_claim": source.uuid},
        }
        with pytest.raises(RequestError, match="resources: expected an amount above 0"):
            store.create_migration(parse_claim_request(body), "alpha", "node-1", ADMISSION_POLICY)
        assert store.list_migrations() == []


class TestGuests:
    GUEST = make_guest("web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240)
    CHARGE = Amounts(2000, memory_mb=1024, disk_mb=10240)

    def test_an_unclaimed_guest_is_adopted_and_not_counted_twice(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE)
        before = node(store)
        granted = claim(store, ask(self.GUEST.uuid, VCPU=2, MEMORY_MB=1024, DISK_GB=10))
        assert (granted.state, granted.expires_at) == (ClaimState.CONFIRMED, None)
        after = node(store)
        assert after.values == before.values
        assert after.guests[self.GUEST.uuid].claim_uuid == granted.uuid

    def test_a_guest_of_another_kind_is_not_adopted(self, store: Store) -> None:
        stranger = dataclasses.replace(self.GUEST, kind=WorkloadKind.CONTAINER)
        make_node(store, (stranger,), self.CHARGE)
        before = node(store)
        with refusing(VCPU=5):
            claim(store, ask(self.GUEST.uuid, VCPU=6))
        granted = claim(store, ask(self.GUEST.uuid, VCPU=5))
        assert granted.state is ClaimState.HELD
        assert node(store).guests[stranger.uuid].claim_uuid is None
        assert node(store).values.vcpus_used == before.values.vcpus_used + 5
        check_usage(store, "alpha")
        rows = store.list_workloads(WorkloadQuery()).items
        assert [(row.claim_uuid, row.kind, row.power_state) for row in rows] == [
            (granted.uuid, WorkloadKind.INSTANCE, None),
            (None, WorkloadKind.CONTAINER, stranger.power_state),
        ]
        store.abort_claim(granted.uuid)
        assert (node(store).values, node(store).guests) == (before.values, before.guests)

    def test_adoption_may_use_what_is_free_and_the_guest_s_own_charge(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE)
        claim(store, ask(VCPU=5))
        with refusing(VCPU=2):
            claim(store, ask(self.GUEST.uuid, VCPU=3))
        claim(store, ask(self.GUEST.uuid, VCPU=2))
        assert node(store).values.vcpus_used == 8

    def test_on_an_overcommitted_node_a_guest_may_be_claimed_with_what_it_is_charged(
        self, store: Store
    ) -> None:
        make_node(store, (self.GUEST,), Amounts(10_000, memory_mb=9_000, disk_mb=200 * 1024))
        before = node(store)
        request = ask(self.GUEST.uuid, VCPU=2, MEMORY_MB=1024, DISK_GB=10)
        with pytest.raises(ClaimRefusedError) as caught:
            claim(store, ask(self.GUEST.uuid, VCPU=3, MEMORY_MB=1024, DISK_GB=11))
        assert list_short(caught.value) == {"VCPU": (-1, 3), "DISK_GB": (-90, 11)}
        scheduler = Scheduler(store, ADMISSION_POLICY)
        assert [found.host for found in scheduler.select(request)] == ["alpha"]
        assert scheduler.explain(request).counts == {}
        granted = scheduler.create_claim(request)
        assert node(store).values == before.values
        with refusing(VCPU=-3):
            claim(store, ask(self.GUEST.uuid, VCPU=1))
        store.abort_claim(granted.uuid)
        assert node(store).values == before.values

    def test_a_guest_whose_claim_is_aborted_counts_as_unclaimed_again(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE)
        before = node(store)
        granted = claim(store, ask(self.GUEST.uuid, VCPU=7, MEMORY_MB=1))
        store.abort_claim(granted.uuid)
        after = node(store)
        assert after.values == before.values
        assert after.guests == before.guests

    def test_a_guest_that_is_larger_than_its_claim_counts_in_full(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE)
        before = node(store)
        small = claim(store, ask(self.GUEST.uuid, VCPU=1, MEMORY_MB=768, DISK_GB=4))
        assert node(store).values == before.values
        store.confirm_claim(small.uuid)
        assert node(store).values == before.values
        second = claim(store, ask(self.GUEST.uuid, VCPU=3, MEMORY_MB=128, DISK_GB=10))
        values = node(store).values
        assert (values.vcpus_used, values.memory_mb_used, values.local_gb_used) == (5, 1536, 14)
        store.abort_claim(second.uuid)
        assert node(store).values == before.values
        store.abort_claim(small.uuid)
        assert node(store).values == before.values
        assert node(store).guests == before.guests

    def test_a_further_claim_may_use_what_a_larger_guest_is_charged(self, store: Store) -> None:
        make_node(store, (self.GUEST,), self.CHARGE)
        claim(store, ask(self.GUEST.uuid, VCPU=1))
        claim(store, ask(VCPU=5))
        with refusing(VCPU=1):
            claim(store, ask(self.GUEST.uuid, VCPU=2))
        claim(store, ask(self.GUEST.uuid, VCPU=1))
        assert node(store).values.vcpus_used == 8

    def test_an_audit_s_write_after_a_claim_is_a_conflict(self, store: Store) -> None:
        agent = make_node(store)
        record = node(store)
        claim(store, ask(VCPU=2))
        result = store.apply_changes(agent, [update(record, vcpus_used=1)], 60)
        assert result.conflicts == ("node-1",)
        assert node(store).values.vcpus_used == 3


def test_of_many_concurrent_claims_exactly_as_many_as_fit_succeed(stores: StoreMaker) -> None:
    make_node(stores.open())

    def one(number: int) -> str:
        try:
            return claim(stores.open(), ask(VCPU=1, MEMORY_MB=100)).uuid
        except ClaimRefusedError as error:
            assert list_short(error) == {"VCPU": (0, 1)}
            return ""

    with ThreadPoolExecutor(8) as pool:
        granted = [name for name in pool.map(one, range(12)) if name]
    assert len(granted) == 7
    store = stores.open()
    record = node(store)
    assert set(record.claims) == set(granted)
    assert (record.values.vcpus_used, record.values.memory_mb_used) == (8, 512 + 700)


def test_of_two_concurrent_adoptions_of_one_guest_only_one_is_credited(stores: StoreMaker) -> None:
    for _ in range(5):
        guest = make_guest(str(uuid.uuid4()), vcpu_milli=2000, memory_mb=0, disk_mb=0)
        store = stores.open()
        for record in store.load_nodes("alpha"):
            for held in record.claims:
                store.abort_claim(held)
            store.delete_node("alpha", record.nodename)
        make_node(store, (guest,), Amounts(2000))
        requests = [ask(guest.uuid, VCPU=2) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda request: claim(stores.open(), request), requests))
        assert node(store).values.vcpus_used == 1 + 2 + 2


class TestPurging:
    def test_old_released_claims_are_purged_and_held_ones_are_kept(self, store: Store) -> None:
        make_node(store)
        kept, released = claim(store, ask(VCPU=1)), claim(store, ask(VCPU=1))
        store.abort_claim(released.uuid)
        assert store.purge(store.now() - timedelta(days=1))["claims"] == 0
        before = node(store)
        assert store.purge(store.now() + timedelta(seconds=1))["claims"] == 1
        assert [found.uuid for found in store.list_claims()] == [kept.uuid]
        assert node(store).generation == before.generation + 1
        assert node(store).values == before.values
