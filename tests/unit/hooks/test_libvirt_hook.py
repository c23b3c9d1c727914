"""The hook of libvirt, run as libvirt runs it, against a stand-in for the agent."""

import re
import shlex
import shutil
import subprocess
import time

import pytest

from nodetracker.hooks.libvirt import LibvirtHook
from nodetracker.model.errors import RefusedError
from tests.door import ADMITTED, REASON, REFUSED, Door, listen_without_accepting

XML = "<domain type='kvm'><name>w</name><metadata>ü</metadata></domain>"
BEGINS = ("prepare", "migrate", "restore")
SILENT = (0, "", "")
DEADLINE = 2  # seconds, of the script's own clock


class Hook:
    """What is installed below a root of its own.

    Attributes:
        seconds: how long the last call took.
    """

    def __init__(self, root, when_unavailable="allow", python="/usr/bin/python3"):
        self.door = root / "a.sock"
        (root / "etc/libvirt").mkdir(parents=True)
        LibvirtHook(root, python).install(self.door, when_unavailable)
        self.script = root / "etc/libvirt/hooks/qemu.d/nodetracker"
        self.program = root / "usr/local/lib/nodetracker/ask.py"
        self.seconds = 0.0

    def __call__(self, operation, sub="begin", document=XML):
        began = time.monotonic()
        done = subprocess.run(
            [self.script, "w", operation, sub, "-"], input=document, capture_output=True,
            text=True, check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, timeout=20,
        )  # fmt: skip
        self.seconds = time.monotonic() - began
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["allow", "refuse"])
def hook(request, tmp_path):
    hook = Hook(tmp_path, request.param)
    hook.is_allowing = request.param == "allow"
    return hook


def assert_unavailable(hook, operation="prepare"):
    """Check that it was as without an answer; returns standard error."""
    code, output, error = hook(operation)
    assert (code, output) == (0 if hook.is_allowing else 1, "")
    assert hook.is_allowing or error.splitlines()[-1].startswith("nodetracker: no answer")
    assert hook.seconds < 8  # 9 or more without a deadline
    return error


@pytest.mark.parametrize("operation", BEGINS)
def test_an_admitted_guest_starts_and_its_document_arrives_whole(hook, operation):
    with Door(hook.door) as door:
        assert hook(operation) == SILENT
        document = "<domain>" + "é" * 200_000 + "</domain>"
        assert hook(operation, document=document) == SILENT
    question = {"driver": "libvirt", "ask": "start", "operation": operation}
    assert door.questions == [question | {"document": text} for text in (XML, document)]


@pytest.mark.parametrize("operation", BEGINS)
def test_a_refusal_is_one_line_on_standard_error(hook, operation):
    with Door(hook.door, REFUSED):
        assert hook(operation) == (1, "", f"nodetracker: {REASON}\n")


def test_a_reason_is_printed_without_control_characters(hook):
    with Door(hook.door, {"outcome": "refused", "reason": "guest \x1b[2J\na é"}):
        assert hook("prepare") == (1, "", "nodetracker: guest  [2J a é\n")


@pytest.mark.parametrize("outcome", ["warned", "off"])
def test_only_a_refusal_stops_a_guest(hook, outcome):
    with Door(hook.door, {"outcome": outcome, "reason": "memory"}):
        assert hook("prepare") == SILENT


@pytest.mark.parametrize(
    ("operation", "sub"),
    [
        ("prepare", "end"), ("start", "begin"), ("started", "begin"), ("stopped", "end"),
        ("reconnect", "begin"), ("attach", "begin"), ("release", "begin"), ("migrate", "end"),
    ],
)  # fmt: skip
def test_no_other_operation_is_asked_about(hook, operation, sub):
    with Door(hook.door, REFUSED) as door:
        assert hook(operation, sub) == SILENT
    assert door.questions == []


CHOSEN = (
    "<interface type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' "
    "bus='0x81' slot='0x00' function='0x1'/></source></interface>",
    "<interface type='direct'><source network='pool' dev='ens1f0v0' mode='passthrough'/>"
    "</interface>",
)


@pytest.mark.parametrize("interface", CHOSEN, ids=["hostdev", "direct"])
def test_what_libvirt_chose_from_a_network_is_asked_about(hook, interface):
    """At ``prepare`` the document names the network alone."""
    text = XML.replace("<metadata>", f"{interface}<metadata>$HOME `x` \\n {'é' * 100_000}")
    with Door(hook.door) as door:
        assert hook("start", document=text) == SILENT
        door.answer = REFUSED
        assert hook("start", document=text) == (1, "", f"nodetracker: {REASON}\n")
    question = {"driver": "libvirt", "ask": "start", "operation": "start"}
    assert door.questions == [question | {"document": f"{text}\n"}] * 2
    assert hook("start", document=text)[0] == (0 if hook.is_allowing else 1)


