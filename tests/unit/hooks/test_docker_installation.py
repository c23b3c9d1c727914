"""Docker's plugin is installed and removed, below a root with stand-ins for systemd and dockerd."""

import errno
import itertools
import json
import os
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from nodetracker.hooks.docker import DockerPlugin, add_plugin, remove_plugin
from nodetracker.model.errors import RefusedError

PROGRAM = "usr/local/lib/nodetracker/docker_plugin.py"
UNITS = "etc/systemd/system"
SOCKET, SERVICE = f"{UNITS}/nodetracker-docker.socket", f"{UNITS}/nodetracker-docker.service"
DROP_IN = f"{UNITS}/docker.service.d/nodetracker-admission.conf"
CONFIG = "etc/docker/daemon.json"
RELOAD = "systemctl reload docker"
AGAIN = "nodetracker-manage admission remove --driver docker"
NAMED = {"authorization-plugins": ["nodetracker"]}


class Answers:
    """Answers each connection to a socket with a JSON document."""

    def __init__(self, path, document):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.document = document
        self.make = lambda: self.document
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.recv(4096)
                text = json.dumps(self.make())
                connection.sendall(f"HTTP/1.0 200 OK\r\n\r\n{text}".encode())


class Machine:
    """Docker on a machine.

    Attributes:
        plugin: of which `document` answers, as the plugin's socket does once it is enabled.
        dockerd: of which `document` is its /version.
    """

    def __init__(self, root, monkeypatch):
        self.root = root
        for name in ("bin", "usr/lib/systemd/system", "usr/local/lib", UNITS, "proc/17"):
            (root / name).mkdir(parents=True)
        (root / "usr/lib/systemd/system/docker.service").touch()
        self.called = root / "bin/called"
        self.pid = root / "bin/pid"
        self.set_pid(17)
        self.write_program(
            "systemctl", f'[ $1 = show ] && cat {self.pid}; echo "$@" >> {self.called}'
        )
        self.write_program("dockerd", "exit 0")
        self.set_command("-H", "fd://")
        monkeypatch.setenv("PATH", f"{root}/bin:/usr/bin:/bin")
        self.plugin = Answers(
            root / "run/docker/plugins/nodetracker.sock", {"Implements": ["authz"]}
        )
        self.dockerd = Answers(root / "run/docker.sock", {"ApiVersion": "1.41"})
        self.hook = DockerPlugin(root)

    def set_pid(self, pid):
        self.pid.write_text(f"{pid}\n")

    def set_command(self, *arguments):
        words = [f"{self.root}/bin/dockerd", *arguments]
        (self.root / "proc/17/cmdline").write_text("".join(f"{word}\0" for word in words))

    def write_program(self, name, text):
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def use_plugin(self, is_used):
        """Let the plugin count requests, as it does while dockerd has it."""
        numbers = itertools.count() if is_used else itertools.repeat(7)
        self.plugin.make = lambda: {"Requests": next(numbers)}

    def write_config(self, text):
        (self.root / CONFIG).parent.mkdir(parents=True, exist_ok=True)
        (self.root / CONFIG).write_text(text)
        return self.root / CONFIG

    def read_config(self):
        return json.loads((self.root / CONFIG).read_text())

    def install(self, when_unavailable="allow"):
        paths, steps = self.hook.install(self.root / "a.sock", when_unavailable)
        return [str(path.relative_to(self.root)) for path in paths], steps

    def remove(self):
        paths, steps = self.hook.remove()
        return [str(path.relative_to(self.root)) for path in paths], steps

    def list_calls(self):
        calls = self.called.read_text().splitlines() if self.called.exists() else []
        self.called.unlink(missing_ok=True)
        return [call for call in calls if not call.startswith("show")]

    def list_tree(self):
        return {
            str(path.relative_to(self.root)): (
                stat.filemode(path.lstat().st_mode),
                path.read_text() if path.is_file() else "",
            )
            for path in self.root.rglob("*")
            if path.parts[len(self.root.parts)] in ("etc", "usr")
        }


@pytest.fixture
def machine(monkeypatch):
    with tempfile.TemporaryDirectory() as directory:  # short enough for sockets below it
        yield Machine(Path(directory) / "m", monkeypatch)


