"""Nova's provider.yaml files: every malformed kind is rejected, and the error names its place."""

import os

import pytest

from nodetracker.bootstrap.options.provider_files import parse_provider_file, read_provider_files
from nodetracker.model.errors import ConfigError
from nodetracker.model.provider import ClassInventory, ProviderConfig
from tests.hostile.limits import limited
from tests.hostile.values import YAML_TEXTS

UUID = "5213b75d-9260-42a6-b236-f39b0fd10561"
# As in Nova's documentation.
FILE = """
meta:
  schema_version: '1.0'
providers:
  - identification:
      uuid: '$COMPUTE_NODE'
    inventories:
      additional:
        - CUSTOM_EXAMPLE_RESOURCE_CLASS:
            total: 100
            reserved: 0
            min_unit: 1
            max_unit: 10
            step_size: 1
            allocation_ratio: 1.0
    traits:
      additional:
        - 'CUSTOM_EXAMPLE_TRAIT'
  - identification:
      name: 'EXAMPLE_RESOURCE_PROVIDER'
    inventories:
      additional:
        - CUSTOM_ONE: {total: 22, reserved: 2, step_size: 2, allocation_ratio: 16.0}
        - CUSTOM_TWO: {total: 100}
  - identification:
      uuid: 5213B75D-9260-42A6-B236-F39B0FD10561
    traits:
      additional: [CUSTOM_B, CUSTOM_A, CUSTOM_B]
"""


def test_a_file_as_nova_documents_it_is_read():
    every, named, identified = parse_provider_file(FILE, "p.yaml")
    assert every.is_for_every_node
    assert every.inventories == {"CUSTOM_EXAMPLE_RESOURCE_CLASS": ClassInventory(100, max_unit=10)}
    assert every.traits == ("CUSTOM_EXAMPLE_TRAIT",)
    assert named == ProviderConfig(
        "p.yaml",
        name="EXAMPLE_RESOURCE_PROVIDER",
        inventories={
            "CUSTOM_ONE": ClassInventory(22, 2, step_size=2, allocation_ratio=16.0),
            "CUSTOM_TWO": ClassInventory(100),
        },
    )
    assert identified == ProviderConfig("p.yaml", uuid=UUID, traits=("CUSTOM_A", "CUSTOM_B"))


def test_keys_of_later_minor_versions_are_ignored():
    text = "meta: {schema_version: '1.7', author: me}\nproviders: []\nextra: {}\n"
    assert parse_provider_file(text, "p.yaml") == ()


META = "meta: {schema_version: '1.0'}\n"


TRAIT = "traits: {additional: [CUSTOM_A]}"


def entry(rest, identification=f"uuid: {UUID}"):
    return f"{META}providers:\n  - identification: {{{identification}}}\n    {rest}\n"


