"""Shells complete command lines by the scripts that the program prints."""

import os
import pty
import subprocess

import pytest

from tests.functional.servers.process import require
from tests.programs import BIN

START = f'PATH="{BIN}:$PATH"; '


def run_in_terminal(*command, typed):
    """Type a line into a shell; return what it shows until it ends."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    os.write(terminal, typed.encode())
    shown = b""
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the shell ended
            break
        if not read:
            break
        shown += read
    os.waitpid(pid, 0)
    return shown.decode(errors="replace")


def test_bash():
    require("bash")
    script = START + (
        "source <(nodetracker-manage completion bash); "
        "COMP_WORDS=(nodetracker-manage node des); COMP_CWORD=2; "
        '_nodetracker_manage; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "describe\n"


def test_fish():
    require("fish")
    script = (
        f"set PATH {BIN} $PATH; nodetracker-manage completion fish | source; "
        "complete -C 'nodetracker-manage node des'"
    )
    done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "describe\n"


@pytest.mark.parametrize("is_installed", [True, False])
def test_zsh(tmp_path, is_installed):
    require("zsh")
    script = subprocess.run(
        [BIN / "nodetracker-manage", "completion", "zsh"], capture_output=True, check=True
    )
    tmp_path.joinpath("_nodetracker-manage").write_bytes(script.stdout)
    load = f"fpath=({tmp_path} $fpath); " if is_installed else ""
    load += f"autoload -U compinit; compinit -D -u -d {tmp_path}/dump"
    load += "" if is_installed else f"; source {tmp_path}/_nodetracker-manage"
    typed = f"{START}{load}\nnodetracker-manage node des\t --help | head -1\nexit\n"
    assert "usage: nodetracker-manage node describe" in run_in_terminal("zsh", "-f", typed=typed)