@pytest.mark.parametrize("answer", [ADMITTED, None], ids=["answered", "frozen"])
def test_the_end_of_a_guest_is_reported_and_nothing_waited_for(hook, answer):
    with Door(hook.door, answer) as door:
        assert hook("release", "end") == SILENT
        assert hook.seconds < DEADLINE
        deadline = time.monotonic() + 5
        while not door.questions and time.monotonic() < deadline:
            time.sleep(0.01)
    assert door.questions == [{"driver": "libvirt", "ask": "gone", "document": XML}]


def test_the_end_of_a_guest_never_fails(hook):
    assert hook("release", "end")[:2] == (0, "")
    hook.program.write_text("raise SystemExit(77)")
    assert hook("release", "end")[:2] == (0, "")
    hook.program.write_text("import time\ntime.sleep(9)")
    assert hook("release", "end")[:2] == (0, "")
    assert hook.seconds < 8  # 9 without a deadline


def test_an_agent_that_is_gone_is_unavailable(hook):
    assert "No such file or directory" in assert_unavailable(hook)
    Door(hook.door).__exit__()
    hook.door.touch()
    assert "Connection refused" in assert_unavailable(hook)
    assert hook.seconds < DEADLINE


def test_an_agent_that_does_not_answer_is_waited_for_two_seconds(hook):
    with Door(hook.door, None):
        assert_unavailable(hook)
    assert hook.seconds > 1.9


def test_a_full_queue_is_not_waited_for(hook):
    sockets = listen_without_accepting(hook.door)
    assert "Resource temporarily unavailable" in assert_unavailable(hook)
    assert hook.seconds < DEADLINE
    assert hook("release", "end")[0] == 0
    assert hook.seconds < DEADLINE
    for each in sockets:
        each.close()


@pytest.mark.parametrize(
    "answer",
    [
        "", "no JSON\n", "[]\n", "{}\n", '{"outcome": "refused"}\n',
        {"outcome": "unavailable", "reason": "no listing of guests yet"},
    ],
)  # fmt: skip
def test_what_is_no_answer_is_unavailable(hook, answer):
    with Door(hook.door, answer):
        assert_unavailable(hook)


@pytest.mark.parametrize(
    "program",
    [
        "raise RuntimeError",
        "no Python",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import sys\nprint('<domain/>')\nsys.exit(3)",
    ],
    ids=["traceback", "syntax", "killed", "frozen", "other status"],
)
def test_a_program_that_fails_is_unavailable(hook, program):
    hook.program.write_text(program)
    assert_unavailable(hook)


def test_a_program_or_python_that_does_not_exist_always_allows(hook):
    with Door(hook.door, REFUSED):
        hook.program.unlink()
        assert hook("prepare") == SILENT
        shutil.rmtree(hook.program.parent)
        assert hook("prepare") == SILENT


@pytest.mark.parametrize("when_unavailable", ["allow", "refuse"])
def test_without_python_every_guest_starts(tmp_path, when_unavailable):
    hook = Hook(tmp_path, when_unavailable, python=str(tmp_path / "python3"))
    assert hook("prepare") == SILENT
    broken = tmp_path / "python3"
    broken.write_text("#!/nonexistent\n")
    broken.chmod(0o755)
    assert hook("prepare")[:2] == (0, "")


def test_the_program_uses_nothing_of_its_directory(hook):
    """A file beside it, or in the directory from which libvirtd runs, replaces no module."""
    (hook.program.parent / "json.py").write_text("raise RuntimeError")
    with Door(hook.door, REFUSED):
        assert hook("prepare")[0] == 1


def test_a_service_waits_until_the_agent_answers(tmp_path):
    """By the command of its drop-in."""
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/libvirtd.service").touch()
    hook = Hook(tmp_path)
    text = (
        tmp_path / "etc/systemd/system/libvirtd.service.d/nodetracker-admission.conf"
    ).read_text()
    (command,) = re.findall(r"^ExecStartPre=-(.*)$", text, re.MULTILINE)
    words = shlex.split(command)
    assert words[:5] == ["/usr/bin/timeout", "--foreground", "-s", "KILL", "20"]
    with subprocess.Popen(words[5:]) as waiting:
        Door(hook.door).__exit__()
        hook.door.touch()  # of an agent that was killed
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
        with Door(hook.door):
            assert waiting.wait(5) == 0


@pytest.mark.parametrize("daemon", ["libvirtd", "virtqemud"])
def test_it_is_installed_only_where_libvirt_runs_it(tmp_path, daemon):
    """Older ones would start every guest without a question."""
    program = tmp_path / "usr/sbin" / daemon
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    for version in ("6.0.0", "6.4", "5.10.1"):
        program.write_text(f"#!/bin/sh\necho '{daemon} (libvirt) {version}'\n")
        with pytest.raises(RefusedError, match=rf"^libvirt {version} .*qemu\.d: 6\.5 or newer"):
            Hook(tmp_path)
        assert [path.name for path in (tmp_path / "etc").rglob("*")] == ["libvirt"]
        (tmp_path / "etc/libvirt").rmdir()
    program.write_text(f"#!/bin/sh\necho '{daemon} (libvirt) 6.5.0'\n")
    assert Hook(tmp_path).script.exists()
