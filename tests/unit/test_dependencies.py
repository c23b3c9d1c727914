"""Imports agree with the dependencies in pyproject.toml, and reach every module."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from nodetracker.cmd.command_table import COMMANDS
from tests.genlock import LOCK, read_versions
from tests.imports import imported_modules

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OTHER_NAMES = {"yaml": "pyyaml", "libvirt": "libvirt-python", "pynvml": "nvidia-ml-py"}


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def find_imported() -> set[str]:
    modules = {
        module.partition(".")[0]
        for path in (ROOT / "nodetracker").rglob("*.py")
        for module in imported_modules(path.read_text())
    }
    others = modules - sys.stdlib_module_names - {"nodetracker"}
    return {normalize(OTHER_NAMES.get(module, module)) for module in others}


def find_declared() -> set[str]:
    lines = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
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
    assert calls == [], "use tests.hosts.captures.unpack"


def list_modules() -> dict[str, Path]:
    """Return the path of each module of nodetracker, by name."""
    found = {}
    for path in (ROOT / "nodetracker").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def list_started(modules: Iterable[str]) -> Iterator[str]:
    """Return the modules that are started or loaded by name."""
    entries = (PROJECT["scripts"], *PROJECT["entry-points"].values())
    yield from (target.partition(":")[0] for group in entries for target in group.values())
    yield from (
        f"nodetracker.cmd.commands.{entry.place.partition(':')[0]}" for entry in COMMANDS.values()
    )
    yield from (name for name in modules if name.startswith("nodetracker.db.schema.versions."))
    yield "nodetracker.cmd.wsgi"  # by WSGI servers
    yield "nodetracker.cmd.tolerance"  # by services
    yield "nodetracker.hooks.docker_plugin"  # by systemd, where it is installed


def test_every_module_is_imported_by_what_is_started() -> None:
    modules, found = list_modules(), set()
    waiting = list(list_started(modules))
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found:
            found.add(name)
            waiting += [name.rpartition(".")[0], *imported_modules(modules[name].read_text())]
    assert modules.keys() - found == set()


def test_the_lock_satisfies_what_is_declared() -> None:
    """Without the network; "tox -e lock" compiles it again."""
    locked = {normalize(name): version for name, version in read_versions(LOCK).items()}
    lines = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
    wanted = [Requirement(line) for line in lines if not line.startswith(PROJECT["name"])]
    missing = [
        str(line)
        for line in wanted
        if not line.specifier.contains(locked.get(normalize(line.name), "0"))
    ]
    assert missing == []


def test_every_locked_file_has_a_hash() -> None:
    entries = re.split(r"(?m)^(?=[\w.-]+==)", LOCK.read_text())[1:]
    assert len(entries) == len(read_versions(LOCK))
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