def test_the_configuration_names_the_plugin_once_it_answers(machine):
    paths, steps = machine.install()
    assert paths == [PROGRAM, DROP_IN, SERVICE, SOCKET, CONFIG]
    assert steps == [RELOAD]
    assert machine.list_calls() == ["daemon-reload", "enable --now nodetracker-docker.socket"]
    assert machine.read_config() == NAMED
    service = (machine.root / SERVICE).read_text()
    assert f'docker_plugin.py "{machine.root}/a.sock" allow\n' in service


@pytest.mark.parametrize("document", [{"Implements": ["VolumeDriver"]}, None])
def test_without_an_answer_the_configuration_is_not_changed(machine, document):
    machine.plugin.document = document
    if document is None:
        (machine.root / "run/docker/plugins/nodetracker.sock").unlink()
    with pytest.raises(RefusedError, match="nodetracker.sock: "):
        machine.install()
    assert not (machine.root / CONFIG).exists()
    machine.remove()
    assert not (machine.root / SERVICE).exists()


def test_a_second_installation_changes_nothing(machine):
    machine.install()
    before = machine.list_tree()
    assert machine.install() == ([], [])
    assert machine.list_tree() == before


def test_a_changed_program_is_started_again_by_the_operator(machine):
    machine.install()
    assert machine.install("refuse") == (
        [SERVICE],
        ["systemctl restart nodetracker-docker.service"],
    )
    assert machine.hook.when_unavailable == "refuse"


def test_a_configuration_that_dockerd_refuses_is_not_written(machine):
    machine.write_config('{"debug": true}')
    machine.write_program("dockerd", f'echo "$@" > {machine.root}/bin/asked; echo no >&2; exit 1')
    with pytest.raises(RefusedError, match="was not changed: no"):
        machine.install()
    path = machine.root / CONFIG
    assert path.read_text() == '{"debug": true}'
    assert [each.name for each in path.parent.iterdir()] == ["daemon.json"]
    asked = (machine.root / "bin/asked").read_text()
    assert asked == f"--validate --config-file={path}.nodetracker\n"


def test_a_dockerd_that_cannot_check_its_configuration_is_no_hindrance(machine):
    machine.write_program("dockerd", "echo 'unknown flag: --validate' >&2; exit 125")
    machine.install()
    assert machine.read_config() == NAMED


@pytest.mark.parametrize(
    "flag", [["--authorization-plugin", "opa"], ["--authorization-plugin=opa"]]
)
def test_a_plugin_that_is_a_flag_of_dockerd_is_refused(machine, flag):
    """Docker starts with a directive as a flag or in its file, never with both."""
    before = machine.list_tree()
    machine.set_command("-H", "fd://", *flag)
    with pytest.raises(RefusedError, match="dockerd has the flag --authorization-plugin"):
        machine.install()
    assert machine.list_tree() == before


@pytest.mark.parametrize("form", ["--config-file={}", "--config-file {}"])
def test_the_file_that_dockerd_reads_is_written(machine, form):
    path = machine.root / "etc/other.json"
    path.write_text("{}")
    machine.set_command(*form.format(path).split())
    assert machine.install()[0][-1] == "etc/other.json"
    machine.set_pid(0)
    assert machine.remove()[0][0] == "etc/other.json"
    assert path.read_text() == "{}"


@pytest.mark.parametrize(
    "text", ['{"authorization-plugins": ["opa"]}', "no JSON", "[]", '{"authorization-plugins": 1}']
)
def test_a_configuration_of_somebody_else_is_not_changed(machine, text):
    machine.write_config(text)
    before = machine.list_tree()
    with pytest.raises(RefusedError, match="daemon.json"):
        machine.install()
    assert machine.list_tree() == before


def test_plugins_of_others_may_name_ours_by_hand(machine):
    machine.write_config('{"authorization-plugins": ["opa", "nodetracker"]}')
    assert CONFIG not in machine.install()[0]
    machine.use_plugin(True)
    with pytest.raises(RefusedError, match="by hand"):
        machine.remove()
    assert (machine.root / SERVICE).exists()
    machine.write_config('{"authorization-plugins": ["opa"]}')
    machine.use_plugin(False)
    machine.remove()
    assert not (machine.root / SERVICE).exists()


