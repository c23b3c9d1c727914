"""Check or write requirements.lock; run by tox's lock environment."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
_COMPILE = (
    "uv", "pip", "compile", "--quiet", "pyproject.toml", "--all-extras", "--universal",
    "--python-version", "3.11", "--generate-hashes", "--no-annotate",
    "--custom-compile-command", "tox -e lock -- write",
)  # fmt: skip


def main(action: str) -> int:
    """Write the newest versions, or say what is newer and whether pyproject.toml is satisfied."""
    if action == "write":
        compile_lock(LOCK, "--upgrade")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        kept, newest = Path(directory) / "kept", Path(directory) / "newest"
        shutil.copy(LOCK, kept)
        compile_lock(kept)
        compile_lock(newest)
        locked, available = read_versions(LOCK), read_versions(newest)
        for name in sorted({*locked, *available}):
            if locked.get(name) != available.get(name):
                print(f"{name}: {locked.get(name, 'new')} -> {available.get(name, 'removed')}")
        if kept.read_text() == LOCK.read_text():
            return 0
    print(f"{LOCK} does not agree with pyproject.toml: run tox -e lock -- write", file=sys.stderr)
    return 1


def compile_lock(path: Path, *options: str) -> None:
    """Write a lock; versions of the file that exists are kept where they may be."""
    subprocess.run([*_COMPILE, *options, "--output-file", str(path)], cwd=ROOT, check=True)


def read_versions(path: Path) -> dict[str, str]:
    """Return the locked version of each distribution."""
    return dict(re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", path.read_text()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
