"""Parse ``[pci] device_spec`` and ``[pci] alias``, which have Nova's JSON format."""

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from nodetracker.model.errors import ConfigError
from nodetracker.model.pci import (
    AddressSpec,
    Alias,
    AliasSpec,
    DeviceSpec,
    PciDeviceType,
    PciNumaPolicy,
    normalize_resource_class,
    normalize_traits,
)
from nodetracker.model.text import render_value

E = TypeVar("E", bound=enum.StrEnum)

_ANY = "*"
_HEX = re.compile(r"[0-9a-fA-F]{1,8}")
_ID = re.compile(r"[0-9a-fA-F]{4}")
_MAX_ID = 0xFFFF
_MAX_DOMAIN = 0xFFFFFFFF  # Nova's limit is FFFF, which VMD's domains exceed
_MAX_BUS = 0xFF
_MAX_SLOT = 0x1F
_MAX_FUNCTION = 7
_MAX_ALIAS_LENGTH = 256
_ADDRESS_PARTS = ("domain", "bus", "slot", "function")
_BOOLEAN_TAGS = frozenset(
    {"managed", "live_migratable", "one_time_use", "remote_managed", "trusted"}
)
_POOL_KEYS = frozenset({"count", "dev_type", "numa_node"})
_ALIAS_KEYS = frozenset(
    {
        "name", "vendor_id", "product_id", "device_type", "numa_policy", "live_migratable",
        "resource_class", "traits", "capability_type",
    }
)  # fmt: skip
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
_FALSE = frozenset({"0", "f", "false", "off", "n", "no"})


class _EntryError(Exception):
    """An entry is invalid; the message starts with the key."""


def parse_device_specs(
    texts: Iterable[str], report_in_placement: bool = False
) -> tuple[DeviceSpec, ...]:
    """Parse the values of ``device_spec``, keeping their order.

    Args:
        texts: each is a JSON object or a list of objects.
        report_in_placement: whether one_time_use is allowed.

    Raises:
        ConfigError: entries are invalid; it names the option, and of each the
            entry and the key.
    """
    specs = []
    problems = []
    for text in texts:
        try:
            specs += [_parse_spec(entry, report_in_placement) for entry in _load_objects(text)]
        except _EntryError as error:
            problems.append(f"[pci] device_spec: {text.strip()}: {error}")
    if problems:
        raise ConfigError(*problems)
    return tuple(specs)


def parse_aliases(texts: Iterable[str]) -> dict[str, Alias]:
    """Parse the values of ``alias``; entries with the same name become one alias.

    Args:
        texts: each is a JSON object.

    Raises:
        ConfigError: entries are invalid; it names the option, and of each the
            entry and the key.
    """
    aliases: dict[str, Alias] = {}
    problems = []
    for text in texts:
        try:
            alias = _parse_alias(_load(text))
            aliases[alias.name] = _merge_alias(aliases.get(alias.name), alias)
        except _EntryError as error:
            problems.append(f"[pci] alias: {text.strip()}: {error}")
    if problems:
        raise ConfigError(*problems)
    return aliases


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _EntryError(f"not valid JSON: {error}") from error


def _load_objects(text: str) -> Iterator[Mapping[str, Any]]:
    document = _load(text)
    for entry in document if isinstance(document, list) else [document]:
        if not isinstance(entry, dict):
            raise _EntryError("is neither a JSON object nor a list of objects")
        yield entry


def _parse_spec(entry: Mapping[str, Any], report_in_placement: bool) -> DeviceSpec:
    named = {"vendor_id", "product_id", "address", "devname"}
    tags = {key: _parse_tag(key, entry[key]) for key in entry if key not in named}
    if tags.get("one_time_use") == "true" and not report_in_placement:
        raise _EntryError("one_time_use: requires [pci] report_in_placement")
    devname = _text(entry, "devname").strip() if "devname" in entry else None
    if devname == "":
        raise _EntryError("devname: must not be empty")
    if devname is not None and "address" in entry:
        raise _EntryError("devname: cannot be combined with address")
    return DeviceSpec(
        vendor_id=_parse_hex("vendor_id", _text(entry, "vendor_id", _ANY), _MAX_ID, 4),
        product_id=_parse_hex("product_id", _text(entry, "product_id", _ANY), _MAX_ID, 4),
        address=_parse_address(entry.get("address")),
        devname=devname,
        tags=tags,
    )


def _parse_tag(key: str, value: Any) -> str | None:
    if key in _POOL_KEYS:
        raise _EntryError(f"{key}: is reserved for pools and cannot be a tag")
    if key in _BOOLEAN_TAGS:
        return "true" if _parse_boolean(key, value) else "false"
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise _EntryError(f"{key}: {render_value(value)} is not a string")


