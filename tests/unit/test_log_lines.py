"""Log lines of the package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nodetracker

PACKAGE = Path(nodetracker.__file__).parent
LEVELS = {"warning", "error", "critical", "log"}


def find_calls(handler: ast.ExceptHandler) -> Iterator[ast.Call]:
    """Yield the calls in a handler that log above INFO, without the exception itself."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_log = isinstance(node.func.value, ast.Name) and node.func.value.id == "LOG"
            has_error = any(keyword.arg == "exc_info" for keyword in node.keywords)
            if is_log and node.func.attr in LEVELS and not has_error:
                yield node


def test_no_warning_is_logged_where_an_error_is_handled() -> None:
    # The formatter of oslo.log appends the error, which the message names already.
    found = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler)
        for call in find_calls(handler)
    ]
    assert found == []
