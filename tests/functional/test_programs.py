"""The programs, run as a user runs them."""

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from nodetracker.model.amount_text import render_mib
from tests.builders import WORKLOAD
from tests.functional.servers.process import require_root
from tests.genconfig import SAMPLE
from tests.programs import BIN, Programs, Running, wait_until

GUEST = {
    "uuid": WORKLOAD,
    "name": "vm-1",
    "vcpus": 2,
    "memory_mb": 2048,
    "disk_gb": 20,
    "project_id": "p1",
}
NOT_FOR_LISTS = (
    "alembic", "docker", "docutils", "libvirt", "mako", "oslo_config.generator", "oslo_messaging",
    "oslo_reports.guru_meditation_report", "oslo_utils.netutils", "prometheus_client", "psutil",
    "oslo_log.log", "prompt_toolkit", "psycopg", "pymysql", "pynvml", "requests", "waitress",
    "nodetracker.accounting.audit", "nodetracker.bootstrap.agent",
    "nodetracker.bootstrap.clients", "nodetracker.bootstrap.settings", "nodetracker.compute",
    "nodetracker.conductor", "nodetracker.db.candidates", "nodetracker.db.ledger",
    "nodetracker.db.node_changes", "nodetracker.db.store",
    "nodetracker.db.schema.revisions", "nodetracker.virt.host.capture", "nodetracker.metrics",
    "nodetracker.ports.store", "nodetracker.rpc",
    "nodetracker.usecases.scheduler", "nodetracker.usecases.watch", "nodetracker.model.settings",
    "nodetracker.virt",
)  # fmt: skip
"""Modules that nodetracker-manage does without where it only reads."""

