"""What is imported is declared in pyproject.toml, and what is declared there is imported."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHER_NAMES = {"yaml": "pyyaml", "libvirt": "libvirt-python", "pynvml": "nvidia-ml-py"}


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]
            ):
                yield module


def find_imported() -> set[str]:
    modules = {
        module.partition(".")[0]
        for path in (ROOT / "nodetracker").rglob("*.py")
        for module in imported_modules(path.read_text())
    }
    others = modules - sys.stdlib_module_names - {"nodetracker"}
    return {normalize(OTHER_NAMES.get(module, module)) for module in others}


def find_declared() -> set[str]:
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for lines in extras.values() for line in lines)]
    names = {normalize(re.match(r"[\w.-]+", line)[0]) for line in lines}
    return names - {PROJECT["name"]}


def test_what_is_imported_is_declared() -> None:
    assert find_imported() - find_declared() == set()


def test_what_is_declared_is_imported() -> None:
    assert find_declared() - find_imported() == set()


def test_all_means_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    [line] = extras["all"]
    named = re.fullmatch(rf"{PROJECT['name']}\[(.*)\]", line)[1].split(",")
    assert sorted(named) == sorted(extras.keys() - {"all"})


def test_no_archive_is_unpacked_with_what_python_3_11_2_lacks() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("nodetracker", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"extract", "extractall", "unpack_archive"}
        if any(keyword.arg == "filter" for keyword in node.keywords)
    ]
    assert calls == [], "use tests.hosts.test_captures.unpack"
