"""Everything that processes exchange by name: methods, arguments, fields and enum values.

A difference from the golden file, except in the name of a type, needs another
interface version: the second number for an addition with a default, the first
for anything else. GOLDEN=write writes the file again.
"""

import dataclasses
import enum
import inspect
import os
import typing
from pathlib import Path
from typing import Any

from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.ports import HostAgent, Store, WakeableAgent
from nodetracker.rpc.host_calls import CALLS
from nodetracker.rpc.interface import Interface
from nodetracker.rpc.waker import COMPUTE

GOLDEN = Path(__file__).parents[2] / "golden" / "interfaces.txt"


def render(hint: Any) -> str:
    if typing.get_args(hint):
        origin, arguments = typing.get_origin(hint), [render(arg) for arg in typing.get_args(hint)]
        is_union = origin in (typing.Union, type(int | str))
        return " | ".join(arguments) if is_union else f"{origin.__name__}[{', '.join(arguments)}]"
    if hint is Ellipsis:
        return "..."
    return "None" if hint is type(None) else str(getattr(hint, "__name__", hint))


def collect(hint: Any, found: dict[str, list[str]]) -> None:
    """Add the fields or values of every type that a hint contains."""
    for argument in typing.get_args(hint):
        collect(argument, found)
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or kind.__name__ in found:
        return
    if issubclass(kind, enum.Enum):
        found[kind.__name__] = [repr(item.value) for item in kind]
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = found[kind.__name__] = []
        for field in dataclasses.fields(kind):
            is_required = (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
            fields.append(f"{field.name}{'' if is_required else '?'}: {render(hints[field.name])}")
            collect(hints[field.name], found)


def describe(interface: Interface, protocol: type, types: dict[str, list[str]]) -> list[str]:
    lines = [f"{interface.topic} {interface.version}"]
    for name in sorted(interface.methods):
        function = getattr(protocol, name)
        hints = typing.get_type_hints(function)
        for hint in hints.values():
            collect(hint, types)
        arguments = ", ".join(
            f"{item.name}{'?' if item.default is not item.empty else ''}: {render(hints[item.name])}"
            for item in inspect.signature(function).parameters.values()
            if item.name != "self"
        )
        lines.append(f"  {name}({arguments}) -> {render(hints['return'])}")
    return lines


def test_the_interfaces_equal_the_golden_file() -> None:
    types: dict[str, list[str]] = {}
    lines = []
    served = ((COMPUTE, WakeableAgent), (CALLS, HostAgent), (CONDUCTOR, Store))
    for interface, protocol in served:
        lines += [*describe(interface, protocol, types), ""]
    for name in sorted(types):
        lines += [name, *(f"  {item}" for item in types[name]), ""]
    text = "\n".join(lines)
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
