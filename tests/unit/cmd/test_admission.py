"""admission install, remove, show and list, below a root of their own."""

import json
import stat

import pytest
from oslo_config import cfg

from nodetracker.cmd.commands.admission import AdmissionCommand
from nodetracker.cmd.manage import main
from tests.door import REASON, REFUSED, Door

HOOK = "etc/libvirt/hooks/qemu.d/nodetracker"
PROGRAM = "usr/local/lib/nodetracker/ask.py"
DROP_IN = "etc/systemd/system/libvirtd.service.d/nodetracker-admission.conf"
UNIT = "usr/lib/systemd/system/libvirtd.service"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a machine with libvirt."""
    root = tmp_path / "root"
    for name in ("etc/libvirt/hooks", "usr/local/lib", "usr/lib/systemd/system", "state"):
        (root / name).mkdir(parents=True)
    (root / UNIT).touch()
    monkeypatch.setattr(AdmissionCommand, "root", root)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return root


@pytest.fixture
def run(root, tmp_path, monkeypatch, capsys):
    """Run a command; returns exit code, output and error."""

    def run(*arguments, more=""):
        path = tmp_path / "nodetracker.conf"
        path.write_text(f"[DEFAULT]\nstate_path = {root}/state\n{more}")
        monkeypatch.setattr(cfg, "CONF", cfg.ConfigOpts())
        code = main([f"--config-file={path}", "admission", *arguments])
        return code, *capsys.readouterr()

    return run


def install(run, *options, driver="libvirt"):
    return run("install", "--driver", driver, *options)


def list_tree(root):
    """Return every path with its mode and text."""
    return {
        path.relative_to(root): (
            stat.filemode(path.lstat().st_mode),
            path.read_text() if path.is_file() else "",
        )
        for path in root.rglob("*")
    }


def test_install_says_what_it_wrote_and_what_is_left_to_do(root, run):
    assert install(run) == (
        0,
        f"wrote {root}/{PROGRAM}\nwrote {root}/{DROP_IN}\nwrote {root}/{HOOK}\n"
        "run: systemctl daemon-reload\nrun: systemctl try-restart libvirtd\n",
        "",
    )
    assert (root / HOOK).stat().st_mode & 0o777 == 0o755
    assert "\nwhen_unavailable=allow\n" in (root / HOOK).read_text()
    assert f'{root}/{PROGRAM} "{root}/state/admission.sock" wait' in (root / DROP_IN).read_text()


def test_a_second_installation_changes_nothing(root, run):
    install(run)
    before = list_tree(root)
    assert install(run) == (0, "nothing to change\n", "")
    assert list_tree(root) == before


def test_what_is_out_of_date_is_written_again_without_a_restart(root, run):
    install(run)
    before = list_tree(root)
    (root / PROGRAM).write_text("# nodetracker-admission\n# of an earlier release\n")
    assert install(run) == (0, f"wrote {root}/{PROGRAM}\n", "")
    assert list_tree(root) == before


def test_the_choice_without_an_answer_can_be_changed(root, run):
    install(run)
    assert install(run, "--when-unavailable", "refuse")[1] == f"wrote {root}/{HOOK}\n"
    assert "\nwhen_unavailable=refuse\n" in (root / HOOK).read_text()


@pytest.mark.parametrize(
    "directory", ["etc/libvirt/hooks/qemu.d", "usr/local/lib/nodetracker", None]
)
def test_remove_leaves_everything_as_it_was(root, run, directory):
    if directory:
        (root / directory).mkdir()
        (root / directory / "50-other").write_text("#!/bin/sh\n")
    (root / "etc/libvirt/hooks/qemu").write_text("#!/bin/sh\n")
    before = list_tree(root)
    install(run)
    install(run, "--when-unavailable", "refuse")
    code, output, _ = run("remove", "--driver", "libvirt")
    assert code == 0
    assert f"removed {root}/{HOOK}\n" in output
    assert output.endswith("run: systemctl daemon-reload\n")
    assert list_tree(root) == before


def test_an_empty_directory_that_was_there_is_kept(root, run):
    (root / HOOK).parent.mkdir()
    before = list_tree(root)
    install(run)
    run("remove", "--driver", "libvirt")
    assert list_tree(root) == before


def test_a_drop_in_of_a_service_that_is_gone_is_removed(root, run):
    install(run)
    (root / UNIT).unlink()
    run("remove", "--driver", "libvirt")
    assert not (root / DROP_IN).exists()


def test_an_invalid_configuration_does_not_keep_what_is_installed(root, run):
    before = list_tree(root)
    install(run)
    assert run("remove", "--driver", "libvirt", more="no option\n")[0] == 0
    assert list_tree(root) == before


def test_where_nothing_is_installed_remove_does_nothing(root, run):
    before = list_tree(root)
    assert run("remove", "--driver", "libvirt") == (0, "nothing to change\n", "")
    assert list_tree(root) == before


@pytest.mark.parametrize("name", [HOOK, PROGRAM, DROP_IN])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_of_somebody_else_is_never_changed(root, run, name, kind):
    (root / name).parent.mkdir(parents=True)
    if kind == "file":
        (root / name).write_text("#!/bin/sh\nexit 0\n")
    else:
        (root / name).symlink_to("/nonexistent")
    before = list_tree(root)
    message = f"{root}/{name} was not installed by nodetracker; it is kept\n"
    assert install(run) == (1, "", message)
    run("remove", "--driver", "libvirt")
    assert list_tree(root) == before


@pytest.mark.parametrize(
    "uris",
    ["qemu+ssh://root@kvm-1/system", "qemu:///system, b=qemu+tls://kvm-2/system", "xen:///system"],
)
def test_only_this_machine_s_libvirt_can_ask(root, run, uris):
    before = list_tree(root)
    code, _, error = run(
        "install", "--driver", "libvirt", more=f"[libvirt]\nconnection_uris = {uris}\n"
    )
    assert code == 1
    assert error.startswith("[libvirt] connection_uris: ")
    assert list_tree(root) == before


@pytest.mark.parametrize("uri", ["qemu:///system", "kvm-1=qemu:///system?socket=/run/v.sock"])
def test_a_local_libvirt_by_any_name_can_ask(run, uri):
    option = f"[libvirt]\nconnection_uris = {uri}\n"
    assert run("install", "--driver", "libvirt", more=option)[0] == 0


def test_without_libvirt_nothing_is_installed(root, run):
    (root / "etc/libvirt/hooks").rmdir()
    (root / "etc/libvirt").rmdir()
    message = f"{root}/etc/libvirt does not exist: libvirt is not installed here\n"
    assert install(run) == (1, "", message)


@pytest.mark.parametrize("action", ["install", "remove"])
def test_only_root_may_change_it(root, run, action, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    message = "only root may change what the engines run: use sudo\n"
    assert run(action, "--driver", "libvirt") == (1, "", message)


def show(run):
    code, output, _ = run("show", "-f", "json")
    assert code == 0
    return [
        (row["path"], row["state"], row["when_unavailable"])
        for row in json.loads(output)
        if row["driver"] in (None, "libvirt")
    ]


def test_show_says_what_is_installed_and_whether_the_agent_answers(root, run):
    paths = [f"{root}/{name}" for name in (PROGRAM, DROP_IN, HOOK)]
    door = f"{root}/state/admission.sock"
    silent = (door, "does not answer: No such file or directory", None)
    assert show(run) == [*((path, "absent", None) for path in paths), silent]
    install(run, "--when-unavailable", "refuse")
    with Door(root / "state/admission.sock"):
        assert show(run) == [
            *((path, "current", "refuse") for path in paths),
            (door, "answers", None),
        ]
    (root / PROGRAM).write_text("# nodetracker-admission\n")
    (root / HOOK).chmod(0o644)
    (root / DROP_IN).write_text("[Service]\n")
    assert [state for _, state, _ in show(run)[:3]] == ["outdated", "foreign", "outdated"]


def test_list_shows_the_agent_s_last_questions(root, run):
    question = {
        "ask": "start", "asked_at": "2026-01-02T03:04:05Z", "driver": "libvirt",
        "operation": "prepare", "guest": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b01", "name": "web",
        **REFUSED,
    }  # fmt: skip
    with Door(root / "state/admission.sock") as door:
        door.questions.append(question)
        code, output, _ = run("list", "-f", "json")
        assert (code, json.loads(output)) == (
            0, [{name: value for name, value in question.items() if name != "ask"}]
        )  # fmt: skip
        assert REASON.partition(",")[0] in run("list")[1]


def test_list_without_an_agent_is_an_error_of_one_line(root, run):
    message = f"{root}/state/admission.sock: the agent does not answer: No such file or directory\n"
    assert run("list") == (1, "", message)


@pytest.mark.parametrize("url", ["tcp://10.0.0.1:2375", "unix:///run/podman/podman.sock"])
def test_only_the_docker_of_this_machine_can_ask(root, run, url):
    before = list_tree(root)
    code, _, error = run("install", "--driver", "docker", more=f"[docker]\nbase_url = {url}\n")
    assert (code, error.partition(": ")[0]) == (1, "[docker] base_url")
    assert list_tree(root) == before


class FakePlugin:
    """Docker's plugin, which Docker has until it is removed for the second time."""

    when_unavailable = "allow"

    def __init__(self, root):
        self.config = root / "daemon.json"
        self.config.touch()
        self.unit = root / "a.service"

    def install(self, socket, when_unavailable):
        self.installed = socket, when_unavailable
        return [self.unit, self.config], ["systemctl reload docker"]

    def remove(self):
        self.when_unavailable = None if self.is_reloaded else "allow"
        return (
            ([self.unit], []) if self.is_reloaded else ([self.config], ["systemctl reload docker"])
        )


def test_docker_is_reloaded_before_its_plugin_is_removed(root, run, monkeypatch):
    plugin = FakePlugin(root)
    monkeypatch.setattr(AdmissionCommand, "hooks", {"docker": plugin})
    assert run("install", "--driver", "docker", "--when-unavailable", "refuse") == (
        0, f"wrote {plugin.unit}\nwrote {plugin.config}\nrun: systemctl reload docker\n", ""
    )  # fmt: skip
    assert plugin.installed == (root / "state/admission.sock", "refuse")
    plugin.is_reloaded = False
    assert run("remove", "--driver", "docker") == (
        1, f"changed {plugin.config}\nrun: systemctl reload docker\n", ""
    )  # fmt: skip
    plugin.is_reloaded = True
    assert run("remove", "--driver", "docker") == (0, f"removed {plugin.unit}\n", "")
