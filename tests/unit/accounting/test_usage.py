import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.accounting.usage import (
    charge_of_claim,
    charge_of_guest,
    count_columns,
    usage_columns,
)
from nodetracker.model.amounts import Amounts
from nodetracker.model.guest import PowerState, WorkloadKind
from tests.builders import NOW, make_guest

CHARGES = st.builds(
    Amounts,
    st.integers(0, 64000),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 24),
)


@given(st.lists(CHARGES), st.randoms())
def test_order_does_not_change_a_sum(charges, random):
    shuffled = list(charges)
    random.shuffle(shuffled)
    assert sum(charges, Amounts()) == sum(shuffled, Amounts())


def test_a_powered_off_guest_is_charged_like_a_running_one():
    running = charge_of_guest(make_guest(power_state=PowerState.RUNNING), 0)
    assert charge_of_guest(make_guest(power_state=PowerState.SHUTDOWN), 0) == running


def test_the_drivers_overhead_is_charged_with_each_instance():
    assert charge_of_guest(make_guest(memory_mb=1000), 128).memory_mb == 1128


@pytest.mark.parametrize("kind", WorkloadKind)
def test_a_guest_is_charged_the_same_with_and_without_a_claim(kind):
    guest = make_guest(kind=kind)
    amounts = Amounts(guest.vcpu_milli, 0, guest.memory_mb, guest.disk_mb)
    assert charge_of_guest(guest, 128) == charge_of_claim(amounts, kind, 128)


def test_usage_is_the_sum_of_reserved_amounts_and_charges():
    reserved = {"vcpus": 1, "memory_mb": 512, "disk_mb": 100}
    columns = usage_columns(Amounts(1500, memory_mb=2048, disk_mb=1000), reserved, 8192, 10)
    assert columns == {
        "pcpus_used": 0,
        "vcpus_used": 3,  # 1 + 1.5, rounded up
        "memory_mb_used": 2560,
        "local_gb_used": 2,  # 1100 MiB, rounded up
        "free_ram_mb": 5632,
        "free_disk_gb": 8,  # 9140 MiB, rounded down
        "cpu_used": 1.5,
        "disk_used": 1000 / 1024,
    }


def test_free_may_be_negative():
    columns = usage_columns(
        Amounts(memory_mb=9000, disk_mb=20 * 1024), {"memory_mb": 512}, 8192, 10
    )
    assert columns["free_ram_mb"] == 8192 - 512 - 9000
    assert columns["free_disk_gb"] == -10


@pytest.mark.parametrize("state", PowerState)
def test_a_container_of_any_state_is_running_paused_or_stopped(state):
    name = {PowerState.RUNNING: "running", PowerState.PAUSED: "paused"}.get(state, "stopped")
    if state is PowerState.SUSPENDED:
        name = "paused"
    columns = count_columns([make_guest(kind=WorkloadKind.CONTAINER, power_state=state)])
    counts = {f"{part}_containers": int(part == name) for part in ("running", "paused", "stopped")}
    expected = {"total_containers": 1, "running_vms": 0, **counts}
    assert {column: columns[column] for column in expected} == expected


def test_guests_that_vanished_are_not_counted():
    guests = [
        make_guest(number, kind=kind, claim_uuid=f"c{number}", missing_since=NOW)
        for number, kind in enumerate(WorkloadKind, 1)
    ]
    assert count_columns(guests) == count_columns([])
    assert count_columns([*guests, make_guest(9)]) == count_columns([make_guest(9)])


def test_instances_are_counted_by_state_and_project():
    guests = [
        make_guest(1, project_id="p1"),
        make_guest(2, project_id="p1", power_state=PowerState.SHUTDOWN),
        make_guest(3, kind=WorkloadKind.CONTAINER, project_id="p2"),
    ]
    columns = count_columns(guests)
    assert columns["running_vms"] == 2
    assert columns["stats"] == {
        "num_instances": 2,
        "io_workload": 0,
        "num_vm_running": 1,
        "num_vm_shutdown": 1,
        "num_proj_p1": 2,
    }
