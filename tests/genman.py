"""Check or write etc/man and etc/completion; run by tox's genman environment.

Sphinx makes the manual pages from the text of ``--help``, which argparse of Python 3.11 wraps.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nodetracker.cmd import manage
from nodetracker.cmd.command_table import COMMANDS

ETC = Path(__file__).parent.parent / "etc"
PROGRAMS = {
    "nodetracker-api": "serve the REST API and the page",
    "nodetracker-compute": "track the resources of this host's nodes",
    "nodetracker-conductor": "access the database for agents",
    "nodetracker-manage": "query and administer nodetracker",
    "nodetracker-standalone": "track this machine without any setup",
    "nodetracker-status": "check whether this host is ready for the installed version",
}
SECTION = 8

_END = """
Exit status
===========

0: done. 1: the operation failed or was refused. 2: usage. 78: configuration or identity.

Files
=====

``/etc/nodetracker/nodetracker.conf``, ``/etc/nodetracker/nodetracker.conf.d/``

See also
========

"""


COMPLETIONS = {
    "bash": "nodetracker-manage",
    "zsh": "_nodetracker-manage",
    "fish": "nodetracker-manage.fish",
}
"""Shell -> the file in which it looks for completions."""


def main(action: str) -> int:
    """Compare or write the files; returns the exit code."""
    os.environ["COLUMNS"] = "80"
    with tempfile.TemporaryDirectory() as directory:
        made = make_pages(Path(directory))
    for shell, name in COMPLETIONS.items():
        made[ETC / "completion" / name] = run("nodetracker-manage", "completion", shell)
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if action == "write":
        for path in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
        return 0
    for path in stale:
        print(f"{path} is out of date: run tox -e genman -- write", file=sys.stderr)
    return 1 if stale else 0


def make_pages(directory: Path) -> dict[Path, str]:
    """Return the manual pages by the path that each has in the tree."""
    for name, summary in PROGRAMS.items():
        (directory / f"{name}.rst").write_text(render_source(name, summary))
    (directory / "index.rst").write_text(
        "pages\n=====\n\n.. toctree::\n\n" + "".join(f"   {name}\n" for name in PROGRAMS)
    )
    pages = [(name, name, summary, "", SECTION) for name, summary in PROGRAMS.items()]
    (directory / "conf.py").write_text(f"project = 'nodetracker'\nman_pages = {pages!r}\n")
    output = directory / "man"
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "man", str(directory), str(output)]
    subprocess.run(command, check=True)
    return {
        ETC / "man" / path.name: clean(path.read_text()) for path in output.glob(f"*.{SECTION}")
    }


def clean(page: str) -> str:
    """Leave out date and version, and the comments that name the versions of docutils."""
    page = re.sub(r'(?m)^(\.TH "\S+" "\d") "[^"]*" "[^"]*"', r'\1 "" ""', page)
    return re.sub(r'(?m)^\.\\".*\n', "", page)


def render_source(name: str, summary: str) -> str:
    """Return a page's source: the help of the program and of all of its commands."""
    parts = [heading(name, "#"), heading("Options", "="), literal(run(name, "--help"))]
    if name == manage.PROGRAM:
        app = manage.ManageApp()
        app.options = app.parser.parse_args([])
        parts.append(heading("Commands", "="))
        for command in sorted(COMMANDS):
            parts += [heading(command, "-"), literal(app.render_help(command.split()))]
    others = ", ".join(f"{other}({SECTION})" for other in PROGRAMS if other != name)
    return "\n".join([*parts, _END, others, ""])


def heading(text: str, sign: str) -> str:
    """Return a heading."""
    return f"{text}\n{sign * len(text)}\n"


def literal(text: str) -> str:
    """Return a literal block."""
    return "::\n\n" + "".join(f"   {line}".rstrip() + "\n" for line in text.splitlines())


def run(name: str, *arguments: str) -> str:
    """Return what an installed program prints."""
    program = shutil.which(name, path=str(Path(sys.executable).parent))
    assert program, name
    command = [program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
