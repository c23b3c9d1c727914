"""The section of docs/install.md about a clone, run as it is written there.

Four things stand for what a test must not do to its machine, and nothing else is changed:

* packages and the environment in /opt are there already: those three lines are left out, and
  /opt/nodetracker/bin is this environment's own;
* /etc is a directory of the test, made known to systemd's programs by --root and to the programs by
  HOME, where they look first; the state is beside it, and so is the user, so that files are given to
  the group by its number;
* MariaDB is a private server, on a port of its own;
* systemctl only writes down what it is asked; the test starts what the unit would start.
"""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.documents import read_blocks, read_section
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.process import require, require_root
from tests.genconfig import SAMPLE
from tests.programs import BIN, Running

TREE = SAMPLE.parents[2]
DOCUMENT = read_section("install.md", "A clone")
LEFT_OUT = ("apt-get ", "python3 -m venv ", "/opt/nodetracker/bin/pip ")


def write_stub(directory, name, line):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture
def server():
    """A server with nothing in it, not even the tests' own user."""
    require("mariadb")
    server = MariaDB()
    server.execute("DROP USER nodetracker@'127.0.0.1'")
    yield server
    server.remove()


class TestInstall:
    @pytest.fixture
    def place(self, tmp_path):
        """The directory that stands for the machine's /."""
        require_root("install")
        (tmp_path / "etc").mkdir()
        (tmp_path / ".nodetracker").symlink_to(tmp_path / "etc" / "nodetracker")
        return tmp_path

    @pytest.fixture
    def environment(self, place, server):
        """What finds the stand-ins."""
        require("systemd-sysusers", "systemd-tmpfiles")
        stubs = place / "stubs"
        stubs.mkdir()
        for name in ("systemd-sysusers", "systemd-tmpfiles"):
            write_stub(stubs, name, f'exec {shutil.which(name)} --root={place} "$@"')
        # The group has its number below the test's root alone.
        write_stub(
            stubs,
            "install",
            f"""number=$(sed -n 's/^nodetracker:x:\\([0-9]*\\):.*/\\1/p' {place}/etc/group)
for word; do
    shift
    [ "$word" = nodetracker ] && word=$number
    set -- "$@" "$word"
done
exec {shutil.which("install")} "$@\"""",
        )
        client = f"--no-defaults --user=root --socket={server.process.directory / 'my.sock'}"
        write_stub(stubs, "mariadb", f'exec {shutil.which("mariadb")} {client} "$@"')
        write_stub(stubs, "systemctl", f'echo "$*" >> {place}/systemctl.log')
        return os.environ | {
            "PATH": f"{stubs}:{os.environ['PATH']}",
            "HOME": str(place),
            "OS_DEFAULT__STATE_PATH": str(place / "var" / "lib" / "nodetracker"),
        }

    def test_every_command_works_and_the_agent_keeps_its_row(self, place, server, environment):
        lines = "".join(read_blocks(DOCUMENT)).splitlines(keepends=True)
        assert [sum(line.startswith(start) for line in lines) for start in LEFT_OUT] == [1, 1, 1]
        script = "".join(line for line in lines if not line.startswith(LEFT_OUT))
        script = script.replace("/opt/nodetracker/bin/", f"{BIN}/")
        script = script.replace(" /etc/", f" {place}/etc/")
        script = script.replace("=127.0.0.1 ", f"=127.0.0.1:{server.process.port} ")
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=TREE,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the configuration of nodetracker-compute is valid" in done.stdout
        assert done.stdout.count("Result: Success") == done.stdout.count("Result:") > 0
        assert (place / "systemctl.log").read_text().splitlines() == [
            "daemon-reload",
            "enable --now nodetracker-compute",
            "--no-pager status nodetracker-compute",
        ]
        configuration = (place / "etc" / "nodetracker" / "nodetracker.conf").stat()
        group = re.search(r"^nodetracker:x:(\d+):", (place / "etc/group").read_text())
        assert group is not None
        assert configuration.st_mode & 0o777 == 0o640
        assert (configuration.st_uid, configuration.st_gid) == (0, int(group[1]))
        unit = (place / "etc/systemd/system/nodetracker-compute.service").read_text()
        (program,) = re.findall(r"^ExecStart=/opt/nodetracker/bin/(.*)$", unit, re.MULTILINE)
        with Running([BIN / program], place, **environment) as agent:
            agent.wait_for("is ready")
            listed = subprocess.run(
                [BIN / "nodetracker-manage", "node", "list", "-f", "json"],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert [row["state"] for row in json.loads(listed.stdout)] == ["up"]
            assert agent.stop() == 0


class TestFiles:
    def test_every_file_that_it_names_is_there(self):
        named = set(re.findall(r"(?<![\w/.])etc/[\w./-]*\w", DOCUMENT))
        assert len(named) >= 4
        assert [name for name in named if not (TREE / name).is_file()] == []

    def test_an_installed_wheel_has_the_files_too(self):
        project = tomllib.loads((TREE / "pyproject.toml").read_text())
        shipped = {
            Path(target) / Path(source).name: TREE / source
            for target, sources in project["tool"]["setuptools"]["data-files"].items()
            for source in sources
        }
        assert {str(path.relative_to("share")) for path in shipped} == {
            "bash-completion/completions/nodetracker-manage",
            "fish/vendor_completions.d/nodetracker-manage.fish",
            "zsh/site-functions/_nodetracker-manage",
            *(f"man/man8/{name}.8" for name in project["project"]["scripts"]),
            "nodetracker/grafana/nodetracker.json",
            "nodetracker/prometheus/nodetracker.rules.yml",
            "nodetracker/systemd/nodetracker-compute.service",
            "nodetracker/systemd/nodetracker-api.service",
            "nodetracker/systemd/nodetracker-conductor.service",
            "nodetracker/systemd/nodetracker-standalone.service",
            "nodetracker/sysusers.d/nodetracker.conf",
            "nodetracker/tmpfiles.d/nodetracker.conf",
        }
        assert all(source.is_file() for source in shipped.values())
        assert "`/opt/nodetracker/share/nodetracker`" in DOCUMENT