def inventory(entries):
    return entry(f"inventories: {{additional: [{entries}]}}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("providers: [", "p.yaml: not valid YAML: .* in line 2|p.yaml: not valid YAML"),
        ("meta: 2026-99-99", "p.yaml: not valid YAML: month must be in 1..12"),
        ("meta: !!int ''", "p.yaml: not valid YAML: "),
        ("meta: !!timestamp x", "p.yaml: not valid YAML: "),
        ("[" * 3000, "p.yaml: not valid YAML: .* depth"),
        ("", "p.yaml: expected a mapping with the keys meta and providers, got null"),
        ("- a", "p.yaml: expected a mapping with the keys meta and providers, got"),
        ("providers: []", "p.yaml: meta: is missing"),
        ("meta: {}", "p.yaml: meta.schema_version: is missing"),
        ("meta: {schema_version: 1.0}", "p.yaml: meta.schema_version: expected a version 1.x"),
        ("meta: {schema_version: '2.0'}", "p.yaml: meta.schema_version: expected a version 1.x"),
        (f"{META}providers: {{}}", "p.yaml: providers: expected a list of providers"),
        (f"{META}providers: [1]", r"p.yaml: providers\[0\]: expected a mapping, got 1"),
        (f"{META}{META}", "p.yaml: not valid YAML: duplicate key 'meta' in line 2"),
        (f"{META}providers: [{{}}]", r"p.yaml: providers\[0\]: identification: is missing"),
        (entry("{}: 1", ""), "p.yaml: "),
        (entry("x: 1", ""), r"providers\[0\]: identification: expected either uuid or name"),
        (entry("x: 1", "uuid: a, name: b"), "identification: expected either uuid or name"),
        (entry("x: 1", "address: b"), "identification: unknown key 'address'"),
        (
            entry("x: 1", "uuid: nobody"),
            "p.yaml: provider nobody: identification.uuid: 'nobody' is neither a valid UUID nor",
        ),
        (entry("x: 1", f"name: {'n' * 201}"), "identification.name: expected a name of 1 to 200"),
        (entry("inventories: []"), r"inventories: expected a mapping with the key additional"),
        (entry("inventories: {additional: {}}"), "inventories.additional: expected a list"),
        (entry("traits: {additional: [1]}"), r"traits.additional\[0\]: expected a text"),
        (
            entry("traits: {additional: [HW_CPU_X86_AVX]}"),
            f"provider {UUID}: traits.additional: invalid trait 'HW_CPU_X86_AVX': expected CUSTOM_",
        ),
        (entry("traits: {additional: [CUSTOM_low]}"), "invalid trait 'CUSTOM_low'"),
        (
            inventory("VCPU: {total: 1}"),
            f"p.yaml: provider {UUID}: inventories.additional: invalid resource class 'VCPU': "
            "expected CUSTOM_ followed by .* reported by drivers",
        ),
        (inventory("1: {total: 1}"), "invalid resource class 1"),
        (inventory("CUSTOM_A"), r"inventories.additional\[0\]: expected a mapping of resource"),
        (inventory("CUSTOM_A: {}"), "inventories.additional: CUSTOM_A: total: is missing"),
        (inventory("CUSTOM_A: {total: '1'}"), "CUSTOM_A: total: expected an integer from 1"),
        (inventory("CUSTOM_A: {total: 0}"), "CUSTOM_A: total: expected an integer from 1"),
        (inventory("CUSTOM_A: {total: 1, max: 2}"), "CUSTOM_A: unknown key 'max'"),
        (inventory("CUSTOM_A: {total: 1, step_size: 0}"), "CUSTOM_A: step_size: expected"),
        (inventory("CUSTOM_A: {total: 1, reserved: 2}"), "CUSTOM_A: reserved: exceeds total 1"),
        (
            inventory("CUSTOM_A: {total: 1, allocation_ratio: .nan}"),
            "CUSTOM_A: allocation_ratio: expected a number above 0",
        ),
        (inventory("CUSTOM_A: {total: 1, allocation_ratio: 0}"), "allocation_ratio: expected"),
        (
            inventory("{CUSTOM_A: {total: 1}}, {CUSTOM_A: {total: 2}}"),
            "inventories.additional: duplicate resource class CUSTOM_A",
        ),
        (
            inventory("{CUSTOM_A: {total: 1}, CUSTOM_A: {total: 2}}"),
            "duplicate key 'CUSTOM_A' in line 4",
        ),
    ],
)
def test_a_malformed_file_is_rejected_and_its_place_named(text, problem):
    with pytest.raises(ConfigError, match=problem) as raised:
        parse_provider_file(text, "p.yaml")
    assert "\n" not in str(raised.value)


def write(directory, **files):
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text)


def test_all_files_of_a_directory_are_read_in_order(tmp_path):
    (tmp_path / "notes.txt").write_text("{")
    write(tmp_path, b=entry("x: 1"), a=entry("x: 1", "name: n1"))
    first, second = read_provider_files(tmp_path)
    assert (first.name, second.uuid) == ("n1", UUID)
    assert first.source == str(tmp_path / "a.yaml")
    assert read_provider_files(tmp_path / "missing") == ()


@pytest.mark.parametrize("identification", [f"uuid: {UUID}", "name: n1", "uuid: $COMPUTE_NODE"])
def test_a_node_that_two_files_identify_alike_is_rejected(tmp_path, identification):
    write(tmp_path, a=entry(TRAIT, identification), b=entry(TRAIT, identification))
    name = identification.split()[1].strip("'")
    with pytest.raises(ConfigError, match="duplicate identification, first in") as raised:
        read_provider_files(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'b.yaml'}: provider {name}: duplicate")
    assert str(tmp_path / "a.yaml") in str(raised.value)


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("rest", ["x: 1", "traits: {additional: []}", "inventories: {}"])
def test_an_entry_that_adds_nothing_does_not_count_as_the_node_s_other(tmp_path, names, rest):
    write(tmp_path, **dict(zip(names, [entry(rest), entry(TRAIT)], strict=True)))
    found = read_provider_files(tmp_path)
    assert sorted(config.is_empty for config in found) == [False, True]


@pytest.mark.parametrize("text", YAML_TEXTS.values(), ids=YAML_TEXTS)
def test_a_hostile_file_is_named_within_a_second(text):
    with limited(seconds=1), pytest.raises(ConfigError, match=r"p\.yaml: "):
        parse_provider_file(text, "p.yaml")


def test_a_file_that_is_too_large_or_never_ends_is_named(tmp_path):
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(2**40)
    os.mkfifo(tmp_path / "b.yaml")
    with pytest.raises(ConfigError) as raised:
        read_provider_files(tmp_path)
    assert [problem.rpartition(": ")[2] for problem in raised.value.problems] == [
        "larger than 4194304 bytes",
        "not a file",
    ]


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(ConfigError, match="a.yaml: cannot be read: Is a directory$"):
        read_provider_files(tmp_path)
    (tmp_path / "a.yaml").rmdir()
    (tmp_path / "a.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="a.yaml: cannot be read: not valid UTF-8$"):
        read_provider_files(tmp_path)
    with pytest.raises(ConfigError, match=r"provider_config_location: \S+: Not a directory$"):
        read_provider_files(tmp_path / "a.yaml")