NODE = {"nodename": "node-1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500, "guests": [GUEST]}


def write_inventory(programs, *nodes, **more):
    programs.inventory.write_text(yaml.safe_dump({"nodes": list(nodes)} | more))


def start_in_terminal(program, *arguments):
    """Start a program in a terminal of its own; return its pid and the terminal's descriptor."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below nohup
        os.execvpe(program, [program, *arguments], os.environ | {"PATH": f"{BIN}:/usr/bin:/bin"})
    return pid, terminal


@pytest.fixture
def programs(tmp_path):
    programs = Programs(tmp_path)
    write_inventory(programs, NODE)
    return programs


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """One audit's rows, for all tests that only read."""
    programs = Programs(tmp_path_factory.mktemp("read-only"))
    write_inventory(programs, NODE)
    return audit(programs)


@pytest.fixture
def audited(programs):
    return audit(programs)


def audit(programs):
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    return programs


def errors(done):
    return done.returncode, [line for line in done.stderr.splitlines() if line]


class TestOnce:
    def test_audits_and_prints_a_line_a_node(self, programs):
        programs.make_schema()
        done = programs.run("nodetracker-compute", "--once")
        assert done.returncode == 0
        line = "vcpus 2/16, memory 2.5/64 GiB, disk 20/500 GiB, 1 guest"
        assert done.stdout.splitlines() == [f"node-1: {line}: create"]
        again = programs.run("nodetracker-compute", "--once")
        assert again.stdout.splitlines() == [f"node-1: {line}: unchanged"]

    def test_an_option_that_nothing_reads_is_logged(self, audited):
        audited.configure("reserved_host_memory_mb = 4096")
        done = audited.run("nodetracker-compute", "--once")
        (line,) = done.stderr.splitlines()
        assert line.endswith("unknown option [DEFAULT] reserved_host_memory_mb is ignored")
        assert done.returncode == 0

    def test_fails_when_a_node_fails(self, audited):
        write_inventory(audited, NODE, fail={"node-1": "boom"})
        done = audited.run("nodetracker-compute", "--once")
        assert done.returncode == 1
        (line,) = done.stdout.splitlines()
        facts = "cpu, gpus, guests, hypervisor, memory, numa, pci, storage, system"
        assert re.search(rf": {facts}: fake:\S+: boom$", line)

    def test_a_host_without_a_route_has_the_loopback_address_and_no_log_line(self, audited):
        require_root("make a network namespace")
        before = ("unshare", "--net")
        with audited.start("nodetracker-compute", "--once", before=before) as once:
            assert once.process.wait(60) == 0
            assert once.output().splitlines()[0].startswith("node-1: vcpus ")
        assert audited.ask("node", "show", "host-1")["host_ip"] == "127.0.0.1"

    def test_does_not_run_beside_a_live_agent(self, audited):
        with audited.start() as agent:
            agent.wait_for("is ready")
            code, lines = errors(audited.run("nodetracker-compute", "--once"))
            assert code == 1
            assert "host host-1 already has an agent" in lines[-1]
            assert "stop that agent first" in lines[-1]
            assert agent.stop() == 0


class TestAgent:
    def test_keeps_the_row_and_ends_cleanly(self, audited):
        audited.configure(update_resources_interval=1)
        with audited.start() as agent:
            agent.wait_for("is ready")
            (row,) = audited.ask("node", "list")
            assert (row["state"], row["status"], row["memory_mb_used"]) == ("up", "enabled", 2560)
            assert row["audit_age_seconds"] < 60
            write_inventory(audited, NODE | {"guests": []})
            wait_until(lambda: audited.ask("node", "list")[0]["memory_mb_used"] == 512)
            assert agent.stop() == 0
            assert "Traceback" not in agent.output()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ends_on_a_signal_while_it_starts(self, programs, number):
        with programs.start() as agent:
            agent.wait_for("run nodetracker-manage db sync")
            assert agent.stop(number) == 0

    def test_goes_on_when_the_schema_comes_later(self, programs):
        programs.configure(update_resources_interval=1)
        with programs.start() as agent:
            agent.wait_for("run nodetracker-manage db sync")
            time.sleep(2.5)
            assert agent.output().count("run nodetracker-manage db sync") == 1
            programs.manage("db", "sync")
            wait_until(lambda: len(programs.ask("node", "list")) == 1)
            agent.wait_for("The database is back")
            assert agent.stop() == 0

    def test_is_responsive_while_a_node_hangs(self, audited):
        audited.configure(update_resources_interval=1, probe_timeout=120)
        write_inventory(
            audited, NODE, NODE | {"nodename": "node-2", "guests": []}, fail={"node-1": "hang"}
        )
        with audited.start() as agent:
            wait_until(lambda: len(audited.ask("node", "list")) == 2)
            begun = time.monotonic()

            def has_ended() -> bool:
                """Signal again, as two signals at one moment are one."""
                agent.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
                return agent.process.poll() is not None

            wait_until(has_ended)
            assert agent.process.wait() == 1  # a second signal ends it at once
            assert time.monotonic() - begun < 50  # the first one alone, after 60 s

    def test_imports_no_eventlet_and_nothing_it_does_not_need(self):
        code = (
            "import nodetracker.cmd.compute, sys; "
            "print(*[name for name in ('eventlet', 'alembic', 'cliff', 'docker', 'jsonschema', "
            "'libvirt', 'oslo_messaging', 'prettytable', 'asyncio.events', 'rfc3986.api', 'yaml', "
            "'nodetracker.views.history') "
            "if sys.modules.get(name)])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == ""


class TestStandalone:
    def test_needs_nothing_set_up(self, tmp_path):
        state = tmp_path / "xdg" / "nodetracker"
        environment = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
        with Running([BIN / "nodetracker-standalone"], tmp_path, **environment) as running:
            running.wait_for("is ready")
            assert running.stop() == 0
        output = running.output()
        page, query = (
            output.index("in a browser: http://127.0.0.1:8774/ui/"),
            output.index("Query it"),
        )
        assert page < query
        assert f"nodetracker-manage --config-file {state}/nodetracker.conf node list" in output
        ask = [BIN / "nodetracker-manage", f"--config-file={state}/nodetracker.conf"]
        hostname = os.uname().nodename
        shown = subprocess.run(
            [*ask, "node", "show", hostname, "-f", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        row = json.loads(shown.stdout)
        total_kib = int(Path("/proc/meminfo").read_text().split()[1])
        assert row["memory_mb"] == total_kib // 1024
        assert row["vcpus"] == os.cpu_count()
        assert 0 <= row["metrics"]["cpu_percent"] <= 100
        assert row["local_gb"] == os.statvfs(state).f_blocks * os.statvfs(state).f_frsize // 2**30
        assert f"/{render_mib(row['memory_mb'])} " in output

    def test_reads_its_own_file_again(self, tmp_path):
        own = tmp_path / "nodetracker"
        own.mkdir()
        (own / "nodetracker.conf").write_text(f"[DEFAULT]\nhost = renamed\nstate_path = {own}\n")
        with Running(
            [BIN / "nodetracker-standalone"], tmp_path, XDG_STATE_HOME=str(tmp_path)
        ) as running:
            running.wait_for("Agent of host renamed is ready")
            assert running.stop() == 0

    @pytest.mark.parametrize("is_new", [True, False])
    def test_deletes_old_rows_only_of_a_new_installation(self, tmp_path, is_new):
        programs, state = Programs(tmp_path), tmp_path / "state"
        programs.inventory.write_text(yaml.safe_dump({"nodes": [NODE]}))
        programs.make_schema()
        if not is_new:
            state.mkdir()
            (state / "nodetracker.conf").write_text("")
        with sqlite3.connect(tmp_path / "db.sqlite") as connection:
            connection.execute(
                "INSERT INTO history (at, compute_node_id, host, nodename, what, diff, kind)"
                " VALUES ('2020-01-01 00:00:00', 0, 'h', 'n', 'update', '{}', 'node')"
            )
        with programs.start("nodetracker-standalone") as running:
            running.wait_for("Deleted old rows: 1 of history" if is_new else "is ready")
            assert running.stop() == 0
        with sqlite3.connect(tmp_path / "db.sqlite") as connection:
            old = "SELECT count(*) FROM history WHERE at LIKE '2020%'"
            assert connection.execute(old).fetchone() == (not is_new,)

    def test_ends_with_its_terminal(self, tmp_path):
        programs, database = Programs(tmp_path), tmp_path / "db.sqlite"
        pid, terminal = start_in_terminal(
            "nodetracker-standalone", f"--config-file={programs.path}"
        )
        shown = b""
        while b"is ready" not in shown:
            shown += os.read(terminal, 4096)
        os.close(terminal)  # which sends SIGHUP
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) in (0, 1)  # 1: its output was not all written
        with sqlite3.connect(database) as connection:
            assert connection.execute("SELECT ended_epoch = epoch FROM services").fetchone() == (1,)

    def test_outlives_its_terminal_below_nohup(self, tmp_path):
        programs, log = Programs(tmp_path), tmp_path / "log"
        log.touch()
        file = f"--config-file={programs.path}"
        script = f"exec nohup {BIN}/nodetracker-standalone {file} --log-file={log} >/dev/null 2>&1"
        pid, terminal = start_in_terminal("sh", "-c", script)
        wait_until(lambda: "is ready" in log.read_text())
        os.close(terminal)
        wait_until(lambda: "Configuration reloaded" in log.read_text())
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == 0

    def test_keeps_to_sqlite(self, tmp_path):
        programs = Programs(tmp_path, "mysql+pymysql://u:secret@127.0.0.1/x")
        code, lines = errors(programs.run("nodetracker-standalone"))
        assert code == 78
        assert "standalone requires SQLite" in lines[-1]
        assert "secret" not in "".join(lines)


class TestManage:
    def test_the_columns_are_those_that_others_rely_on(self, read_only):
        (node,) = read_only.ask("node", "list")
        assert list(node) == [
            "host", "nodename", "state", "status", "vcpus", "vcpus_used", "memory_mb",
            "memory_mb_used", "local_gb", "local_gb_used", "running_vms", "total_containers",
            "audit_age_seconds",
        ]  # fmt: skip
        (service,) = read_only.ask("service", "list")
        assert list(service) == [
            "id", "binary", "host", "status", "state", "updated_at", "disabled_reason", "epoch",
            "clock_skew_seconds",
        ]  # fmt: skip
        (host,) = read_only.ask("host", "list")
        assert list(host) == [
            "host_name", "service", "zone", "state", "fullness", "guests", "since", "spare",
            "loss",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("command", "more"),
        [
            (("node", "list"), ("nodetracker.accounting.ledger", "nodetracker.accounting.usage")),
            (("overview",), ()),
        ],
    )
    def test_a_list_imports_nothing_that_it_does_not_need(self, read_only, command, more):
        code = (
            "import sys; from nodetracker.cmd import manage; "
            "code = manage.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr); sys.exit(code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, f"--config-file={read_only.path}", *command],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "host-1" in done.stdout
        imported = done.stderr.split()
        assert "nodetracker.db.reader" in imported
        assert [name for name in (*NOT_FOR_LISTS, *more) if name in imported] == []

    def test_node_show_has_every_column_decoded(self, read_only):
        row = read_only.ask("node", "show", "host-1")
        assert row == read_only.ask("node", "show", "host-1", "node-1") | {
            "audit_age_seconds": row["audit_age_seconds"]
        }
        assert row["hypervisor_hostname"] == "node-1"
        assert row["stats"]["num_proj_p1"] == 1
        assert row["facts"]["cpu"]["state"] == "fresh"
        with sqlite3.connect(read_only.directory / "db.sqlite") as connection:
            columns = {
                name for _, name, *_ in connection.execute("PRAGMA table_info(compute_nodes)")
            }
        assert columns - set(row) == {  # by which candidates are found, derived from the others
            "vcpu_milli_limit", "memory_mb_limit", "disk_mb_limit", "overhead_mb", "huge_mb_unused",
            "admission_flags", "limits_generation", "place", "capacity_seen",
        }  # fmt: skip

    def test_host_show_has_totals_and_projects(self, read_only):
        rows = read_only.ask("host", "show", "host-1")
        assert [row["project"] for row in rows] == [
            "(total)",
            "(used_now)",
            "(used_max)",
            "(unclaimed)",
            "p1",
        ]
        assert rows[0] == {
            "host": "host-1",
            "project": "(total)",
            "cpu": 16,
            "memory_mb": 65536,
            "disk_gb": 500,
        }
        assert rows[-1] == {
            "host": "host-1",
            "project": "p1",
            "cpu": 2,
            "memory_mb": 2048,
            "disk_gb": 20,
        }

    def test_node_describe_shows_who_uses_the_node(self, read_only):
        text = read_only.run("nodetracker-manage", "node", "describe", "host-1").stdout
        assert "Why used" in text
        assert "vm-1" in text
        described = read_only.ask("node", "describe", "host-1")
        assert described["resources"]["MEMORY_MB"]["unclaimed"] == 2048
        assert described["history"][0]["what"] == "create"

    def test_node_stats_adds_up(self, read_only):
        stats = read_only.ask("node", "stats")
        assert (stats["count"], stats["vcpus"], stats["running_vms"]) == (1, 16, 1)

    def test_history_tells_what_changed_and_since_when(self, audited):
        write_inventory(audited, NODE | {"guests": []})
        audited.run("nodetracker-compute", "--once")
        lines = audited.ask("node", "history", "host-1")
        created, updated = (line for line in lines if line["kind"] == "node")
        assert (created["what"], updated["what"]) == ("create", "update")
        assert updated["diff"]["memory_mb_used"] == [2560, 512]
        assert updated["diff"]["guests"] == {"removed": [GUEST["uuid"]]}
        assert updated in audited.ask("node", "history", "host-1", "--since", updated["at"])
        assert created not in audited.ask("node", "history", "host-1", "--since", updated["at"])
        assert audited.ask("node", "history", "host-1", "--since", "1h") == lines
        assert audited.ask("node", "history", "host-1", "--until", "1h") == []
        newest = audited.run("nodetracker-manage", "node", "history", "host-1", "--limit", "1")
        assert "only the newest 1 entries are shown" in newest.stderr
        assert "create" not in newest.stdout
        manage = ("nodetracker-manage", "node", "history", "host-1", "--since", updated["at"])
        shown = audited.run(*manage).stdout
        assert "- guest vm-1\n" in shown
        assert "nodetracker-compute stopped\n" in shown

    def test_service_show_tells_the_agents_identity(self, read_only):
        shown = read_only.ask("service", "show", "host-1", "nodetracker-compute")
        assert (
            shown["agent_id"] == (read_only.directory / "state" / "compute_id").read_text().strip()
        )
        assert shown["epoch"] == 1
        assert shown["last_audit"]["nodes"] == {}

    def test_a_node_is_deleted_once_its_host_is_down(self, audited):
        with audited.start() as agent:
            agent.wait_for("is ready")
            code, lines = errors(audited.manage("node", "delete", "host-1", "node-1"))
            assert code == 1
            assert "is up and would create node node-1 again" in lines[-1]
            agent.stop()
        done = audited.manage("node", "delete", "host-1", "node-1")
        assert (done.returncode, done.stdout) == (0, "node node-1 of host host-1 deleted\n")
        assert audited.ask("node", "list") == []
        assert "delete" in [line["what"] for line in audited.ask("node", "history", "host-1")]

    def test_purge_deletes_what_is_older(self, audited):
        assert {
            row["table"]: row["deleted"]
            for row in audited.ask("db", "purge", "--before", "0", "--dry-run")
        }["history"] == 3  # the node, and its agent's start and end
        refused = audited.manage("db", "purge", "--before", "0")
        assert refused.returncode == 2
        assert "Rows older than 0 days: 3 of history\n" in refused.stderr
        assert "db purge requires --yes without a terminal" in refused.stderr
        for deleted in (3, 0):
            rows = audited.ask("db", "purge", "--before", "0", "--yes")
            assert {row["table"]: row["deleted"] for row in rows}["history"] == deleted

    def test_the_schema_can_be_asked_and_checked(self, programs):
        code, lines = errors(programs.manage("db", "version"))
        assert (code, len(lines)) == (1, 1)
        assert "db sync" in lines[0]
        assert "schema: none ->" in programs.manage("db", "sync").stdout
        revision = programs.manage("db", "version").stdout.strip()
        assert revision
        assert programs.manage("db", "check").returncode == 0
        assert programs.manage("db", "sync", "base", "--yes").returncode == 0
        assert programs.manage("db", "check").returncode == 1

    def test_a_dry_run_of_a_migration_changes_nothing(self, programs):
        file = programs.directory / "db.sqlite"
        done = programs.manage("db", "sync", "--dry-run")
        assert done.returncode == 0
        lines = done.stdout.splitlines()
        assert lines[0].startswith("schema: none -> ")
        assert lines[1] == "0025: Create all tables."
        assert not file.exists()
        assert programs.manage("db", "sync").returncode == 0
        before = file.read_bytes()
        done = programs.manage("db", "sync", "base", "--dry-run")
        assert done.returncode == 0
        assert "deletes: table claims, 0 rows" in done.stdout.splitlines()
        assert file.read_bytes() == before

    def test_a_downgrade_without_a_terminal_needs_a_yes(self, programs):
        programs.manage("db", "sync")
        revision = programs.manage("db", "version").stdout
        done = programs.manage("db", "sync", "base")
        assert done.returncode == 2
        lines = done.stderr.splitlines()
        assert lines[0] == f"The downgrade {revision.strip()} -> none deletes:"
        assert lines[1] == "  table agent_credentials, 0 rows"
        assert "a downgrade requires --yes without a terminal" in lines[-1]
        assert programs.manage("db", "version").stdout == revision
        done = programs.manage("db", "sync", "base", "--yes")
        assert (done.returncode, done.stdout) == (0, f"schema: {revision.strip()} -> none\n")

    def test_a_downgrade_is_refused_while_a_service_runs(self, programs):
        programs.make_schema()
        write_inventory(programs, NODE)
        with programs.start() as running:
            wait_until(lambda: programs.ask("service", "list"))
            code, lines = errors(programs.manage("db", "sync", "base", "--yes"))
            assert code == 1
            assert "1 running service may need the newer schema" in lines[0]
            assert f"nodetracker-compute on host {programs.host}; stop them first" in lines[0]
            assert programs.manage("db", "check").returncode == 0
            assert running.stop() == 0
        assert programs.manage("db", "sync", "base", "--yes").returncode == 0

    @pytest.mark.parametrize(
        "command",
        [f"{noun} list --host" for noun in ("node", "claim", "workload", "migration", "warning")]
        + ["node history"],
    )
    def test_an_empty_list_of_an_unknown_host_says_that_there_is_none(self, read_only, command):
        unknown = read_only.manage(*command.split(), "nowhere")
        assert (unknown.returncode, unknown.stdout) == (0, "")
        assert unknown.stderr == "no such host: nowhere\n"
        assert read_only.manage(*command.split(), "host-1").stderr == ""


class TestErrors:
    """Every mistake is one line that names the thing, and the documented exit code."""

    @pytest.mark.parametrize(
        ("arguments", "code", "text"),
        [
            (["node", "show", "nowhere"], 1, "host nowhere has no nodes"),
            (["node", "show", "host-1", "n9"], 1, "no such node: n9 on host host-1"),
            (["host", "show", "nowhere"], 1, "no such host: nowhere"),
            (["service", "show", "host-1", "x"], 1, "no such service: x on host host-1"),
            (["node", "history", "host-1", "--since", "soon"], 2, "--since: invalid value 'soon'"),
            (["node", "history", "host-1", "--until", "soon"], 2, "--until: invalid value 'soon'"),
            (["db", "sync", "9999"], 1, "9999"),
            (["no", "such"], 2, "no such"),
            (["node", "show"], 2, "host"),
            (["db", "purge"], 2, "--before"),
            (["db", "purge", "--before", "-3"], 2, "--before"),
            ([], 2, "a command is required"),
        ],
    )
    def test_of_the_command_line(self, read_only, arguments, code, text):
        done = read_only.manage(*arguments)
        assert done.returncode == code, done.stderr
        assert text in done.stderr
        assert "Traceback" not in done.stderr
        if code == 1:
            assert len(errors(done)[1]) == 1

    @pytest.mark.parametrize("name", ["api", "compute", "conductor", "manage", "standalone"])
    def test_of_an_unknown_option_is_one_line(self, programs, name):
        program = f"nodetracker-{name}"
        done = programs.run(program, "--no-such-option")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{program}: ")
        assert "--no-such-option" in line
        assert line.endswith(f"(see {program} --help)")

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"driver": "xen"}, "unknown driver 'xen'"),
            ({"driver": "fake,local"}, "fake cannot be the first of several"),
            ({"driver": "local,local"}, "duplicate driver 'local'"),
            ({"driver": "docker", "extra": "[docker]\nbase_url = /run/x"}, "[docker] base_url"),
            ({"driver": "docker", "extra": "[docker]\ntls_cert = /x"}, "tls_cert and tls_key"),
            ({"probe_timeout": "soon"}, "probe_timeout"),
            ({"cpu_shared_set": "0-x"}, "[compute] cpu_shared_set: '0-x' is not a CPU id"),
            ({"cpu_shared_set": "0-3", "cpu_dedicated_set": "3-5"}, "both contain 3"),
            ({"cpu_shared_set": "400"}, "none of 400 is online on node node-1"),
            ({"reserved_huge_pages": "node:0,size:x,count:1"}, "reserved_huge_pages"),
            ({"numa_network": "physnet0"}, "numa_network: physnet0: is not NAME=CELLS"),
            ({"cpu_allocation_ratio": "-1"}, "cpu_allocation_ratio"),
            (
                {"cpu_allocation_ratio": "nan"},
                "[compute] cpu_allocation_ratio: 'nan' is not a number",
            ),
            (
                {"extra": "[scheduler]\nram_weight_multiplier = nan"},
                "[scheduler] ram_weight_multiplier: 'nan' is not a number",
            ),
            ({"extra": "[scheduler]\nhost_subset_size = 0"}, "host_subset_size"),
            ({"extra": "[scheduler]\nnodes_to_weigh = -1"}, "nodes_to_weigh"),
            (
                {"reserved_huge_pages": "node:0,size:2048,count:-9"},
                "count: '-9' is not a whole number from 0 to",
            ),
            ({"reserved_host_disk_mb": "9" * 23}, "reserved_host_disk_mb"),
            ({"held_fact_expiry": "99999999999999"}, "held_fact_expiry"),
            ({"claim_timeout": "99999999999999"}, "claim_timeout"),
            ({"instances_path": "instances"}, "instances_path"),
            ({"extra": "[host]\nsysfs = sys"}, "sysfs"),
            ({"extra": "state_path ="}, "state_path"),
            ({"extra": "state_path = state"}, "state_path"),
            ({"max_concurrent_audits": "0"}, "max_concurrent_audits"),
            ({"extra": "service_down_time = 29\nreport_interval = 10"}, "service_down_time: 29"),
            ({"extra": "state_path = /proc/nowhere"}, "/proc/nowhere/compute_id"),
            ({"extra": "host = two words"}, "host: 'two words'"),
        ],
    )
    def test_of_a_value_end_the_agent_with_78(self, programs, options, text):
        programs.make_schema()
        programs.configure(**options)
        done = programs.run("nodetracker-compute")
        assert done.returncode == 78, done.stderr
        assert text in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        "program",
        [
            "nodetracker-compute",
            "nodetracker-compute --once",
            "nodetracker-manage db sync",
            "nodetracker-manage config check",
            "nodetracker-status upgrade check",
        ],
    )
    def test_of_a_database_url_end_every_program_with_78(self, tmp_path, program):
        programs = Programs(tmp_path, "nonsense")
        write_inventory(programs, NODE)
        done = programs.run(*program.split())
        assert (done.returncode, "Traceback" in done.stderr) == (78, False), done.stderr
        assert "[database] connection" in done.stderr

    @pytest.mark.parametrize(
        "connection",
        ["oracle://x/y", "mysql+mysqldb://x/y", "mysql+nosuch://x/y", "sqlite+nosuch:///x"],
    )
    def test_of_a_database_that_is_not_supported_are_78(self, tmp_path, connection):
        done = Programs(tmp_path, connection).manage("node", "list")
        assert (done.returncode, "Traceback" in done.stderr) == (78, False), done.stderr
        assert "[database] connection" in done.stderr

    def test_of_the_notifications_broker_url_end_the_programs_with_78(self, tmp_path):
        programs = Programs(
            tmp_path,
            extra="transport_url = rabbit://127.0.0.1:1/\n[oslo_messaging_notifications]\n"
            "driver = messagingv2\ntransport_url = rabbit://u:s3/cret@127.0.0.1:1/",
        )
        write_inventory(programs, NODE)
        for program, *arguments in (
            ("nodetracker-compute",),
            ("nodetracker-compute", "--once"),
            ("nodetracker-conductor",),
            ("nodetracker-manage", "config", "check"),
        ):
            done = programs.run(program, *arguments)
            assert (done.returncode, "Traceback" in done.stderr) == (78, False), done.stderr
            assert "[oslo_messaging_notifications] transport_url" in done.stderr
            assert not any(part in done.stderr for part in ("s3", "cret"))

    @pytest.mark.parametrize(
        ("extra", "name"),
        [
            ("transport_url = rabbit://u:s3$cret@127.0.0.1:1/", "[DEFAULT] transport_url"),
            ("[database]\nconnection = mysql://u:s3$cret@127.0.0.1:1/x", "[database] connection"),
        ],
        ids=["broker", "database"],
    )
    def test_of_a_dollar_in_a_password_end_the_programs_with_78(self, tmp_path, extra, name):
        programs = Programs(tmp_path)
        write_inventory(programs, NODE)
        programs.path.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n{extra}\n")
        for program, *arguments in (
            ("nodetracker-compute",),
            ("nodetracker-conductor",),
            ("nodetracker-manage", "node", "list"),
            ("nodetracker-manage", "config", "check"),
            ("nodetracker-status", "upgrade", "check"),
        ):
            code, lines = errors(programs.run(program, *arguments))
            assert (code, len(lines)) == (78, 1), lines
            assert f"{name}: " in lines[0]
            assert "write $$" in lines[0]
            assert "cret" not in lines[0]

    def test_of_a_down_time_that_is_too_short_end_the_conductor_with_78(self, programs):
        programs.configure(extra="service_down_time = 2")
        code, lines = errors(programs.run("nodetracker-conductor"))
        assert (code, "service_down_time: 2" in lines[-1]) == (78, True), lines

    @pytest.mark.parametrize("program", ["nodetracker-compute", "nodetracker-conductor", "manage"])
    def test_of_a_number_name_its_group_and_file(self, programs, program):
        with programs.path.open("a") as file:
            file.write("[database]\nmax_pool_size = many\n")
        done = programs.manage("node", "list") if program == "manage" else programs.run(program)
        code, lines = errors(done)
        assert (code, len(lines)) == (78, 1), lines
        assert "[database] max_pool_size: " in lines[0]
        assert "'many'" in lines[0]
        assert str(programs.path) in lines[0]
        assert "Location" not in lines[0]

    def test_of_a_database_that_is_away_are_one_line(self, tmp_path):
        programs = Programs(tmp_path, "postgresql://u:secret@127.0.0.1:1/x")
        write_inventory(programs, NODE)
        for arguments in (["node", "list"], ["db", "sync"], ["db", "version"], ["db", "check"]):
            code, lines = errors(programs.manage(*arguments))
            assert (code, len(lines)) == (1, 1), lines
            assert "secret" not in lines[0]

    def test_of_a_missing_schema_names_the_command(self, programs):
        code, lines = errors(programs.manage("node", "list"))
        assert (code, len(lines)) == (1, 1)
        assert "nodetracker-manage db sync" in lines[0]

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            (b"host = x\n", "nodetracker.conf"),
            (b"[DEFAULT\n", "nodetracker.conf"),
            ("# M\u00fcller\n".encode("latin-1"), "nodetracker.conf: 'utf-8' codec"),
        ],
        ids=["without a group", "unfinished group", "not UTF-8"],
    )
    def test_of_a_configuration_file_are_one_line(self, programs, content, text):
        programs.path.write_bytes(content)
        code, lines = errors(programs.manage("node", "list"))
        assert (code, len(lines)) == (78, 1), lines
        assert text in lines[0]

    def test_of_a_missing_configuration_file_end_every_program_with_78(self, programs):
        programs.path.unlink()
        for program, *arguments in (
            ("nodetracker-compute",),
            ("nodetracker-standalone",),
            ("nodetracker-manage", "node", "list"),
            ("nodetracker-status", "upgrade", "check"),
        ):
            code, lines = errors(programs.run(program, *arguments))
            assert (code, len(lines)) == (78, 1), lines
            assert "nodetracker.conf" in lines[0]

    @pytest.mark.parametrize(
        ("option", "command"),
        [
            ("[compute]\nclaim_timeout = x", ("claim", "renew", "ghost")),
            ("[database]\nmax_pool_size = x", ("node", "list")),
        ],
    )
    def test_of_a_value_end_the_command_line_with_78(self, programs, option, command):
        with programs.path.open("a") as file:
            file.write(f"{option}\n")
        code, lines = errors(programs.manage(*command))
        assert (code, len(lines)) == (78, 1)
        assert option.split()[1] in lines[0]

    @pytest.mark.parametrize(
        ("program", "name"),
        [
            ("nodetracker-compute", "nowhere"),
            ("nodetracker-standalone", "nodetracker.conf"),
            ("nodetracker-manage node list", "nowhere"),
            ("nodetracker-status upgrade check", "nodetracker.conf"),
        ],
    )
    def test_of_a_configuration_directory_end_every_program_with_78(self, programs, program, name):
        program, *arguments = program.split()
        done = subprocess.run(
            [BIN / program, f"--config-dir={programs.directory / name}", *arguments],
            capture_output=True,
            text=True,
            env=os.environ | {"HOME": str(programs.directory)},
            timeout=60,
            check=False,
        )
        code, lines = errors(done)
        assert (code, len(lines)) == (78, 1), done.stderr
        assert str(programs.directory / name) in lines[0]

    def test_of_an_inventory_keep_the_rows_and_say_so_once(self, audited):
        audited.configure(update_resources_interval=1)
        audited.inventory.write_text("nodes: [")
        with audited.start() as agent:
            agent.wait_for("not valid YAML")
            time.sleep(2.5)
            assert (
                agent.output().count("not valid YAML") <= 2
            )  # the probe, and the driver not ready
            assert len(audited.ask("node", "list")) == 1
            facts = ("node", "show", "host-1", "-c", "facts")
            wait_until(lambda: audited.ask(*facts)["facts"]["cpu"]["state"] == "held")
            assert agent.stop() == 0


