"""A compute host with conductors before its agent's first start, and commands of root beside it."""

import json
import os
import re
import shlex
import socket
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore
from nodetracker.model.credential import RENEWAL_AGE
from tests.builders import WORKLOAD
from tests.documents import DOCS, read_blocks
from tests.functional.conductors import Conductor, Remote
from tests.functional.servers.process import find_free_port, require, require_root
from tests.functional.servers.tls import Authority
from tests.programs import BIN, Running, wait_until

AGENT = 1234
SENTENCE = "not joined yet; the agent joins at its first start"
# The test's Python may be below /root: the agent's user may read everything, but write nothing else.
AS_AGENT = (
    "setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip


@pytest.fixture
def remote(tmp_path: Path, conductor: Conductor) -> Remote:
    """A host whose state directory is its agent's, and a conductor with a certificate."""
    require_root("give files to a user")
    require("setpriv")
    authority = Authority(tmp_path)
    conductor.use_tls(*authority.issue(tmp_path, "127.0.0.1"))
    endpoints = f"{conductor.endpoint}, https://127.0.0.1:{find_free_port()}"
    found = Remote(tmp_path / "remote", endpoints, conductor.make_token("--uses", "1"))
    found.trust(authority.certificate)
    state = found.directory / "state"
    state.mkdir()
    os.chown(state, AGENT, AGENT)
    return found


def replace_all(text: str, changes: dict[str, object]) -> str:
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, str(after))
    return text


def test_hosts_are_set_up_as_the_document_says(
    tmp_path: Path, connection: str, store: SqlStore
) -> None:
    """Its files and commands, with the names of this machine in place of those of the page."""
    require_root("act as a user")
    require("setpriv")
    page = (DOCS / "conductors.md").read_text()
    (create_token,) = read_blocks(page)
    of_conductor, of_compute = read_blocks(page, "ini")
    conductor, authority = Conductor(tmp_path / "conductor", connection), Authority(tmp_path)
    certificate, key = authority.issue(tmp_path, "127.0.0.1")
    written = {
        "mysql+pymysql://nodetracker:PASSWORD@DATABASE_HOST/nodetracker?charset=utf8mb4": connection,
        "0.0.0.0": "127.0.0.1",
        "/etc/nodetracker/conductor.pem": certificate,
        "/etc/nodetracker/conductor.key": key,
    }
    with conductor.path.open("a") as file:
        file.write(replace_all(of_conductor, written))
    program, *arguments = shlex.split(create_token)
    made = conductor.run(program, *arguments)
    assert "20 times" in made.stderr
    conductor.scheme = "https"
    remote = Remote(tmp_path / "remote", "https://replaced:1", made.stdout)
    written = {
        "https://control-1:8775, https://control-2:8775": conductor.endpoint,
        "/etc/nodetracker/ca.pem": authority.certificate,
        "/etc/nodetracker/join_token": remote.directory / "token",
    }
    with remote.path.open("a") as file:
        file.write(replace_all(of_compute, written))
    state = remote.directory / "state"
    state.mkdir()
    os.chown(state, AGENT, AGENT)
    with conductor.start_conductor():
        assert SENTENCE in str(check(remote, 0)["Conductors"][1])
        with start_agent(remote) as agent:
            for command in list_commands(remote):
                for user in ((), AS_AGENT):
                    done = run_as(user, "nodetracker-manage", remote, command)
                    assert done.returncode == 0, (command, user, done.stderr)
            page = (DOCS / "upgrading.md").read_text()
            for command in dict.fromkeys(
                re.findall(r"`(?:nodetracker-manage )?(db [a-z -]+)`", page)
            ):
                if command != "db sync base":
                    done = conductor.manage(*command.split())
                    assert done.returncode == 0, (command, done.stderr)
            for name in {*re.findall(r"`nodetracker-status (.*?)`", page)}:
                for user in ((), AS_AGENT):
                    done = run_as(user, "nodetracker-status", remote, name.split())
                    assert done.returncode == 0, (name, user, done.stdout)
            assert {item[:2] for item in list_state(remote).values()} == {(AGENT, AGENT)}
            assert agent.stop() == 0


