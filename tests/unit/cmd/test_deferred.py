"""Modules that libraries import and an agent does not use."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("import asyncio, wrapt, sqlalchemy", "[]"),
        ("import oslo_config.types", "[]"),
        ("import asyncio; asyncio.run(asyncio.sleep(0))", "['asyncio']"),
        ("import asyncio.events; asyncio.events.new_event_loop().close()", "['asyncio']"),
        ("from asyncio import run, sleep; run(sleep(0))", "['asyncio']"),
        ("import asyncio; print(asyncio.iscoroutine(1), end='')", "False['asyncio']"),
        ("import asyncio; asyncio.run; print('sleep' in vars(asyncio), end='')", "True['asyncio']"),
        ("from oslo_config import types; types.URI()('http://host/')", "['rfc3986']"),
    ],
    ids=["libraries", "options", "used", "a part", "a name", "SQLAlchemy's", "once", "a URI"],
)
def test_a_module_is_loaded_when_something_of_it_is_used(line: str, printed: str) -> None:
    code = (
        f"import nodetracker.cmd, sys\n{line}\n"
        "print([name for name in ('asyncio', 'rfc3986') if sys.modules[name].__spec__])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{printed}\n"


def test_threads_that_use_it_at_once_get_one_module() -> None:
    code = (
        "import nodetracker.cmd, asyncio, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    found = set(pool.map(lambda _: asyncio.Lock, range(64)))\n"
        "print(found == {sys.modules['asyncio'].Lock})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