class TestConfig:
    def test_a_sound_configuration_is_said_to_be(self, programs):
        done = programs.manage("config", "check")
        assert done.returncode == 0
        assert str(programs.path) in done.stdout

    def test_passwords_that_everybody_may_read_are_a_warning(self, programs):
        programs.configure(extra="[keystone_authtoken]\npassword = s3cret\n")
        programs.path.chmod(0o644)
        done = programs.manage("config", "check")
        assert done.returncode == 0, done.stderr
        assert f"warning: {programs.path}: has a password ([keystone_authtoken]" in done.stderr
        assert "s3cret" not in done.stderr

    def test_every_mistake_is_named_at_once(self, programs):
        programs.configure(
            extra="no_such = 1",
            cpu_shared_set="a",
            nonsense="2",
            probe_timeout="x",
            reserved_huge_pages="node:0,size:x,count:1",
        )
        with programs.path.open("a") as file:
            file.write("[nowhere]\nx = 1\n")
        code, lines = errors(programs.manage("config", "check"))
        assert code == 78
        names = ("no_such", "nonsense", "[nowhere]", "probe_timeout", "cpu_shared_set", "size")
        assert len(lines) == len(names)
        for text, line in zip(names, lines, strict=True):
            assert text in line

    def test_the_environment_overrides_the_file(self, programs):
        done = programs.run("nodetracker-manage", "config", "check", OS_COMPUTE__PROBE_TIMEOUT="x")
        assert done.returncode == 78
        assert "probe_timeout" in done.stderr

    def test_the_sample_has_every_group(self, programs):
        sample = programs.manage("config", "sample").stdout
        for text in (
            "[DEFAULT]",
            "[compute]",
            "[database]",
            "[fake]",
            "[host]",
            "#host = <this machine",
        ):
            assert text in sample

    def test_the_sample_in_the_tree_is_up_to_date(self, programs):
        assert programs.manage("config", "sample").stdout == SAMPLE.read_text()


