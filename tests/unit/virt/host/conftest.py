"""Fixture for small trees of /proc and /sys."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from host_tree import MakeRoots

from nodetracker.virt.host.roots import Roots


@pytest.fixture
def make_roots(tmp_path: Path) -> MakeRoots:
    """Return a function that writes files and links below a root and returns its `Roots`.

    Paths start with ``proc/``, ``sys/`` or anything else for the root itself;
    a second call adds to the same tree.
    """

    def make(
        files: Mapping[str, str | bytes] | None = None, links: Mapping[str, str] | None = None
    ) -> Roots:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        for name, target in (links or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        return Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)

    return make
