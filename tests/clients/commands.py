"""Run the clients' commands in environments of their own."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.environments import path_of

_RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True)
class Done:
    """A command that has ended: its exit code and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """What the command printed, parsed."""
        assert self.code == 0, self.errors or self.output
        return json.loads(self.output)

    @property
    def text(self) -> str:
        """What a command that succeeded printed."""
        assert self.code == 0, self.errors or self.output
        return self.output

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of the table that the command printed."""
        lines = [line for line in self.text.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


class Environment:
    """A process in one environment that runs commands of the clients there."""

    def __init__(self, name: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            [path_of(name, "python"), _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=directory,
            env={"HOME": str(directory), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            text=True,
        )

    def run(self, program: str, *arguments: object, **environ: str) -> Done:
        """Run one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "program": program, "arguments": [str(item) for item in arguments], "environ": environ,
        }  # fmt: skip
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Done(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(20)