def test_an_agent_without_a_broker_audits_on_request(programs):
    programs.make_schema()
    with programs.start() as agent:
        agent.wait_for("is ready")
        write_inventory(programs, NODE | {"vcpus": 8})
        audited = programs.ask("node", "audit", "host-1")
        assert audited == [{"host": "host-1", "nodename": "node-1", "outcome": "update"}]
        assert programs.ask("node", "list")[0]["vcpus"] == 8
        failed = programs.manage("node", "audit", "host-1", "node-9")
        assert (failed.returncode, "node-9" in failed.stderr) == (1, True)
        assert agent.stop() == 0
    assert list((programs.directory / "state").glob("*.sock")) == []
    gone = programs.manage("node", "audit", "host-1")
    assert gone.returncode == 1
    assert gone.stderr == "the agent of host host-1 does not run\n"


@pytest.mark.parametrize(
    "program",
    ["nodetracker-compute", "nodetracker-standalone", "nodetracker-api", "nodetracker-conductor"],
)
def test_a_program_that_has_ended_leaves_sqlite_one_file(programs, program):
    programs.make_schema()
    with programs.start(program) as running:
        wait_until(lambda: programs.ask("service", "list"))
        assert len(list(programs.directory.glob("db.sqlite*"))) == 3
        assert running.stop() == 0
    assert len(list(programs.directory.glob("db.sqlite*"))) == 1


@pytest.mark.parametrize(
    "command",
    [("node", "list"), ("host", "set", "host-1", "--disable"), ("db", "check")],
    ids=" ".join,
)
def test_a_command_leaves_sqlite_one_file(audited, command):
    assert len(list(audited.directory.glob("db.sqlite*"))) == 1  # by nodetracker-compute --once
    assert audited.manage(*command).returncode == 0
    assert len(list(audited.directory.glob("db.sqlite*"))) == 1