def run_as(
    user: Sequence[str], program: str, remote: Remote, arguments: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    command = [*user, str(BIN / program), f"--config-file={remote.path}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def list_commands(remote: Remote) -> list[list[str]]:
    """Return what the page says that root and the agent's user may run, with what it needs."""
    page = (DOCS / "conductors.md").read_text()
    found = re.search(
        r"uses its credential, as root or the agent's user: (.*?), for this host", page, re.DOTALL
    )
    assert found is not None
    names = [" ".join(name.split()) for name in re.findall("`(.*?)`", found[1], re.DOTALL)]
    assert len(names) >= 7
    body = remote.directory / "claim.json"
    uuid = WORKLOAD
    body.write_text(json.dumps({"workload": {"uuid": uuid}, "resources": {"VCPU": 1}}))
    needed = {
        "claim create --host": ["claim", "create", str(body), "--host", "host-1"],
        **{
            f"node {verb}": ["node", verb, "host-1"]
            for verb in ("show", "describe", "diff", "audit")
        },
    }
    return [["agent", "rotate"], *(needed.get(name, name.split()) for name in names)]


def start_agent(remote: Remote) -> Running:
    agent = remote.start(before=AS_AGENT)
    agent.wait_for("is ready")
    return agent


def list_state(remote: Remote) -> dict[str, Any]:
    """Return name -> owner, mode and content of the state directory's files; not of sockets."""
    return {
        path.name: (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode, path.read_bytes())
        for path in sorted((remote.directory / "state").iterdir())
        if path.is_file()
    }


def check(remote: Remote, code: int) -> dict[str, tuple[int, str | None]]:
    done = remote.run("nodetracker-status", "upgrade", "check", "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return {
        item["check"]: (item["result"], item["details"])
        for item in json.loads(done.stdout)["checks"]
    }


@pytest.mark.parametrize("has_id", [False, True], ids=["bare", "with compute_id"])
def test_nothing_but_the_agent_joins(
    conductor: Conductor, remote: Remote, store: SqlStore, has_id: bool
) -> None:
    if has_id:
        path = remote.directory / "state" / "compute_id"
        path.write_text("6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11\n")
        path.chmod(0o600)
        os.chown(path, AGENT, AGENT)
    before = list_state(remote)
    with conductor.start_conductor():
        found = check(remote, 1)  # one of the two endpoints is dead
        assert found.pop("Conductors")[1] == (
            f"no conductor answers at {remote_endpoints(remote)[1]}: Connection refused; {SENTENCE}"
        )
        assert {result for result, _ in found.values()} == {0}
        for command in ("node list", "claim list", "overview", "agent rotate", "host show host-1"):
            done = remote.manage(*command.split())
            assert (done.returncode, SENTENCE in done.stderr) == (1, True), done
        assert list_state(remote) == before
        assert store.list_credentials() == []
        with start_agent(remote) as agent:
            joined = list_state(remote)
            assert {(uid, gid, stat.S_IMODE(mode)) for uid, gid, mode, _ in joined.values()} == {
                (AGENT, AGENT, 0o600)
            }
            assert [*joined] == ["compute_id", "credential"]
            assert check(remote, 1)["Conductors"][1].endswith("Connection refused")
            assert remote.ask("node", "list")[0]["state"] == "up"
            assert list_state(remote) == joined
            assert agent.stop() == 0


def remote_endpoints(remote: Remote) -> list[str]:
    (line,) = [line for line in remote.path.read_text().splitlines() if "endpoint" in line]
    return line.partition("= ")[2].split(", ")


def test_what_keeps_a_host_from_joining_is_a_failure(
    conductor: Conductor, remote: Remote, tmp_path: Path
) -> None:
    def details(code: int = 2) -> str:
        result, text = check(remote, code)["Conductors"]
        assert result == code
        return str(text)

    token = remote.directory / "token"
    for problem in ("Connection refused", SENTENCE):
        assert problem in details()
    with conductor.start_conductor():
        secret = token.read_text()
        token.write_text("\n")
        assert "there is no join token: create one by 'nodetracker-manage agent" in details()
        token.unlink()
        assert f"[conductor] join_token_file: {token}: No such file or directory" in details()
        token.write_text(secret)
    other = Authority(tmp_path / "remote")
    remote.path.write_text(remote.path.read_text() + f"[conductor]\ncafile = {other.certificate}\n")
    with conductor.start_conductor():
        assert "its certificate is refused" in details()
    assert list_state(remote) == {}


def test_what_root_replaces_stays_the_agents(
    conductor: Conductor, remote: Remote, store: SqlStore
) -> None:
    with conductor.start_conductor(), start_agent(remote) as agent:
        first = list_state(remote)["credential"]
        past = store.now() - RENEWAL_AGE - timedelta(days=1)
        assert agent.stop() == 0  # or it would renew
        with store.engine.begin() as connection:
            connection.execute(sa.update(tables.agent_credentials).values(issued_at=past))
        assert remote.manage("node", "list").returncode == 0
        check(remote, 1)
        assert list_state(remote)["credential"] == first
        with start_agent(remote) as again:
            renewed = list_state(remote)["credential"]
            assert renewed[3] != first[3]
            done = remote.manage("agent", "rotate")
            assert (done.returncode, done.stdout) == (
                0,
                "the credential of this host was replaced\n",
            )
            rotated = list_state(remote)["credential"]
            assert rotated[:3] == renewed[:3] == first[:3]
            assert rotated[3] != renewed[3]
            seen = store.list_services("host-1")[0].last_seen_up
            wait_until(lambda: store.list_services("host-1")[0].last_seen_up > seen)
            assert again.stop() == 0


ROOT_COMMANDS = {
    "list": ("nodetracker-manage", "node", "list"),
    "audit": ("nodetracker-manage", "node", "audit", "host-1"),
    "rotate": ("nodetracker-manage", "agent", "rotate"),
    "check": ("nodetracker-status", "upgrade", "check"),
    "once": ("nodetracker-compute", "--once"),
}
STRANGER = 5678


@dataclass
class Hostile:
    """A state directory whose user has left it to root, and what is elsewhere."""

    remote: Remote
    elsewhere: Path

    @property
    def state(self) -> Path:
        return self.remote.directory / "state"

    def spoil(self, name: str, trick: str) -> None:
        """Put something in the place of a file of the state directory."""
        path, target = self.state / name, self.elsewhere / name
        self.remove(name)
        if trick == "link":
            path.symlink_to(target)
        elif trick == "dangling link":
            path.symlink_to(self.elsewhere / "nothing")
        elif trick == "FIFO":
            os.mkfifo(path)
        elif trick == "hard link":
            path.hardlink_to(target)
        else:
            path.mkdir()

    def remove(self, name: str) -> None:
        path = self.state / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def list_elsewhere(self) -> dict[str, Any]:
        return {
            path.name: (found.st_uid, found.st_gid, found.st_mode, found.st_mtime_ns)
            for path in self.elsewhere.iterdir()
            if (found := path.lstat())
        }

    def run(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of root, which must end by itself."""
        program, *arguments = ROOT_COMMANDS[command]
        argv = [str(BIN / program), f"--config-file={self.remote.path}", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


CONCERNED = {
    "credential": {"list": 78, "rotate": 78, "check": 2, "once": 78},
    "credential.next": {"rotate": 0},
    "compute_id": {"rotate": 0, "check": 2, "once": 78},
    "agent.sock": {"audit": 1, "once": 0},
}
"""File -> commands that read it, and what they exit with when it is none."""


@pytest.mark.parametrize("name", CONCERNED)
def test_root_is_not_led_out_of_a_state_directory(
    conductor: Conductor, remote: Remote, tmp_path: Path, name: str
) -> None:
    """Its user may put anything there: root follows no link, waits for no FIFO, gives nothing away."""
    hostile = Hostile(remote, tmp_path / "elsewhere")
    hostile.elsewhere.mkdir()
    target = hostile.elsewhere / name
    with conductor.start_conductor(), socket.socket(socket.AF_UNIX) as listener:
        with start_agent(remote) as agent:
            assert agent.stop() == 0
        whole = list_state(remote)
        if name == "agent.sock":
            listener.bind(str(target))
            listener.listen()
            listener.setblocking(False)
        else:
            target.write_bytes(whole[name][3] if name in whole else b"a" * 64)
        os.chown(target, STRANGER, STRANGER)
        tricks = ["link", "dangling link", "FIFO", "directory"]
        if name == "credential.next":  # which becomes the credential
            tricks.append("hard link")
        for trick in tricks:
            hostile.spoil(name, trick)
            before = hostile.list_elsewhere()
            codes = {}
            for command in CONCERNED[name]:
                done = hostile.run(command)
                codes[command] = done.returncode
                if name == "credential.next":
                    assert hostile.list_elsewhere() == before, trick
                    hostile.spoil(name, trick)
            assert hostile.list_elsewhere() == before, trick
            if trick == "directory" and name == "credential.next":
                assert codes == {"rotate": 78}
            else:
                assert codes == CONCERNED[name], (trick, done.stderr)
        if name == "agent.sock":
            with pytest.raises(BlockingIOError):
                listener.accept()
        hostile.remove(name)
        current = list_state(remote)
        for file, (uid, gid, mode, content) in whole.items():
            if file not in current:
                (hostile.state / file).write_bytes(content)
                (hostile.state / file).chmod(stat.S_IMODE(mode))
                os.chown(hostile.state / file, uid, gid)
        with start_agent(remote) as agent:
            assert {item[:2] for item in list_state(remote).values()} == {(AGENT, AGENT)}
            assert agent.stop() == 0
