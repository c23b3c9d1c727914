"""Parse Nova's provider.yaml files, of which ``provider_config_location`` is the directory."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nodetracker.accounting import schemas
from nodetracker.accounting.schemas import Schema
from nodetracker.accounting.validator import check
from nodetracker.model.errors import ConfigError, HostDataError, RequestError
from nodetracker.model.provider import EVERY_NODE, ClassInventory, ProviderConfig
from nodetracker.model.text import parse_uuid, render_file_error
from nodetracker.virt.yaml_document import MAX_LENGTH, parse_yaml

_MAX_BYTES = 4 * MAX_LENGTH  # of the longest characters
_NAME = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
"""A custom resource class or trait as placement names them."""


def read_provider_files(directory: Path) -> tuple[ProviderConfig, ...]:
    """Read all files of a directory whose name ends in .yaml; a missing directory has none.

    Entries that add nothing are among the entries, and may identify a node again.

    Raises:
        ConfigError: files cannot be read or are malformed, or two entries identify
            the same node; it names all of them, with provider and key.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".yaml")
    except FileNotFoundError:
        return ()
    except OSError as error:
        reason = render_file_error(error)
        raise ConfigError(f"[compute] provider_config_location: {directory}: {reason}") from error
    entries: list[ProviderConfig] = []
    problems: list[str] = []
    for path in paths:
        try:
            entries += _read_file(path)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return _require_unique(entries)


def _read_file(path: Path) -> tuple[ProviderConfig, ...]:
    try:
        if path.is_fifo() or path.is_char_device():  # reading them may never end
            raise ConfigError(f"{path}: cannot be read: not a file")
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: cannot be read: larger than {_MAX_BYTES} bytes")
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {render_file_error(error)}") from error
    return parse_provider_file(text, str(path))


def parse_provider_file(text: str, source: str) -> tuple[ProviderConfig, ...]:
    """Parse one file.

    Args:
        source: its path, for messages.

    Raises:
        ConfigError: it is malformed; the message names file, provider and key.
    """
    try:
        document = parse_yaml(text, source)
    except HostDataError as error:
        raise ConfigError(str(error)) from error
    _check(document, schemas.PROVIDER_FILE, source)
    return tuple(
        _parse_entry(entry, source, f"providers[{number}]")
        for number, entry in enumerate(document.get("providers", ()))
    )


def _parse_entry(entry: Mapping[str, Any], source: str, where: str) -> ProviderConfig:
    _check(entry, schemas.PROVIDER, f"{source}: {where}")
    (kind, identified), *_ = entry["identification"].items()
    where = f"{source}: provider {identified}"
    uuid, name = None, None
    if kind == "name":
        name = identified
    elif identified != EVERY_NODE:
        uuid = _parse_uuid(identified, where)
    traits = entry.get("traits", {}).get("additional", ())
    for trait in traits:
        _require_custom(trait, "trait", f"{where}: traits.additional")
    return ProviderConfig(
        source, uuid, name, _parse_inventories(entry, where), tuple(sorted(set(traits)))
    )


def _parse_inventories(entry: Mapping[str, Any], where: str) -> dict[str, ClassInventory]:
    where = f"{where}: inventories.additional"
    found: dict[str, ClassInventory] = {}
    for inventories in entry.get("inventories", {}).get("additional", ()):
        for name, values in inventories.items():
            _require_custom(name, "resource class", where)
            if name in found:
                raise ConfigError(f"{where}: duplicate resource class {name}")
            _check(values, schemas.CLASS_INVENTORY, f"{where}: {name}")
            if values.get("reserved", 0) > values["total"]:
                raise ConfigError(f"{where}: {name}: reserved: exceeds total {values['total']}")
            found[name] = ClassInventory(**values)
    return found


def _require_custom(name: object, what: str, where: str) -> None:
    """Check a name; those that are not custom are the drivers', in Nova as well.

    Raises:
        ConfigError: it is malformed, or not a custom one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: invalid {what} {name!r}: expected CUSTOM_ followed by capitals, digits "
            "and underscores; all others are reported by drivers"
        )


def _require_unique(entries: Iterable[ProviderConfig]) -> tuple[ProviderConfig, ...]:
    entries = tuple(entries)
    found: dict[tuple[str | None, str | None], ProviderConfig] = {}
    for entry in entries:
        if entry.is_empty:
            continue
        other = found.setdefault((entry.uuid, entry.name), entry)
        if other is not entry:
            raise ConfigError(
                f"{entry.source}: provider {entry.identification}: duplicate identification, "
                f"first in {other.source}"
            )
    return entries


def _parse_uuid(text: str, where: str) -> str:
    try:
        return parse_uuid(text)
    except ValueError:
        raise ConfigError(
            f"{where}: identification.uuid: {text!r} is neither a valid UUID nor {EVERY_NODE}"
        ) from None


def _check(document: object, schema: Schema, where: str) -> None:
    try:
        check(document, schema)
    except RequestError as error:
        raise ConfigError(f"{where}: {error}") from None
