"""Faults of the host itself: each is reported once, and the agent continues."""

import os
import resource
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.servers.process import find_free_port, require, require_root, skip_or_fail
from tests.programs import Programs, Running, wait_until

NODES = [
    {"nodename": name, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
    for name in ("node-1", "node-2")
]


@pytest.fixture
def _root() -> None:
    """Require root, as the test mounts filesystems."""
    require_root("mount")


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    programs = Programs(tmp_path, update_resources_interval=1)
    programs.inventory.write_text(yaml.safe_dump({"nodes": NODES}))
    programs.make_schema()
    return programs


def warnings_of(programs: Programs, kind: str) -> list[dict[str, Any]]:
    return [found for found in programs.ask("warning", "list") if found["kind"] == kind]


def messages_of(programs: Programs, kind: str) -> str:
    return " ".join(found["message"] for found in warnings_of(programs, kind))


def show_node(programs: Programs) -> dict[str, Any]:
    """Return a row without its age and its agent's last heartbeat."""
    shown: dict[str, Any] = programs.ask("node", "show", "host-1", "node-1")
    for name in ("audit_age_seconds", "last_seen_up", "load_average", "measured"):
        del shown[name]
    return shown


def audits_go_on(programs: Programs) -> bool:
    return all(node["audit_age_seconds"] < 3 for node in programs.ask("node", "list"))


class TestStateDirectory:
    def mounted(self, programs: Programs, script: str) -> Sequence[str]:
        """Return a prefix that runs a command after a script, in a private mount namespace."""
        require("unshare")
        state = programs.directory / "state"
        shell = f'state={state}; {script} && exec "$0" "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", shell]

    def know(self, programs: Programs) -> None:
        """Create the agent's identity by a first run."""
        assert programs.run("nodetracker-compute", "--once").returncode == 0

    @pytest.mark.usefixtures("_root")
    def test_full_and_known_it_starts_and_warns(self, programs: Programs) -> None:
        self.know(programs)
        full = self.mounted(
            programs,
            "cp $state/compute_id $state/../kept; mount -t tmpfs -o size=64k tmpfs $state; "
            "cp $state/../kept $state/compute_id; cat /dev/zero > $state/filler 2>/dev/null || true",
        )
        with programs.start(before=full) as agent:
            agent.wait_for("is ready")
            (warning,) = warnings_of(programs, "state_path")
            assert "is full" in warning["message"]
            wait_until(lambda: audits_go_on(programs))
            assert agent.output().count("is full") == 1
            assert agent.stop() == 0

    @pytest.mark.usefixtures("_root")
    def test_read_only_and_known_it_starts_and_warns(self, programs: Programs) -> None:
        self.know(programs)
        read_only = self.mounted(
            programs, "mount --bind $state $state; mount -o remount,bind,ro $state"
        )
        with programs.start(before=read_only) as agent:
            agent.wait_for("is ready")
            (warning,) = warnings_of(programs, "state_path")
            assert "is not writable" in warning["message"]
            assert agent.stop() == 0

    @pytest.mark.usefixtures("_root")
    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            ("mkdir -p $state; mount -t tmpfs -o ro tmpfs $state", "Read-only file system"),
            (
                "mkdir -p $state; mount -t tmpfs -o size=16k tmpfs $state; "
                "cat /dev/zero > $state/filler 2>/dev/null || true",
                "No space left on device",
            ),
        ],
        ids=["read-only", "full"],
    )
    def test_where_no_identity_can_be_made_it_ends_with_78(
        self, programs: Programs, script: str, reason: str
    ) -> None:
        with programs.start(before=self.mounted(programs, script)) as agent:
            assert agent.process.wait(60) == 78
            (line,) = agent.output().splitlines()
            assert "compute_id" in line
            assert reason in line

    def test_a_truncated_identity_file_is_replaced(self, programs: Programs) -> None:
        self.know(programs)
        state = programs.directory / "state"
        (state / "compute_id").write_bytes(b"")
        with programs.start() as agent:
            agent.wait_for("is ready")
            (warning,) = warnings_of(programs, "state_path")
            assert "compute_id.unusable" in warning["message"]
            (state / "compute_id.unusable").unlink()
            wait_until(lambda: warnings_of(programs, "state_path") == [])
            assert [line for line in agent.output().splitlines() if "ERROR" in line] != []
            assert agent.stop() == 0


