"""What provider.yaml files add to nodes' rows, and which entry a node gets."""

import dataclasses

import pytest

from nodetracker.accounting.audit.provider_config import (
    check_configs,
    find_config,
    list_unused_configs,
)
from nodetracker.accounting.audit.view import account
from nodetracker.model.errors import ConfigError
from nodetracker.model.fact import failed
from nodetracker.model.host import Gpu
from nodetracker.model.provider import ClassInventory, ProviderConfig
from nodetracker.model.settings import Policy
from nodetracker.model.warning import WarningKind
from tests.builders import NOW, SOURCE, make_record, make_snapshot

UUID = make_record().uuid
EVERY = ProviderConfig("a.yaml", traits=("CUSTOM_EVERY",))
NAMED = ProviderConfig("b.yaml", name="node-1", traits=("CUSTOM_NAMED",))
IDENTIFIED = ProviderConfig("c.yaml", uuid=UUID, traits=("CUSTOM_IDENTIFIED",))
OTHER = ProviderConfig("d.yaml", name="node-9", traits=("CUSTOM_OTHER",))
EMPTY = ProviderConfig("e.yaml", name="node-1")
LICENSE = ProviderConfig(
    "l.yaml",
    name="node-1",
    inventories={"CUSTOM_LICENSE": ClassInventory(10, reserved=1, max_unit=4, step_size=2)},
    traits=("CUSTOM_LICENSED",),
)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([EVERY, NAMED], NAMED),
        ([NAMED, EVERY], NAMED),
        ([IDENTIFIED, EVERY], IDENTIFIED),
        ([OTHER, EVERY], EVERY),
        ([OTHER], None),
        ([EMPTY, EVERY], EVERY),
        ([EVERY, EMPTY, NAMED], NAMED),
        ([NAMED, EMPTY], NAMED),
        ([], None),
    ],
)
def test_a_nodes_own_entry_replaces_that_of_every_node(configs, expected):
    assert find_config(configs, UUID, "node-1") is expected


def look(policy, stored=None, **changes):
    return account(make_snapshot("node-1", **changes), stored, policy, NOW).values


def test_classes_and_traits_enter_the_row():
    values = look(Policy(providers=(LICENSE,)), traits=("HW_CPU_X86_AVX2",))
    assert values.traits == ["CUSTOM_LICENSED", "HW_CPU_X86_AVX2"]
    assert values.inventory == {
        "CUSTOM_LICENSE": {
            "total": 10,
            "reserved": 1,
            "min_unit": 1,
            "max_unit": 4,
            "step_size": 2,
            "allocation_ratio": 1.0,
        }
    }


def test_what_the_driver_has_is_kept_and_what_no_file_has_any_more_is_gone():
    gpu = Gpu("0000:81:00.0", "NVIDIA", "H100", 80000, "GPU-1", "550", 0)
    gpus = dataclasses.replace(make_snapshot().gpus, value=(gpu,))
    first = look(Policy(providers=(LICENSE,)), gpus=gpus)
    assert set(first.inventory) == {"PGPU", "CUSTOM_LICENSE"}
    second = look(Policy(), make_record(first), gpus=gpus)
    assert (set(second.inventory), second.traits) == ({"PGPU"}, [])


def test_a_node_that_cannot_be_read_keeps_its_traits_and_gets_those_of_the_files():
    stored = make_record(look(Policy(), traits=("HW_NUMA_ROOT",)))
    policy = Policy(providers=(LICENSE,))
    values = look(policy, stored, hypervisor=failed(SOURCE, "boom"))
    assert values.traits == ["CUSTOM_LICENSED", "HW_NUMA_ROOT"]
    assert "CUSTOM_LICENSE" in values.inventory


def test_two_entries_of_one_node_are_rejected():
    check_configs([EVERY, NAMED, OTHER, EMPTY], [make_record()])
    with pytest.raises(ConfigError) as raised:
        check_configs([EVERY, NAMED, IDENTIFIED], [make_record()])
    assert str(raised.value) == (
        f"c.yaml: provider {UUID}: node node-1 (uuid {UUID}) has another entry, node-1 in b.yaml"
    )


def test_an_entry_of_no_node_is_a_warning():
    (warning,) = list_unused_configs([EVERY, NAMED, IDENTIFIED, OTHER], [make_record()])
    assert (warning.kind, warning.item) == (WarningKind.PROVIDER_CONFIG, "node-9")
    assert warning.message.startswith("d.yaml: provider node-9: no node of this host has this name")


def test_an_entry_that_adds_nothing_is_a_warning():
    empty = [EMPTY, ProviderConfig("f.yaml"), ProviderConfig("g.yaml", name="node-1")]
    named, every = list_unused_configs([EVERY, NAMED, *empty], [make_record()])
    assert (named.kind, named.item) == (WarningKind.PROVIDER_CONFIG, "node-1")
    assert named.message == (
        "g.yaml: provider node-1: adds neither a resource class nor a trait; the entry is ignored"
    )
    assert every.item == "$COMPUTE_NODE"
