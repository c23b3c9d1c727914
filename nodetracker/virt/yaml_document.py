"""Read YAML strictly, within bounds of time and memory."""

from collections.abc import Iterator
from typing import Any

from nodetracker.accounting.validator import MAX_VALUES
from nodetracker.model.errors import HostDataError
from nodetracker.model.text import render_value

MAX_LENGTH = 2**20
"""Characters of a document."""

_MAX_DIGITS = 1000
_MAX_PROBLEM_LENGTH = 200
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})


def parse_yaml(text: str, source: str) -> Any:
    """Parse a YAML document; a key occurs once in a mapping.

    Args:
        source: of the document, for errors; such as its file.

    Raises:
        HostDataError: it is not valid YAML, has a duplicate key, a tag that is not YAML's own,
            or more than `MAX_VALUES` values, those of aliases included.

    >>> parse_yaml("{a: 1, a: 2}", "nodes.yaml")
    Traceback (most recent call last):
    nodetracker.model.errors.HostDataError: nodes.yaml: not valid YAML: duplicate key 'a' in line 1
    """
    import yaml  # few hosts have such files

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    def construct_mapping(loader: Any, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        mapping: dict[Any, Any] = {}
        yield mapping
        seen = set()
        for key_node, _ in node.value:
            key = loader.construct_object(key_node, deep=True)
            if key in seen:
                problem = f"duplicate key {render_value(key)}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)
        mapping.update(loader.construct_mapping(node, deep=True))

    if len(text) > MAX_LENGTH:
        raise HostDataError(source, f"more than {MAX_LENGTH} characters")
    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct_mapping)
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _count_nodes(node, {}) > MAX_VALUES:
            raise HostDataError(source, f"more than {MAX_VALUES} values")
        return loader.construct_document(node)
    except HostDataError:
        raise
    except Exception as error:  # PyYAML 6.0 raises many types for scalars, as of "2026-99-99"
        raise HostDataError(source, f"not valid YAML: {_describe(error)}") from error


def _count_nodes(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node of YAML has with its aliases expanded.

    One that contains itself has too many.
    """
    number = id(node)
    if number not in known:
        known[number] = MAX_VALUES + 1  # until it is counted
        if node.tag in _NUMBERS and len(node.value) > _MAX_DIGITS:
            raise ValueError(f"number of {len(node.value)} digits: expected at most {_MAX_DIGITS}")
        inner = node.value if isinstance(node.value, list) else ()
        known[number] = 1 + sum(
            _count_nodes(part, known)
            for item in inner
            for part in (item if isinstance(item, tuple) else (item,))
        )
    return known[number]


def _describe(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    text = problem[:_MAX_PROBLEM_LENGTH]
    return f"{text} in line {mark.line + 1}" if mark is not None else text