class TestClock:
    def start(self, programs: Programs, shift: Path) -> Running:
        command = [
            sys.executable,
            "-m",
            "tests.functional.runs.shifted_clock",
            str(shift),
            "compute",
        ]
        return Running([*command, f"--config-file={programs.path}"], programs.directory)

    def test_an_hour_on_and_back_changes_nothing_but_the_skew(
        self, programs: Programs, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        """On MariaDB, as SQLite has no clock but the host's."""
        from tests.functional.servers.mariadb import MariaDB

        server = MariaDB()
        request.addfinalizer(server.remove)
        programs.connection = server.create_database("nt_clock")
        programs.configure(update_resources_interval=1)
        programs.make_schema()
        shift = tmp_path / "shift"
        shift.write_text("0")
        with self.start(programs, shift) as agent:
            agent.wait_for("is ready")
            before = show_node(programs)
            for seconds, side in ((3600, "ahead of"), (-3600, "behind"), (0, None)):
                set_shift(shift, seconds)
                wait_until(lambda seconds=seconds: abs(skew(programs) - seconds) < 2)  # type: ignore[misc]
                wait_until(lambda: audits_go_on(programs))
                (service,) = programs.ask("service", "list")
                assert service["state"] == "up"
                if side is None:
                    wait_until(lambda: warnings_of(programs, "clock_skew") == [])
                else:
                    wait_until(lambda side=side: side in messages_of(programs, "clock_skew"))  # type: ignore[misc]
            assert show_node(programs) == before
            assert agent.stop() == 0
            assert agent.output().count("ahead of the database's") == 1

    def test_on_sqlite_it_continues_as_well(self, programs: Programs, tmp_path: Path) -> None:
        shift = tmp_path / "shift"
        shift.write_text("0")
        with self.start(programs, shift) as agent:
            agent.wait_for("is ready")
            before = show_node(programs)
            for seconds in (3600, -3600, 0):
                set_shift(shift, seconds)
                count = report_count(programs)
                wait_until(lambda count=count: report_count(programs) > count + 1)  # type: ignore[misc]
                # The clock may have jumped in the midst of a heartbeat, which the next corrects.
                wait_until(lambda: warnings_of(programs, "clock_skew") == [])
            assert show_node(programs) == before
            assert agent.stop() == 0
            logged = [line for line in agent.output().splitlines() if "WARNING" in line]
            assert [line for line in logged if "this host's clock" not in line] == []


def set_shift(shift: Path, seconds: int) -> None:
    """Set the clock from one moment to the next; the agent keeps the file open."""
    shift.write_text(str(seconds))


def skew(programs: Programs) -> float:
    return float(programs.ask("service", "list")[0]["clock_skew_seconds"] or 0)


def report_count(programs: Programs) -> int:
    return int(programs.ask("service", "show", "host-1", "nodetracker-compute")["report_count"])


def assert_said_once(agent: Running) -> None:
    """Check that no line was logged again: each fault is named once, and its end once."""
    messages = [line.partition(" [-] ")[2] for line in agent.output().splitlines()]
    assert len(messages) == len(set(messages)), agent.output()


class TestProc:
    def test_an_unreadable_proc_holds_the_facts_and_is_logged_once(
        self, programs: Programs, tmp_path: Path
    ) -> None:
        proc = tmp_path / "proc"
        proc.symlink_to("/proc")
        programs.configure(driver="local", update_resources_interval=1)
        programs.path.write_text(programs.path.read_text() + f"[host]\nprocfs = {proc}\n")
        with programs.start() as agent:
            agent.wait_for("is ready")
            before = programs.ask("node", "show", "host-1")
            proc.unlink()
            wait_until(lambda: warnings_of(programs, "fact_held") != [])
            time.sleep(2.5)
            held = programs.ask("node", "show", "host-1")
            assert (held["memory_mb"], held["vcpus"]) == (before["memory_mb"], before["vcpus"])
            assert_said_once(agent)
            proc.symlink_to("/proc")
            wait_until(lambda: warnings_of(programs, "fact_held") == [])
            assert agent.stop() == 0
            assert "Traceback" not in agent.output()


class TestResources:
    def test_without_free_descriptors_it_continues_and_recovers(self, programs: Programs) -> None:
        port = find_free_port()
        programs.configure(update_resources_interval=1, metrics_port=port)
        with programs.start() as agent, socket.socket() as waiting:
            agent.wait_for("is ready")
            agent.wait_for("Metrics and health: serving on")
            pid = agent.process.pid
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
            waiting.connect(("127.0.0.1", port))
            wait_until(lambda: "ERROR" in agent.output() or "WARNING" in agent.output())
            used, began = cpu_seconds(pid), time.monotonic()
            time.sleep(4)
            assert cpu_seconds(pid) - used < (time.monotonic() - began) / 4
            assert agent.process.poll() is None
            time.sleep(2.5)
            assert_said_once(agent)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            wait_until(lambda: audits_go_on(programs))
            wait_until(lambda: read_health(port) == 200)  # heartbeats go on, too
            assert agent.stop() == 0
            print(agent.output())


def read_health(port: int) -> int:
    """Return the status of ``/health``."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class TestLimitsOfTheAgent:
    """Limits of the agent's own unit or container are not the host's capacity."""

    LIMIT = 512 * 1024**2

    def read(self, programs: Programs, *before: str) -> tuple[int, int]:
        """Audit this machine behind a command; return the row's CPUs and memory."""
        programs.configure(driver="local", instances_path="/")
        command = [*before, str(programs.bin / "nodetracker-compute"), "--once"]
        done = subprocess.run(
            [*command, f"--config-file={programs.path}"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        row = programs.ask("node", "show", "host-1", "host-1")
        assert warnings_of(programs, "host_data") == []
        return row["vcpus"], row["memory_mb"]

    def expected(self) -> tuple[int, int]:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024**2
        return os.sysconf("SC_NPROCESSORS_ONLN"), memory

    @pytest.fixture
    def group(self) -> Iterator[Path]:
        """A memory cgroup with a limit, as MemoryMax of a unit sets it."""
        require_root("make a cgroup")
        old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        parent, name = (old, "memory.limit_in_bytes") if old.exists() else (new, "memory.max")
        path = parent / f"nodetracker-{os.getpid()}"
        try:
            path.mkdir()
            (path / name).write_text(str(self.LIMIT))
        except OSError as error:
            skip_or_fail(f"no memory cgroup can be made: {error}")
        yield path
        path.rmdir()

    def test_of_a_unit(self, programs: Programs, group: Path) -> None:
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        assert self.read(programs, "sh", "-c", enter, "sh") == self.expected()

    def test_of_a_container(self, programs: Programs) -> None:
        require("podman")
        require_root("start a container of this root directory")
        paths = [programs.directory, Path(sys.prefix), Path(__file__).parents[2]]
        limits = ("--memory", str(self.LIMIT), "--cpus=0.5")
        small = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        run = (
            *("podman", "run", "--rm", "--network=none", *limits, *small),
            *(f"--volume={path}:{path}" for path in paths),
        )
        done = subprocess.run(
            [*run, "--rootfs", "/:O", "/bin/true"], capture_output=True, text=True
        )
        if done.returncode != 0:
            skip_or_fail(f"podman starts no container here: {done.stderr.strip()[-200:]}")
        assert self.read(programs, *run, "--rootfs", "/:O") == self.expected()
