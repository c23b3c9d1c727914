"""Parse Nova's provider.yaml files, of which ``provider_config_location`` is the directory."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nodetracker.accounting import schemas
from nodetracker.accounting.schemas import Schema
from nodetracker.accounting.validator import check
from nodetracker.model.errors import ConfigError, RequestError
from nodetracker.model.provider import EVERY_NODE, ClassInventory, ProviderConfig
from nodetracker.model.text import parse_uuid, render_file_error

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
        document = _load(text)
    except Exception as error:  # PyYAML 6.0 raises many types for scalars, as of "2026-99-99"
        raise ConfigError(f"{source}: not valid YAML: {_describe(error)}") from error
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


def _describe(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"{problem} in line {mark.line + 1}" if mark is not None else problem


def _load(text: str) -> Any:
    """Load a document; reject duplicate keys, of which PyYAML keeps the last."""
    import yaml  # few hosts have such files

    class Loader(yaml.SafeLoader):
        pass

    def construct_mapping(loader: Loader, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        mapping: dict[Any, Any] = {}
        yield mapping
        seen = []
        for key_node, _ in node.value:
            key = loader.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark
                )
            seen.append(key)
        mapping.update(loader.construct_mapping(node, deep=True))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct_mapping)
    return yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader
