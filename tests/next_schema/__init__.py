"""Two revisions after those of this version, as the next releases could have them.

By them tests migrate a schema that programs use: up, down, interrupted, before and after
`contract`.
"""

from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from nodetracker.db.schema import revisions
from nodetracker.model.service import SCHEMA_REVISION

NEXT, LAST = (f"{int(SCHEMA_REVISION) + number:04}" for number in (1, 2))


def add_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `revisions` know them as well."""
    own = Path(revisions.__file__).parent
    scripts = ScriptDirectory(
        str(own), version_locations=[str(own / "versions"), str(Path(__file__).parent / "versions")]
    )
    monkeypatch.setattr(revisions, "_read_scripts", lambda: scripts)
