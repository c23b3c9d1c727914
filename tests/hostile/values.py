"""Values that nobody expects, and documents in which one of them has taken another's place."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from hypothesis import strategies as st

TEXTS = (
    "", "%", "a%_\\", "' OR '1'='1'; DROP TABLE services; --", "<script>{0} %s :name</script>",
    "../etc\n\x7f", "ä😀" * 2000, "0", "-1", str(2**63), "9" * 400, "VCPU:9" + "9" * 30,
    "00000000-0000-4000-8000-000000000000", "9999-12-31T23:59:59-23:59",
)  # fmt: skip
ODD_TEXTS = (
    "²", "٣", "\ud800", "a\0b", "\x1b[31m\nforged line\u202e", "9" * 5000, "0-65535," * 5000,
    "0-4294967295", "^", "1e400", "NaN", "0x" + "f" * 5000, "(" * 2000, "[[[", "-", ",", "x" * 100_000,
)  # fmt: skip
"""Further texts, which requests have no way to send or which no query can be as long as."""

VALUES: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**63, 10**400, "", [{}], {"a": {"b": []}}, *TEXTS[1:5],
)  # fmt: skip
BODIES = (
    b"", b"{", b"null", b"[]", b"1", b'"text"', b"\xff\xfe", b'{"a": 1, "a": 2}', b'{"a": NaN}',
    b'{"a": 1e999}', b'{"a": "\\u0000"}', b'{"a": "\\ud800"}', b'{"\\u0000": 1}', b"[" * 50_000,
    b'{"a":' * 50_000, b"<html></html>", b"a=1&b=2", b'{"nothing": {"of": "ours"}}',
    b"9" * 5000,
)  # fmt: skip
"""Bodies of requests and answers, none of which is an object that anybody expects."""


def nest(depth: int) -> list[Any]:
    """Return lists within each other."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


DEEP = nest(400)
JSON_VALUES: tuple[Any, ...] = (
    *VALUES, *TEXTS[5:], *ODD_TEXTS, False, 0, -(2**63), 1e300, float("nan"), float("inf"),
    [], {}, [None], [[]], {"": None}, DEEP, ["a"] * 10_000, dict.fromkeys(map(str, range(5000))),
)  # fmt: skip
"""What a place in a JSON document may have instead of its value."""

json_values = st.one_of(
    st.sampled_from(JSON_VALUES),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
)  # fmt: skip

Place = tuple[str | int, ...]


def list_places(document: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the path of each value within a document, of those that have others, too."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield (*path, key)
        yield from list_places(value, (*path, key))


def find(document: Any, path: Place) -> Any:
    """Return the value at a place."""
    for key in path:
        document = document[key]
    return document


def spoil(document: Any, path: Place, value: Any) -> Any:
    """Return a copy of a document with another value at a place; the whole at ()."""
    if not path:
        return value
    made = copy.deepcopy(document)
    find(made, path[:-1])[path[-1]] = value
    return made


def has_other_type(value: Any, other: Any) -> bool:
    """Return whether no engine sends one value instead of the other.

    Podman sends "" instead of some numbers.
    """
    if other == "":
        return False
    kinds: tuple[Any, ...] = (bool, int, float, str, list, dict)
    own, new = (next(kind for kind in kinds if isinstance(each, kind)) if each is not None
                else None for each in (value, other))  # fmt: skip
    return None not in (own, new) and own is not new


def can_be_sent(value: Any) -> bool:
    """Return whether a value is JSON that can be parsed again."""
    try:
        json.loads(json.dumps(value))
    except (ValueError, RecursionError):
        return False
    return True


# XML


def list_elements(text: str) -> list[Element]:
    """Return the elements of a document in its order."""
    return list(ElementTree.fromstring(text).iter())


XML_TEXTS = tuple(text for text in (*TEXTS, *ODD_TEXTS) if not {"\ud800", "\0", "\x1b"} & set(text))
DOCTYPES = (
    "<!DOCTYPE {root} [" + "".join(
        f"<!ENTITY e{n + 1} \"{f'&e{n};' * 10}\">" if n else '<!ENTITY e1 "lol">' for n in range(10)
    ) + "]>",
    '<!DOCTYPE {root} [<!ENTITY e1 SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE {root} [<!ENTITY e1 "' + "a" * 100_000 + '">]>',
    "<!DOCTYPE {root}>",
)  # fmt: skip
"""Declarations before the root element: a billion laughs, a file, a quadratic one, none."""

WHOLE_TEXTS = (
    "", "<", "<a/>", "<a>" * 100_000, "\ufeff", "\0", "\ud800", "<?xml version='1.0' encoding='x'?>",
    "<{root}>" + "<a>" * 200_000 + "</a>" * 200_000 + "</{root}>",
    "<{root}>" + "<a b='c'/>" * 400_000 + "</{root}>",
    "<{root} " + " ".join(f"a{n}='1'" for n in range(50_000)) + "/>",
    "<{root}>" + "x" * 5_000_000 + "</{root}>",
)  # fmt: skip
"""What may come instead of a document with a root element."""


# YAML


def _multiply(first: str, inner: str) -> str:
    lines = [f"a: &a {first}"]
    for number in range(9):
        aliases = ",".join([f"*{chr(97 + number)}"] * 10)
        lines.append(f"{chr(98 + number)}: &{chr(98 + number)} {inner.format(aliases)}")
    return "\n".join(lines)


YAML_TEXTS = {
    "a billion laughs": _multiply("[x]", "[{}]"),
    "a billion merged keys": _multiply("{x: 1}", "{{<<: [{}]}}"),
    "a list in itself": "&a [*a]",
    "a mapping in itself": "&a {b: *a}",
    "depth": "[" * 500_000,
    "size": "x" * 2**21,
    "a tag of Python": "!!python/object/apply:os.system [ls]",
    "a tag of nobody": "!ours x",
    "a long number": "a: " + "9" * 5000,
    "a long number of base 60": "a: " + "1:" * 200_000 + "1",
    "a NUL": "a: \0",
    "a list as key": "? [a]\n: 1",
    "two documents": "---\na\n---\nb",
}
"""What is wrong with a YAML document -> the document."""
