"""Each promise in the documentation names tests that exist and are run."""

import ast
import configparser
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LINES = (ROOT / "docs/guarantees.md").read_text().splitlines()
ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith("| promise")]


def list_tests(row: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", row)


def list_environments(row: str) -> list[str]:
    return re.findall(r"`tox -e (\w+)", row)


NAMED = [(test, list_environments(row)) for row in ROWS for test in list_tests(row)]


def find(body: list[ast.stmt], name: str) -> ast.stmt:
    """Return what a name is defined as."""
    for item in body:
        if isinstance(item, ast.FunctionDef | ast.ClassDef):
            names = [item.name]
        else:
            names = [ast.unparse(t) for t in item.targets] if isinstance(item, ast.Assign) else []
        if name in names:
            return item
    raise AssertionError(name)


@pytest.mark.parametrize(("test", "environments"), NAMED, ids=[test for test, _ in NAMED])
def test_a_test_exists_and_is_run(test: str, environments: list[str]) -> None:
    path, *names = test.split("::")
    body = ast.parse((ROOT / path).read_text()).body
    assert names
    for name in names:
        found = find(body, name)
        assert not any("skip" in ast.unparse(item) for item in getattr(found, "decorator_list", []))
        body = getattr(found, "body", [])
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    run: list[str] = options["ini_options"]["testpaths"]
    if environments:
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(ROOT / "tox.ini")
        commands = [tox[f"testenv:{environment}"]["commands"] for environment in environments]
        run = re.findall(r"tests/\S+", " ".join(commands))
    assert any(path.startswith(item) for item in run)


def test_each_promise_names_a_test() -> None:
    assert len(ROWS) > 20
    assert [row for row in ROWS if not list_tests(row)] == []