def _parse_boolean(key: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _EntryError(f"{key}: {render_value(value)} is neither true nor false")


def _parse_address(value: Any) -> AddressSpec:
    if value is None:
        return AddressSpec()
    if isinstance(value, str):
        return _parse_glob(value)
    if isinstance(value, dict):
        return _parse_patterns(value)
    raise _EntryError(f"address: {render_value(value)} is neither a string nor an object")


def _parse_glob(text: str) -> AddressSpec:
    """Parse ``[[domain:]bus:]slot[.function]``; a missing or blank part matches anything."""
    front, _, function = text.partition(".")
    parts = front.split(":")
    if len(parts) > 3:
        raise _EntryError(f"address: {text!r} has more parts than domain, bus and slot")
    domain, bus, slot = [""] * (3 - len(parts)) + parts
    return AddressSpec(
        domain=_parse_hex("address.domain", domain.strip() or _ANY, _MAX_DOMAIN, 4),
        bus=_parse_hex("address.bus", bus.strip() or _ANY, _MAX_BUS, 2),
        slot=_parse_hex("address.slot", slot.strip() or _ANY, _MAX_SLOT, 2),
        function=_parse_hex("address.function", function.strip() or _ANY, _MAX_FUNCTION, 1),
    )


def _parse_patterns(entry: Mapping[str, Any]) -> AddressSpec:
    unknown = sorted(entry.keys() - set(_ADDRESS_PARTS))
    if unknown:
        raise _EntryError(f"address.{unknown[0]}: unknown key")
    patterns = {}
    for part in _ADDRESS_PARTS:
        try:
            patterns[part] = re.compile(entry.get(part, ".*"))
        except (re.error, TypeError) as error:
            raise _EntryError(f"address.{part}: is not a regular expression: {error}") from error
    return AddressSpec(**patterns)


def _parse_alias(entry: Any) -> Alias:
    if not isinstance(entry, dict):
        raise _EntryError("is not a JSON object")
    unknown = sorted(entry.keys() - _ALIAS_KEYS)
    if unknown:
        raise _EntryError(f"{unknown[0]}: unknown key")
    name = _text(entry, "name").strip()
    if not 0 < len(name) <= _MAX_ALIAS_LENGTH:
        raise _EntryError(f"name: must have 1 to {_MAX_ALIAS_LENGTH} characters")
    if entry.get("capability_type", "pci") != "pci":
        raise _EntryError(f"capability_type: {render_value(entry['capability_type'])} is not pci")
    return Alias(
        name=name,
        specs=(_parse_alias_spec(entry),),
        device_type=_parse_choice(PciDeviceType, entry, "device_type"),
        numa_policy=_parse_choice(PciNumaPolicy, entry, "numa_policy") or PciNumaPolicy.LEGACY,
    )


def _parse_alias_spec(entry: Mapping[str, Any]) -> AliasSpec:
    """Parse what an alias matches: devices by class, by vendor and product, or by all of these."""
    resource_class = _text(entry, "resource_class").strip()
    required = () if resource_class else ("vendor_id", "product_id")
    missing = [key for key in required if key not in entry]
    if missing:
        raise _EntryError(
            f"{missing[0]}: is missing: an alias needs vendor_id and product_id, or resource_class"
        )
    ids = {key: _parse_id(entry, key) for key in ("vendor_id", "product_id") if key in entry}
    return AliasSpec(
        vendor_id=ids.get("vendor_id"),
        product_id=ids.get("product_id"),
        live_migratable=_parse_boolean("live_migratable", entry["live_migratable"])
        if "live_migratable" in entry
        else None,
        resource_class=normalize_resource_class(resource_class) if resource_class else None,
        traits=normalize_traits(_text(entry, "traits")),
    )


def _merge_alias(known: Alias | None, alias: Alias) -> Alias:
    """Add the spec of another entry with the same name."""
    if known is None:
        return alias
    for key in ("device_type", "numa_policy"):
        if getattr(known, key) != getattr(alias, key):
            raise _EntryError(f"{key}: differs from the first entry of {alias.name!r}")
    return Alias(alias.name, known.specs + alias.specs, alias.device_type, alias.numa_policy)


def _text(entry: Mapping[str, Any], key: str, default: str = "") -> str:
    value = entry.get(key, default)
    if not isinstance(value, str):
        raise _EntryError(f"{key}: {render_value(value)} is not a string")
    return value


def _parse_choice(choices: type[E], entry: Mapping[str, Any], key: str) -> E | None:
    if key not in entry:
        return None
    try:
        return choices(entry[key])
    except ValueError as error:
        names = ", ".join(choices)
        raise _EntryError(f"{key}: {render_value(entry[key])} is not one of {names}") from error


def _parse_id(entry: Mapping[str, Any], key: str) -> str:
    """Return a vendor or product id, which an alias must state in full."""
    text = _text(entry, key)
    if not _ID.fullmatch(text):
        raise _EntryError(f"{key}: {text!r} is not a number of 4 hex digits")
    return text.lower()


def _parse_hex(key: str, text: str, largest: int, digits: int) -> str | None:
    """Return a number as lower-case hex of at least `digits`, None for ``*``."""
    text = text.strip()
    if text == _ANY:
        return None
    if not _HEX.fullmatch(text) or int(text, 16) > largest:
        raise _EntryError(f"{key}: {text!r} is not a hex number up to {largest:x}")
    return f"{int(text, 16):0{digits}x}"
