import json
import re

import pytest

from nodetracker.bootstrap.options.pci_entries import parse_aliases, parse_device_specs
from nodetracker.model.errors import ConfigError
from nodetracker.model.pci import (
    AddressSpec,
    Alias,
    AliasSpec,
    DeviceSpec,
    PciDevice,
    PciDeviceType,
    PciNumaPolicy,
    find_tags,
    track_device,
)

VF = PciDevice(
    "0000:81:10.2", "8086", "10ed", dev_type=PciDeviceType.VF, parent_addr="0000:81:00.0"
)
PF = PciDevice("0000:81:00.0", "8086", "10fb", dev_type=PciDeviceType.PF)
NVME = PciDevice("10000:e1:00.0", "144d", "a80a")


def parse(*entries, report_in_placement=False):
    return parse_device_specs(map(json.dumps, entries), report_in_placement)


def tags_of(device, *entries, netdevs=None):
    return find_tags(device, parse(*entries), netdevs or {})


class TestDeviceSpecs:
    @pytest.mark.parametrize(
        ("address", "glob"),
        [
            ("0000:81:10.2", AddressSpec("0000", "81", "10", "2")),
            ("0:5:1.0", AddressSpec("0000", "05", "01", "0")),
            ("0000:0A:00.0", AddressSpec("0000", "0a", "00", "0")),
            ("10000:e1:00.0", AddressSpec("10000", "e1", "00", "0")),
            ("*:0a:00.*", AddressSpec(None, "0a", "00", None)),
            ("81:10", AddressSpec(None, "81", "10", None)),
            (":10.2", AddressSpec(None, None, "10", "2")),
            ("10", AddressSpec(slot="10")),
            (".2", AddressSpec(function="2")),
            ("*", AddressSpec()),
            ("", AddressSpec()),
        ],
    )
    def test_an_address_may_omit_parts(self, address, glob):
        (spec,) = parse({"address": address})
        assert spec == DeviceSpec(address=glob)

    @pytest.mark.parametrize(
        ("entry", "device", "is_match"),
        [
            ({}, NVME, True),
            ({"vendor_id": "8086", "product_id": "10ED"}, VF, True),
            ({"vendor_id": "8086", "product_id": "10ed"}, PF, False),
            ({"vendor_id": "*", "product_id": "10ed"}, VF, True),
            ({"vendor_id": "86"}, PciDevice("0000:01:00.0", "0086", "0001"), True),
            ({"address": "0000:81:10.2"}, VF, True),
            ({"address": "0000:81:00.0"}, PF, True),
            ({"address": "0000:81:00.0"}, VF, True),
            ({"address": "0000:81:00.0", "product_id": "10fb"}, VF, False),
            ({"address": "0000:81:00.*"}, VF, False),
            ({"address": "10000:*:*.*"}, NVME, True),
            ({"address": "1000:*:*.*"}, NVME, False),
            ({"address": {"bus": "81", "slot": "1[0-1]", "function": "[0-3]"}}, VF, True),
            ({"address": {"function": "[4-7]"}}, VF, False),
            ({"address": {"slot": "1"}}, VF, True),
            ({"address": {"domain": "1000"}}, NVME, True),
            ({"address": {"domain": "1000$"}}, NVME, False),
            ({"address": {"bus": "81", "slot": "00", "function": "0"}}, VF, False),
            ({"address": {"domain": "0000", "bus": "81", "slot": "00", "function": "0"}}, PF, True),
            ({"address": {"domain": "0000", "bus": "81", "slot": "00", "function": "0"}}, VF, True),
            ({"address": {"domain": "0000", "bus": "81", "slot": "0", "function": "0"}}, VF, False),
            (
                {"address": {"domain": "0000", "bus": "81", "slot": "00", "function": "[0]"}},
                VF,
                False,
            ),
            ({"devname": "eth0"}, PF, True),
            ({"devname": "eth0"}, VF, True),
            ({"devname": "eth0", "vendor_id": "15b3"}, PF, False),
            ({"devname": "eth9"}, PF, False),
        ],
        ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
    )
    def test_match_devices(self, entry, device, is_match):
        tags = tags_of(device, entry, netdevs={"eth0": PF.address})
        assert tags == ({} if is_match else None)

    def test_the_first_that_matches_wins(self):
        entries = [{"vendor_id": "144d"}, {"product_id": "10ed", "physical_network": "one"}]
        assert tags_of(VF, *entries, {"physical_network": "two"}) == {"physical_network": "one"}

    def test_may_be_in_a_list(self):
        entries = [{"vendor_id": "8086"}, {"vendor_id": "144d"}]
        assert parse(entries) == parse(*entries)

    @pytest.mark.parametrize(
        ("given", "tag"),
        [("True", "true"), ("yes", "true"), (True, "true"), ("0", "false"), (False, "false")],
    )
    @pytest.mark.parametrize("key", ["managed", "live_migratable", "one_time_use", "trusted"])
    def test_boolean_tags_become_true_or_false(self, key, given, tag):
        (spec,) = parse({key: given}, report_in_placement=True)
        assert spec.tags == {key: tag}

    def test_other_tags_are_unchanged(self):
        tags = {"physical_network": None, "resource_class": "gpu", "mine": "Yes"}
        assert parse(tags)[0].tags == tags

    def test_a_physical_function_cannot_be_managed_remotely(self):
        assert tags_of(PF, {"remote_managed": "true"}) is None
        assert tags_of(VF, {"remote_managed": "true"}) == {"remote_managed": "true"}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{", "not valid JSON: Expecting property name"),
            ('"8086"', "is neither a JSON object nor a list of objects"),
            ('[{}, "8086"]', "is neither a JSON object nor a list of objects"),
            ('{"vendor_id": "80861"}', "vendor_id: '80861' is not a hex number up to ffff"),
            ('{"vendor_id": ""}', "vendor_id: '' is not a hex number up to ffff"),
            ('{"product_id": 1234}', "product_id: 1234 is not a string"),
            ('{"product_id": "0x10"}', "product_id: '0x10' is not a hex number up to ffff"),
            ('{"address": 5}', "address: 5 is neither a string nor an object"),
            ('{"address": "0:0:0:0.0"}', "address: '0:0:0:0.0' has more parts"),
            ('{"address": "0000:100:00.0"}', "address.bus: '100' is not a hex number up to ff"),
            ('{"address": "0000:81:20.0"}', "address.slot: '20' is not a hex number up to 1f"),
            ('{"address": "0000:81:00.8"}', "address.function: '8' is not a hex number up to 7"),
            ('{"address": "123456789:81:00.0"}', "address.domain: '123456789' is not a hex number"),
            ('{"address": {"bus": "["}}', "address.bus: is not a regular expression"),
            ('{"address": {"bus": 81}}', "address.bus: is not a regular expression"),
            ('{"address": {"func": "0"}}', "address.func: unknown key"),
            (
                '{"devname": "eth0", "address": "0:0:0.0"}',
                "devname: cannot be combined with address",
            ),
            ('{"devname": " "}', "devname: must not be empty"),
            ('{"trusted": "maybe"}', "trusted: 'maybe' is neither true nor false"),
            ('{"managed": null}', "managed: null is neither true nor false"),
            ('{"one_time_use": "yes"}', "one_time_use: requires [pci] report_in_placement"),
            ('{"mine": ["a"]}', "mine: ['a'] is not a string"),
            ('{"count": "3"}', "count: is reserved for pools"),
        ],
    )
    def test_an_invalid_entry_is_an_error_that_names_its_key(self, text, problem):
        with pytest.raises(ConfigError, match=re.escape(f"[pci] device_spec: {text}: {problem}")):
            parse_device_specs(["{}", text])


