"""Check or write docs/api-reference.md; run by tox's genapi environment.

It is made from the OpenAPI document. An object that a module with schemas names is
described once, under that name.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import nodetracker.api.handlers.own
from nodetracker.accounting import schemas
from nodetracker.api.openapi import build_document
from nodetracker.api.routes import ROUTES

PAGE = Path(__file__).parent.parent / "docs" / "api-reference.md"
INTRODUCTION = """\
# API reference

Every request below `/v1` that `nodetracker-api` accepts, with its parameters, body and answers. [The REST service](api.md) describes how
requests are authenticated and processed, and what they do. This page is made from `/v1/openapi.json` (`tox -e genapi -- write`).

Errors are answered as [Errors](api.md#errors) describes. Unless a key is described as optional, answers have it, and bodies need it.
"""
JSON_TYPES = {"object": "object", "array": "list", "string": "text", "integer": "integer"}


class Names:
    """Names of objects, by their schema: the constants of the modules that have schemas."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        for module in (*_list_modules(nodetracker.api.handlers.own), schemas):
            for constant, value in vars(module).items():
                if _is_named(constant, value) and _identify(value) not in self._names:
                    self._names[_identify(value)] = self._choose(module, constant)
        self.used: dict[str, Mapping[str, Any]] = {}

    def _choose(self, module: ModuleType, constant: str) -> str:
        """Return a new name; that of a private constant has the module's noun before it."""
        noun = module.__name__.rpartition(".")[2].removesuffix("s")
        own = constant.strip("_").lower().replace("_", " ")
        name = f"{noun} {own}" if constant.startswith("_") else own
        taken = self._names.values()
        return (name if name.capitalize() not in taken else f"{noun} {own}").capitalize()

    def find(self, schema: Mapping[str, Any]) -> str | None:
        """Return the name of an object, which is then described, None without one."""
        name = self._names.get(_identify(schema))
        if name is not None:
            self.used.setdefault(name, schema)
        return name


def _list_modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{found.name}")


def _is_named(constant: str, value: object) -> bool:
    if not constant.strip("_").isupper() or not isinstance(value, dict):
        return False
    properties = value.get("properties", {})
    return len(properties) > 2 and "links" not in properties and "QUERY" not in constant


def _identify(schema: Mapping[str, Any]) -> str:
    """Return what equal objects have in common, whatever describes them and whether null is one."""
    described = {key: value for key, value in schema.items() if key != "description"}
    types = described.get("type")
    if isinstance(types, list):
        described["type"] = [kind for kind in types if kind != "null"]
        if len(described["type"]) == 1:
            (described["type"],) = described["type"]
    return json.dumps(described, sort_keys=True)


def render_page() -> str:
    """Return the page."""
    document = build_document(ROUTES, "", "/")
    names = Names()
    parts = [INTRODUCTION]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                parts.append(_render_operation(path, method.upper(), operation, names))
    parts.append("## Objects\n")
    while True:  # describing an object may use others
        before = len(names.used)
        sections = [_render_object(name, names) for name in sorted(names.used)]
        if len(names.used) == before:
            return "\n".join([*parts, *sections]).rstrip("\n") + "\n"


def _render_operation(path: str, method: str, operation: Mapping[str, Any], names: Names) -> str:
    lines = [f"## {method} {path}\n", f"{operation['summary']}.\n"]
    if not operation["security"]:
        lines.append("It needs no credentials.\n")
    if operation["parameters"]:
        lines += ["| parameter | value |", "|---|---|"]
        for found in operation["parameters"]:
            note = "" if not found["required"] else "; required"
            lines.append(f"| `{found['name']}` | {_describe(found['schema'], names)}{note} |")
        lines.append("")
    body = operation.get("requestBody")
    if body is not None:
        lines += _render_content("Body", body["content"], names)
    for status, answer in operation["responses"].items():
        if status == "default":
            continue
        title = f"{status} {answer['description']}" if "description" in answer else status
        if "content" in answer:
            lines += _render_content(title, answer["content"], names)
        else:
            lines.append(f"**{title}**: without a body.\n")
    return "\n".join(lines)


def _render_content(title: str, content: Mapping[str, Any], names: Names) -> list[str]:
    schema = content["application/json"]["schema"]
    if names.find(schema) is not None or "properties" not in schema:
        return [f"**{title}**: {_describe(schema, names)}.\n"]
    return [f"**{title}**:\n", *_render_keys(schema, names), ""]


def _render_object(name: str, names: Names) -> str:
    return "\n".join([f"### {name}\n", *_render_keys(names.used[name], names), ""])


def _render_keys(schema: Mapping[str, Any], names: Names) -> list[str]:
    return ["| key | value |", "|---|---|", *_list_keys(schema, names, "")]


def _list_keys(schema: Mapping[str, Any], names: Names, prefix: str) -> Iterator[str]:
    """Yield a row for each key of an object, and for those of objects inside it."""
    required = schema.get("required", ())
    for key, described in schema["properties"].items():
        value = {} if isinstance(described, bool) else described
        note = "" if key in required else "; optional"
        yield f"| `{prefix}{key}` | {_describe(value, names)}{note} |"
        inner, mark = (value["items"], "[]") if _is_list(value) else (value, "")
        if isinstance(inner, dict) and "properties" in inner and names.find(inner) is None:
            yield from _list_keys(inner, names, f"{prefix}{key}{mark}.")


def _describe(schema: Mapping[str, Any] | bool, names: Names) -> str:
    """Return what a value is, in words."""
    if isinstance(schema, bool):
        return "any value"
    name = names.find(schema)
    types = schema.get("type", [])
    or_null = " or null" if "null" in types else ""
    if name is not None:
        return f"[{name}](#{name.lower().replace(' ', '-')}){or_null}"
    if "oneOf" in schema:
        return " or ".join(_describe(each, names) for each in schema["oneOf"])
    if "then" in schema and "properties" not in schema:
        return f"{_describe(schema['else'], names)} or {_describe(schema['then'], names)}"
    is_described = schema.get("description", "an object") != "an object"
    if types == "object" and len(schema.get("properties", ())) == 1 and not is_described:
        ((key, value),) = schema["properties"].items()
        return f"object with `{key}`, {_describe(value, names)}"
    if "const" in schema:
        return f"`{schema['const']}`"
    text = schema.get("description") or _describe_type(schema, types)
    text = text.removeprefix("a ").removeprefix("an ")
    if _is_list(schema):
        is_named = isinstance(schema["items"], dict) and names.find(schema["items"]) is not None
        if is_named or "description" not in schema:
            text = f"{text}: {_describe(schema['items'], names)}"
    elif isinstance(schema.get("additionalProperties"), dict) and "description" not in schema:
        text = f"object of {_describe(schema['additionalProperties'], names)} by name"
    return text.replace("|", "\\|") + or_null


def _is_list(schema: Mapping[str, Any]) -> bool:
    return "array" in schema.get("type", ()) and "items" in schema


def _describe_type(schema: Mapping[str, Any], types: str | list[str]) -> str:
    if schema.get("format") == "date-time":
        return "time"
    known = [types] if isinstance(types, str) else [kind for kind in types if kind != "null"]
    return " or ".join(JSON_TYPES.get(kind, kind) for kind in known) or "any value"


def main(action: str) -> int:
    """Compare or write the page; returns the exit code."""
    generated = render_page()
    if action == "write":
        PAGE.write_text(generated)
        return 0
    if not PAGE.exists() or generated != PAGE.read_text():
        print(f"{PAGE} is out of date: run tox -e genapi -- write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