def test_without_docker_nothing_is_installed(machine):
    machine.set_pid(0)
    with pytest.raises(RefusedError, match="does not run"):
        machine.install()
    (machine.root / "usr/lib/systemd/system/docker.service").unlink()
    with pytest.raises(RefusedError, match="not installed here"):
        machine.install()


def test_the_plugin_stays_until_docker_has_given_it_up(machine):
    before = machine.list_tree()
    machine.install()
    machine.use_plugin(True)
    machine.list_calls()
    assert machine.remove() == ([CONFIG], [RELOAD, AGAIN])
    assert machine.remove() == ([], [RELOAD, AGAIN])
    assert machine.list_calls() == []
    assert (machine.root / SERVICE).exists()
    machine.use_plugin(False)
    paths, steps = machine.remove()
    assert (paths[:4], steps) == ([PROGRAM, DROP_IN, SOCKET, SERVICE], [])
    units = "nodetracker-docker.socket nodetracker-docker.service"
    assert machine.list_calls() == [f"disable --now {units}", "daemon-reload"]
    assert machine.list_tree() == before


def test_a_dockerd_that_does_not_answer_keeps_the_plugin(machine):
    machine.install()
    machine.dockerd.document = "hung"
    assert machine.remove()[1] == [RELOAD, AGAIN]
    assert (machine.root / SERVICE).exists()


def test_a_dockerd_that_is_stopped_is_not_asked(machine):
    """A connection would start it."""
    before = machine.list_tree()
    machine.install()
    machine.use_plugin(True)
    machine.set_pid(0)
    machine.remove()
    assert machine.list_tree() == before


def test_where_nothing_is_installed_nothing_is_removed(machine):
    assert machine.remove() == ([], [])
    assert machine.list_calls() == []


TEXTS = ["{}", "{}\n", "{ }", '{"debug": true}', '{\n\t"hosts": ["a", "{"],\n\t"debug": true\n}\n']


@pytest.mark.parametrize("text", TEXTS)
def test_the_rest_of_the_configuration_stays_as_it_is_written(tmp_path, text):
    named = add_plugin(tmp_path, text)
    assert json.loads(named) == json.loads(text) | NAMED
    assert add_plugin(tmp_path, named) == named
    assert remove_plugin(tmp_path, named) == text
    assert remove_plugin(tmp_path, text) == text


def test_what_was_changed_since_is_kept(tmp_path):
    named = add_plugin(tmp_path, '{"debug": true}').replace("true", "false")
    assert remove_plugin(tmp_path, named) == '{"debug": false}'
    formatted = json.dumps(json.loads(named), indent=8)
    assert json.loads(remove_plugin(tmp_path, formatted)) == {"debug": False}


def test_a_configuration_keeps_its_owner_and_mode(machine):
    config = machine.write_config('{"debug": true}\n')
    os.chown(config, 1234, 1235)
    config.chmod(0o640)
    machine.install()
    machine.hook.remove()
    found = config.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 1235, 0o640)
    assert config.read_text() == '{"debug": true}\n'


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_configuration_is_as_none(machine, text):
    """Docker reads it so."""
    config = machine.write_config(text)
    machine.install()
    assert json.loads(config.read_text()) == NAMED


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"labels": ["\xe9"]}', None], ids=repr)
def test_a_configuration_that_cannot_be_read_is_named_and_shown(machine, text):
    config = machine.write_config("")
    config.unlink()
    config.mkdir() if text is None else config.write_bytes(text)
    with pytest.raises(RefusedError, match=str(config)):
        machine.install()
    states = dict(machine.hook.list_states(machine.root / "a.sock"))
    assert states[config] == "unreadable"
    assert machine.hook.remove() == ([], [])


def test_a_configuration_that_cannot_be_replaced_is_named(machine, monkeypatch):
    """As one that is mounted into a container."""

    def fail(self, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    config = machine.write_config("{}")
    machine.install()
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RefusedError, match=f"{config} was not changed: Device or resource busy"):
        machine.hook.remove()


def test_states_say_whether_docker_s_configuration_names_it(machine):
    socket_path = machine.root / "a.sock"
    assert {state for _, state in machine.hook.list_states(socket_path)} == {"absent"}
    machine.install()
    states = machine.hook.list_states(socket_path)
    assert {state for _, state in states} == {"current"}
    assert states[-1][0] == machine.root / CONFIG
