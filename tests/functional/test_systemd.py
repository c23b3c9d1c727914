"""The files for systemd in etc/, judged by systemd's own programs."""

import configparser
import re
import subprocess

import pytest

from nodetracker.bootstrap.options.default import DEFAULT
from nodetracker.hooks.docker import DockerPlugin
from nodetracker.hooks.libvirt import LibvirtHook
from tests.functional.servers.process import require, require_root
from tests.genconfig import SAMPLE
from tests.programs import BIN

ETC = SAMPLE.parents[1]
UNIT = ETC / "systemd" / "nodetracker-compute.service"
CONDUCTOR = ETC / "systemd" / "nodetracker-conductor.service"
API = ETC / "systemd" / "nodetracker-api.service"
SYSUSERS = ETC / "sysusers.d" / "nodetracker.conf"
TMPFILES = ETC / "tmpfiles.d" / "nodetracker.conf"
STANDALONE = ETC / "systemd" / "nodetracker-standalone.service"
UNITS = (UNIT, CONDUCTOR, API, STANDALONE)
USERS = {UNIT: "nodetracker", CONDUCTOR: "nodetracker-conductor", API: "nodetracker-api"}
PREFIX = "/opt/nodetracker/bin/"


def run(*command):
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def rules(path):
    """Return the lines that say something, each split at blanks."""
    return [
        line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")
    ]


