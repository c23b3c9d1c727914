"""What a module imports."""

import ast
from collections.abc import Iterator


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]
            ):
                yield module