class TestAliases:
    def test_have_the_defaults_of_nova(self):
        text = '{"name": " nic ", "vendor_id": "8086", "product_id": "10ED"}'
        assert parse_aliases([text]) == {
            "nic": Alias("nic", (AliasSpec("8086", "10ed"),), None, PciNumaPolicy.LEGACY)
        }

    @pytest.mark.parametrize(
        ("entry", "tags", "is_match"),
        [
            ({"resource_class": "CUSTOM_PCI_8086_10ED"}, {}, True),
            ({"resource_class": "pci-8086-10ed"}, {}, True),
            ({"resource_class": "CUSTOM_PCI_8086_10FB"}, {}, False),
            ({"resource_class": "fast nic"}, {"resource_class": "CUSTOM_FAST_NIC"}, True),
            ({"resource_class": "CUSTOM_PCI_8086_10ED"}, {"resource_class": "nic"}, False),
            ({"resource_class": "nic", "vendor_id": "8086"}, {"resource_class": "nic"}, True),
            ({"resource_class": "nic", "vendor_id": "15b3"}, {"resource_class": "nic"}, False),
            ({"vendor_id": "8086", "product_id": "10ed", "traits": "gold"}, {}, False),
            (
                {"vendor_id": "8086", "product_id": "10ed", "traits": "gold,HW_NIC_DCB_ETS"},
                {"traits": "HW_NIC_DCB_ETS, silver, CUSTOM_GOLD"},
                True,
            ),
            (
                {"vendor_id": "8086", "product_id": "10ed", "traits": "HW_PCI_LIVE_MIGRATABLE"},
                {"live_migratable": "true"},
                True,
            ),
            ({"vendor_id": "8086", "product_id": "10ed", "capability_type": "pci"}, {}, True),
        ],
        ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
    )
    def test_match_the_resource_class_and_the_traits_of_tags(self, entry, tags, is_match):
        alias = parse_aliases([json.dumps({"name": "nic"} | entry)])["nic"]
        assert alias.matches(track_device(VF, tags=tags)) is is_match

    def test_with_the_same_name_are_alternatives(self):
        one = {"name": "nic", "vendor_id": "8086", "product_id": "10ed", "device_type": "type-VF",
               "numa_policy": "socket"}  # fmt: skip
        two = one | {"product_id": "1515", "live_migratable": "yes"}
        assert parse_aliases(map(json.dumps, [one, two])) == {
            "nic": Alias(
                "nic",
                (AliasSpec("8086", "10ed"), AliasSpec("8086", "1515", True)),
                PciDeviceType.VF,
                PciNumaPolicy.SOCKET,
            )
        }

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"name": ""}, "name: must have 1 to 256 characters"),
            ({"name": "x" * 257}, "name: must have 1 to 256 characters"),
            ({"name": 1}, "name: 1 is not a string"),
            ({"vendor_id": "*"}, "vendor_id: '*' is not a number of 4 hex digits"),
            ({"product_id": "86"}, "product_id: '86' is not a number of 4 hex digits"),
            (
                {"device_type": "vdpa"},
                "device_type: 'vdpa' is not one of type-PCI, type-PF, type-VF",
            ),
            ({"numa_policy": "near"}, "numa_policy: 'near' is not one of required, legacy"),
            ({"live_migratable": "x"}, "live_migratable: 'x' is neither true nor false"),
            ({"resource": "GPU"}, "resource: unknown key"),
            ({"resource_class": None}, "resource_class: null is not a string"),
            ({"traits": ["GOLD"]}, "traits: ['GOLD'] is not a string"),
            ({"capability_type": "usb"}, "capability_type: 'usb' is not pci"),
            ({"numa_policy": "socket"}, "numa_policy: differs from the first entry of 'nic'"),
            ({"device_type": "type-PF"}, "device_type: differs from the first entry of 'nic'"),
        ],
    )
    def test_an_invalid_entry_is_an_error_that_names_its_key(self, change, problem):
        entry = {"name": "nic", "vendor_id": "8086", "product_id": "10ed"}
        text = json.dumps(entry | change)
        with pytest.raises(ConfigError, match=re.escape(f"[pci] alias: {text}: {problem}")):
            parse_aliases([json.dumps(entry), text])

    @pytest.mark.parametrize(
        ("ids", "missing"),
        [
            ({}, "vendor_id"),
            ({"vendor_id": "8086"}, "product_id"),
            ({"product_id": "10ed"}, "vendor_id"),
        ],
    )
    def test_an_alias_that_matches_nothing_names_what_it_needs(self, ids, missing):
        problem = (
            f"{missing}: is missing: an alias needs vendor_id and product_id, or resource_class"
        )
        with pytest.raises(ConfigError, match=problem):
            parse_aliases([json.dumps({"name": "nic", **ids})])

    @pytest.mark.parametrize("text", ["[]", "7", '[{"name": "nic"}]'])
    def test_must_be_objects(self, text):
        with pytest.raises(ConfigError, match="is not a JSON object"):
            parse_aliases([text])