def read_service(path):
    """Return the [Service] section; of an option that stands there twice the last one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser["Service"]


@pytest.fixture(scope="module")
def service():
    return read_service(UNIT)


def test_the_user_is_in_no_group_that_controls_guests(service):
    assert (service["User"], service["Group"]) == ("nodetracker", "nodetracker")
    assert "SupplementaryGroups" not in service
    assert [rule for rule in rules(SYSUSERS) if rule[0] == "m"] == []


class TestUnit:
    @pytest.fixture(params=UNITS, ids=lambda path: path.stem)
    def unit(self, tmp_path, request):
        """A unit with the programs of this environment in place of those in /opt."""
        require("systemd-analyze")
        text = request.param.read_text()
        assert text.count(PREFIX) == (1 if request.param == STANDALONE else 2)
        unit = tmp_path / request.param.name
        unit.write_text(text.replace(PREFIX, f"{BIN}/"))
        return unit

    def test_systemd_finds_no_mistake(self, unit):
        code, output = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        assert (code, output) == (0, "")

    def test_a_mistake_would_be_found(self, unit):
        unit.write_text(unit.read_text().replace("Type=notify", "Type=notify\nNoSuch=1"))
        code, output = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        assert code != 0
        assert "NoSuch" in output

    def test_the_exposure_is_small(self, unit):
        code, output = run(
            "systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", unit
        )
        assert code == 0, output

    def test_the_process_is_supervised(self, service):
        assert {
            name: service[name]
            for name in (
                "Type", "NotifyAccess", "ExecStart", "ExecReload", "WatchdogSec", "KillMode",
                "Restart", "RestartPreventExitStatus", "User", "Group", "StateDirectory",
                "StateDirectoryMode",
            )
        } == {
            "Type": "notify",
            "NotifyAccess": "main",
            "ExecStart": "/opt/nodetracker/bin/nodetracker-compute",
            "ExecReload": "/bin/kill -HUP $MAINPID",
            "WatchdogSec": "60",
            "KillMode": "mixed",
            "Restart": "on-failure",
            "RestartPreventExitStatus": "78",
            "User": "nodetracker",
            "Group": "nodetracker",
            "StateDirectory": "nodetracker",
            "StateDirectoryMode": "0750",
        }  # fmt: skip

    @pytest.mark.parametrize("path", [UNIT, CONDUCTOR, API], ids=lambda path: path.stem)
    def test_a_reload_checks_the_program_s_files_before_it_signals(self, path, tmp_path):
        """systemd runs the lines in their order and stops at the first that fails."""
        check, signal = (
            line.removeprefix("ExecReload=")
            for line in path.read_text().splitlines()
            if line.startswith("ExecReload=")
        )
        assert signal == "/bin/kill -HUP $MAINPID"
        command = check.replace(PREFIX, f"{BIN}/").split()
        home = tmp_path / ".nodetracker"  # the first place of the files, before /etc/nodetracker
        home.mkdir()
        (home / "nodetracker.conf").write_text(
            f"[DEFAULT]\nstate_path = {tmp_path}\n[compute]\ncompute_driver = local\n"
        )
        own = home / f"{path.stem}.conf"  # which this program alone reads
        own.write_text("[DEFAULT]\nreport_interval = 5\n")
        code, output = run("env", f"HOME={tmp_path}", *command)
        assert (code, str(own) in output) == (0, True), output
        own.write_text("[DEFAULT]\nreport_interval = x\nservice_down_time = y\n")
        code, output = run("env", f"HOME={tmp_path}", *command)
        assert code == 78
        names = [line.split(":")[0] for line in output.splitlines()]
        assert names == ["[DEFAULT] report_interval", "[DEFAULT] service_down_time"]

    def test_what_a_service_writes_is_its_own(self, service):
        assert service["UMask"] == "0077"

    def test_standalone_differs_in_its_program_and_its_files_alone(self, service):
        own = read_service(STANDALONE)
        differing = {name for name in {*own, *service} if own.get(name) != service.get(name)}
        assert differing == {
            "ExecStart", "Environment", "ConfigurationDirectory", "ConfigurationDirectoryMode",
            "LoadCredential",
        }  # fmt: skip

    @pytest.mark.parametrize("path", [CONDUCTOR, API], ids=lambda path: path.stem)
    def test_the_others_are_supervised_as_the_agent_is(self, service, path):
        conductor = read_service(path)
        assert conductor["ExecStart"] == f"/opt/nodetracker/bin/{path.stem}"
        for name in (
            "Type", "NotifyAccess", "ExecReload", "WatchdogSec", "KillMode", "Restart",
            "RestartPreventExitStatus", "TimeoutStopSec", "LimitNOFILE", "UMask",
        ):  # fmt: skip
            assert conductor[name] == service[name], name

    def test_the_memory_of_those_that_others_send_to_is_limited(self, service):
        limits = [read_service(path).get("MemoryMax") for path in (CONDUCTOR, API)]
        assert (limits, "MemoryMax" in service) == (["2G", "2G"], False)

    def test_a_conductor_may_limit_its_child_process(self):
        """It parses large bodies; the C library limits it by this system call."""
        require("systemd-analyze")
        allowed = read_service(CONDUCTOR)["SystemCallFilter"]
        assert "@resources" in allowed  # the last line, of what is not allowed
        for group, is_member in (("@default", True), ("@resources", False)):
            _, output = run("systemd-analyze", "syscall-filter", group)
            assert ("prlimit64" in output.split()) == is_member

    def test_a_running_audit_may_end_before_it_is_killed(self, service):
        (timeout,) = [o for o in DEFAULT.options if o.name == "graceful_shutdown_timeout"]
        assert int(service["TimeoutStopSec"]) > timeout.default

    def test_what_the_agent_reads_is_not_hidden(self, service):
        hidden = {"ProcSubset", "ProtectProc", "PrivateNetwork", "IPAddressDeny", "RootDirectory"}
        assert not hidden & set(service)
        assert {"AF_UNIX", "AF_INET", "AF_INET6"} <= set(service["RestrictAddressFamilies"].split())

    def test_the_state_directory_is_the_default_state_path(self, service):
        (state_path,) = [option for option in DEFAULT.options if option.name == "state_path"]
        assert state_path.default == f"/var/lib/{service['StateDirectory']}"


class TestUser:
    def test_is_made_with_a_group_and_without_a_login(self, tmp_path):
        require("systemd-sysusers")
        place = tmp_path / "etc" / "sysusers.d"
        place.mkdir(parents=True)
        (place / SYSUSERS.name).write_text(SYSUSERS.read_text())
        code, output = run("systemd-sysusers", f"--root={tmp_path}")
        if code != 0 and "not permitted" in output:
            require_root("write what systemd-sysusers makes")
        assert code == 0, output
        users = (tmp_path / "etc" / "passwd").read_text()
        pattern = r"(?m)^([\w-]+):x:\d+:\d+:nodetracker [\w ]+:/:/usr/sbin/nologin$"
        assert sorted(re.findall(pattern, users)) == sorted(USERS.values())
        groups = (tmp_path / "etc" / "group").read_text().splitlines()
        assert sorted(group.split(":")[0] for group in groups) == sorted(USERS.values())

    def test_systemd_understands_the_file(self):
        require("systemd-sysusers")
        code, output = run("systemd-sysusers", "--dry-run", SYSUSERS)
        assert code == 0, output

    def test_is_the_one_of_the_unit_and_of_the_directories(self, service):
        assert [rule[:2] for rule in rules(SYSUSERS)] == [["u", user] for user in USERS.values()]
        owners = {(rule[3], rule[4]) for rule in rules(TMPFILES) if rule[0] != "L"}
        assert owners == {
            (service["User"], service["Group"]),
            *(("root", user) for user in USERS.values()),
        }

    @pytest.mark.parametrize("path", [CONDUCTOR, API], ids=lambda path: path.stem)
    def test_another_service_reads_what_is_for_all_and_its_own_files(self, path):
        unit = read_service(path)
        assert (unit["User"], unit["SupplementaryGroups"]) == (path.stem, "nodetracker")
        (own,) = [rule for rule in rules(TMPFILES) if rule[1].endswith(f"/{path.stem}.conf.d")]
        assert own[2:5] == ["0750", "root", unit["Group"]]


class TestDirectories:
    def test_only_the_agent_and_root_read_the_configuration(self):
        assert rules(TMPFILES) == [
            ["d", "/etc/nodetracker", "0755", "root", "nodetracker", "-"],
            ["d", "/etc/nodetracker/nodetracker.conf.d", "0755", "root", "nodetracker", "-"],
            ["z", "/etc/nodetracker/nodetracker.conf", "0640", "root", "nodetracker", "-"],
            ["z", "/etc/nodetracker/nodetracker.conf.d/*.conf", "0640", "root", "nodetracker", "-"],
            [
                "d",
                "/etc/nodetracker/nodetracker-compute.conf.d",
                "0755",
                "root",
                "nodetracker",
                "-",
            ],
            [
                "z",
                "/etc/nodetracker/nodetracker-compute.conf.d/*.conf",
                "0640",
                "root",
                "nodetracker",
                "-",
            ],
            *(
                ["L", f"/etc/nodetracker/{name}.conf.d", *"----", "nodetracker-compute.conf.d"]
                for name in ("nodetracker-manage", "nodetracker-status")
            ),
            *(
                rule
                for service in ("nodetracker-conductor", "nodetracker-api")
                for rule in (
                    ["d", f"/etc/nodetracker/{service}.conf.d", "0750", "root", service, "-"],
                    [
                        "z",
                        f"/etc/nodetracker/{service}.conf.d/*.conf",
                        "0640",
                        "root",
                        service,
                        "-",
                    ],
                )
            ),
            ["d", "/var/lib/nodetracker", "0750", "nodetracker", "nodetracker", "-"],
        ]

    def test_are_made_by_systemd_tmpfiles(self, tmp_path):
        require("systemd-tmpfiles")
        etc = tmp_path / "etc"
        (etc / "nodetracker").mkdir(parents=True)
        secret = etc / "nodetracker" / "nodetracker.conf"
        secret.touch(mode=0o644)
        # Owned by whoever runs this: systemd looks names up below the root, and there is no other.
        owner = rf"{secret.stat().st_uid} {secret.stat().st_gid}"
        text = re.sub(
            r"(root|nodetracker) nodetracker[a-z-]* -", f"{owner} -", TMPFILES.read_text()
        )
        rules_file = tmp_path / TMPFILES.name
        rules_file.write_text(text)
        code, output = run("systemd-tmpfiles", "--create", f"--root={tmp_path}", rules_file)
        assert code == 0, output
        state = tmp_path / "var" / "lib" / "nodetracker"
        assert state.stat().st_mode & 0o777 == 0o750
        assert secret.stat().st_mode & 0o777 == 0o640
        for name in ("nodetracker", "nodetracker-compute", "nodetracker-manage"):
            assert (etc / "nodetracker" / f"{name}.conf.d").is_dir()


def test_what_is_installed_at_engines_is_valid(tmp_path):
    """The plugin's units, and the drop-ins by which engines wait for the agent."""
    require("systemd-analyze")
    units = tmp_path / "etc/systemd/system"
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    for name in ("docker", "libvirtd"):
        unit = tmp_path / "usr/lib/systemd/system" / f"{name}.service"
        unit.write_text("[Service]\nExecStart=/bin/true\n")
        units.mkdir(parents=True, exist_ok=True)
        (units / unit.name).write_text(unit.read_text())
    for hook in (DockerPlugin(tmp_path), LibvirtHook(tmp_path)):
        for file in hook.list_files(tmp_path / "a socket", "allow"):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            file.path.write_text(file.text)
    for name in (
        "nodetracker-docker.socket", "nodetracker-docker.service", "docker.service",
        "libvirtd.service",
    ):  # fmt: skip
        code, output = run("systemd-analyze", "verify", "--man=no", units / name)
        assert (code, output) == (0, "")
