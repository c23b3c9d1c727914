"""Create the virtual environments of the clients, Keystone, Tempest and the release before.

They cannot share one: two versions of a client are tested, and none may be tested with what
nodetracker requires. Usage: ``python -m tests.clients.environments NAME...``.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
RELEASE_BEFORE = "29ad17b4610b4c004bdf62e0bbd75f2ca6d7d539"
"""The commit of the release before this one; set with each release."""
_RELEASE = f"git+file://localhost{ROOT}@{RELEASE_BEFORE}"
REQUIREMENTS = {
    "clients": (
        "openstacksdk==4.22.0", "osc-placement==4.9.1", "python-novaclient==18.13.1",
        "python-openstackclient==10.5.0", "python-zunclient==5.5.0",
    ),
    # setuptools: pkg_resources, which it imports, ends with 81.
    "nova9": ("python-novaclient==9.1.3", "setuptools<81"),
    "keystone": ("gunicorn", "keystone==30.0.0"),
    "tempest": ("tempest==47.0.0",),
    "release": (f"nodetracker[messaging,mysql,postgresql] @ {_RELEASE}",),
}  # fmt: skip
"""Name of an environment -> what is installed there."""


def path_of(name: str, program: str) -> Path:
    """Return the path of an environment's program."""
    parent = os.environ.get("NODETRACKER_ENVIRONMENTS", str(ROOT / ".tox/environments"))
    return Path(parent) / name / "bin" / program


def create(name: str) -> None:
    """Create an environment unless it has what is required already."""
    python = path_of(name, "python")
    directory = python.parents[1]
    installed = directory / "requirements"
    wanted = "\n".join(REQUIREMENTS[name])
    if installed.is_file() and installed.read_text() == wanted:
        return
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{ROOT}/.tox/run/bin")
    venv.create(directory, clear=True, with_pip=uv is None)
    pip = (
        [python, "-m", "pip", "install"]
        if uv is None
        else [uv, "pip", "install", "--python", python]
    )
    subprocess.run([*pip, "-q", *REQUIREMENTS[name]], check=True)
    installed.write_text(wanted)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        create(argument)
