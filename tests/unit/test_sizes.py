"""Files and functions of the package are short enough to be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nodetracker

PACKAGE = Path(nodetracker.__file__).parent
REVISIONS = PACKAGE / "db/schema/versions"
"""A schema revision is never changed again, however long it is."""

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50


def list_files() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if REVISIONS not in path.parents]


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the length of a function without decorators."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def list_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, count_lines(node)


def test_no_file_is_too_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in list_files()}
    too_long = {
        str(path.relative_to(PACKAGE)): count
        for path, count in lines.items()
        if count > MAX_FILE_LINES
    }
    assert too_long == {}


def test_no_function_is_too_long() -> None:
    too_long = {
        f"{path.relative_to(PACKAGE)}: {name}": count
        for path in list_files()
        for name, count in list_functions(path)
        if count > MAX_FUNCTION_LINES
    }
    assert too_long == {}
