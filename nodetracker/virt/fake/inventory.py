"""Parse the fake driver's YAML file into snapshots; errors name the invalid entry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nodetracker.model.errors import HostDataError
from nodetracker.model.node import HostSnapshot
from nodetracker.virt.fake.node_entry import parse_node
from nodetracker.virt.fake.values import EntryError

HANG = "hang"
ALL_NODES = "*"


@dataclass(frozen=True, slots=True)
class FakeInventory:
    """The parsed file.

    Attributes:
        is_ready: False: the driver reports that it is not ready.
        snapshots: nodename -> its snapshot.
        errors: nodename -> why its entry is invalid.
        unnamed: one line for each entry without a nodename; the list of nodes
            is incomplete while there is one.
        fail: nodename or ``*`` -> message, or ``hang``.
    """

    is_ready: bool = True
    snapshots: Mapping[str, HostSnapshot] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()
    fail: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodenames(self) -> tuple[str, ...]:
        """Every node that the file names, readable or not."""
        return tuple(self.snapshots) + tuple(self.errors)

    def get_failure(self, nodename: str) -> str | None:
        """Return the failure that the file demands for this node, None without one."""
        return self.fail.get(nodename, self.fail.get(ALL_NODES))


def parse_inventory(text: str, source: str) -> FakeInventory:
    """Parse the whole file.

    Args:
        source: name of the file in facts and errors.

    Raises:
        HostDataError: the file as a whole is not an inventory.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader either way
    except yaml.YAMLError as error:
        raise HostDataError(source, f"not valid YAML: {_yaml_problem(error)}") from error
    if document is None:
        raise HostDataError(source, "is empty")
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise HostDataError(source, "has no list 'nodes'")
    unknown = sorted(str(key) for key in document.keys() - {"nodes", "ready", "fail"})
    if unknown:
        raise HostDataError(source, f"unknown key {unknown[0]!r}")
    is_ready = document.get("ready", True)
    if not isinstance(is_ready, bool):
        raise HostDataError(source, "ready: expected true or false")
    return _parse_nodes(document["nodes"], source, is_ready, _parse_fail(document, source))


def _parse_nodes(
    entries: list[Any], source: str, is_ready: bool, fail: Mapping[str, str]
) -> FakeInventory:
    snapshots: dict[str, HostSnapshot] = {}
    errors: dict[str, str] = {}
    unnamed = []
    for index, entry in enumerate(entries):
        where = f"nodes[{index}]"
        nodename = entry.get("nodename") if isinstance(entry, dict) else None
        if not isinstance(nodename, str) or not 0 < len(nodename) <= 255:
            unnamed.append(f"{source}: {where}: has no nodename")
            continue
        if nodename in snapshots or nodename in errors:
            raise HostDataError(source, f"{where}: duplicate nodename {nodename!r}")
        try:
            snapshots[nodename] = parse_node(entry, nodename, where, source)
        except EntryError as error:
            errors[nodename] = str(error)
    return FakeInventory(is_ready, snapshots, errors, tuple(unnamed), fail)


def _parse_fail(document: Mapping[str, Any], source: str) -> dict[str, str]:
    fail = document.get("fail") or {}
    if not isinstance(fail, dict):
        raise HostDataError(source, "fail: expected a mapping of nodename to message")
    return {str(name): str(message) for name, message in fail.items()}


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"{problem} in line {mark.line + 1}" if mark is not None else str(problem)


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
