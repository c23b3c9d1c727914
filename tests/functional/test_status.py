"""nodetracker-status upgrade check, run as an operator runs it: each check and its code."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest
import yaml

from tests.functional.servers.process import require
from tests.programs import BIN, Programs

CHECKS = [
    "Database schema", "Conductors", "Services", "Calls", "Old claims", "Nodes", "Reserved resources", "CPU sets", "Unresolved devices", "Free amounts", "Host name",
    "Heartbeat interval", "Service user", "Placement",
]  # fmt: skip
SUCCESS, WARNING, FAILURE = 0, 1, 2
NODE = {
    "nodename": "node-1",
    "vcpus": 4,
    "memory_mb": 8192,
    "disk_gb": 100,
    "cells": [{"id": 0, "cpus": "0-3", "memory_mb": 8192, "pages": {4: 1000, 2048: 64}}],
}


def write_inventory(programs, **more):
    programs.inventory.write_text(yaml.safe_dump({"nodes": [NODE]} | more))


@pytest.fixture
def programs(tmp_path):
    programs = Programs(tmp_path)
    write_inventory(programs)
    return programs


@pytest.fixture
def audited(programs):
    programs.make_schema()
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    return programs


def check(programs, code):
    """Run the check, expect its exit code, return check -> (result, details)."""
    done = programs.run("nodetracker-status", "upgrade", "check", "--json")
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout)["checks"]
    assert [item["check"] for item in answer] == CHECKS
    return {item["check"]: (item["result"], item["details"]) for item in answer}


def find_bad(programs, code):
    return {name: found for name, found in check(programs, code).items() if found[0] != SUCCESS}


def list_files(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


class TestCodes:
    def test_a_host_that_is_ready(self, audited):
        assert find_bad(audited, SUCCESS) == {}
        table = audited.run("nodetracker-status", "upgrade", "check")
        assert table.returncode == 0
        assert table.stdout.count("Result: Success") == len(CHECKS)

    @pytest.mark.parametrize(
        ("name", "options", "code", "text"),
        [
            ("CPU sets", {"cpu_shared_set": "3-5"}, WARNING, "4-5 is offline and ignored"),
            ("CPU sets", {"cpu_dedicated_set": "8-9"}, FAILURE, "none of 8-9 is online"),
            (
                "Reserved resources",
                {"reserved_host_memory_mb": 8192},
                WARNING,
                "8 GiB reserves all 8 GiB of memory",
            ),
            (
                "Reserved resources",
                {"reserved_host_memory_mb": 8193},
                FAILURE,
                "8,193 MiB exceeds the 8 GiB of memory",
            ),
            (
                "Reserved resources",
                {"reserved_host_disk_mb": 102401},
                FAILURE,
                "102,401 MiB exceeds the 100 GiB of disk",
            ),
            ("Reserved resources", {"reserved_host_cpus": 5}, FAILURE, "5 exceeds the 4 CPUs"),
            (
                "Reserved resources",
                {"reserved_huge_pages": "node:0,size:2MB,count:65"},
                FAILURE,
                "65 exceeds the 64 pages of 2048 KiB in cell 0",
            ),
            (
                "Reserved resources",
                {"reserved_huge_pages": "node:1,size:2MB,count:1"},
                FAILURE,
                "NUMA cell 1 does not exist",
            ),
            (
                "Heartbeat interval",
                {"extra": "service_down_time = 29\nreport_interval = 10"},
                FAILURE,
                "service_down_time: 29",
            ),
            ("Host name", {"extra": "host = new"}, FAILURE, "host rename host-1 new"),
        ],
        ids=[
            "some CPUs offline", "no CPU online", "all memory reserved", "more memory reserved",
            "more disk reserved", "more CPUs reserved", "more pages reserved",
            "pages of no cell reserved", "heartbeats too rare", "host renamed",
        ],
    )  # fmt: skip
    def test_one_check_finds_something_and_the_others_nothing(
        self, audited, name, options, code, text
    ):
        audited.configure(**options)
        found = find_bad(audited, code)
        assert list(found) == [name]
        assert found[name][0] == code
        assert text in found[name][1]

    def test_a_missing_schema_fails_and_names_the_command(self, programs):
        programs.run("nodetracker-compute", "--once")  # makes the identity and no row
        sqlite3.connect(programs.directory / "db.sqlite").close()
        found = find_bad(programs, FAILURE)
        assert "nodetracker-manage db sync" in found["Database schema"][1]

    def test_a_missing_sqlite_file_is_named_and_not_made(self, programs):
        found = find_bad(programs, FAILURE)
        assert list(found) == ["Database schema"]
        assert "nodetracker-manage db sync creates it" in found["Database schema"][1]
        assert not (programs.directory / "db.sqlite").exists()

    @pytest.mark.parametrize(
        ("revision", "text"),
        [
            ("0024", "has revision 0024, made before 1.0: create a new database"),
            ("f00", "has revision f00, which this version of nodetracker does not know"),
        ],
    )
    def test_an_older_or_unknown_schema(self, audited, revision, text):
        with sqlite3.connect(audited.directory / "db.sqlite") as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", [revision])
        found = find_bad(audited, FAILURE)
        assert text in found["Database schema"][1]

    def test_a_column_that_is_missing(self, audited):
        with sqlite3.connect(audited.directory / "db.sqlite") as connection:
            connection.execute("ALTER TABLE compute_nodes DROP COLUMN traits")
        found = find_bad(audited, FAILURE)
        assert "column compute_nodes.traits is missing" in found["Database schema"][1]

    def test_a_database_that_is_away_stops_no_other_check(self, tmp_path):
        programs = Programs(tmp_path, "postgresql://u:s3cret@127.0.0.1:1/x")
        write_inventory(programs)
        programs.configure(cpu_shared_set="3-5")
        found = find_bad(programs, FAILURE)
        assert list(found) == ["Database schema", "CPU sets"]
        assert "postgresql database x at 127.0.0.1:1" in found["Database schema"][1]
        assert "s3cret" not in json.dumps(found)

    def test_agents_that_call_conductors_over_the_broker(self, audited):
        with sqlite3.connect(audited.directory / "db.sqlite") as connection:
            (text,) = connection.execute("SELECT last_audit FROM services").fetchone()
            heartbeat = json.dumps(json.loads(text) | {"by_conductor": True})
            connection.execute("UPDATE services SET last_audit = ?", [heartbeat])
        found = find_bad(audited, WARNING)
        assert list(found) == ["Services"]
        assert "nodetracker-compute on host host-1: calls conductors" in found["Services"][1]

    def test_services_of_earlier_versions_are_named_until_the_schema_is_contracted(self, audited):
        def manage(*command):
            done = audited.manage("db", *command)
            return done.returncode, done.stdout + done.stderr

        path = audited.directory / "db.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE services SET last_audit = '{}'")
            connection.execute("CREATE INDEX ix_compute_nodes_candidates ON compute_nodes (host)")
        name = "nodetracker-compute on host host-1"
        found = find_bad(audited, WARNING)
        assert list(found) == ["Services"]
        assert name in found["Services"][1]
        for command in ("check", "contract"):
            code, text = manage(command)
            assert code == 1
            assert f"{name}: of a version that does not report the schema" in text
        assert audited.run("nodetracker-compute", "--once").returncode == 0
        assert find_bad(audited, SUCCESS) == {}
        assert manage("check") == (0, "the schema is as expected\n")
        removed = "removed: index ix_compute_nodes_candidates of compute_nodes\n"
        assert manage("contract") == (0, removed)
        assert manage("contract") == (0, "nothing to remove\n")

    def test_old_claims_are_named_unless_they_will_be_deleted(self, audited):
        with sqlite3.connect(audited.directory / "db.sqlite") as connection:
            connection.execute(
                "INSERT INTO claims (uuid, compute_node_id, workload_uuid, workload_kind, "
                "workload_name, project_id, user_id, kind, state, reason, vcpu_milli, pcpus, "
                "memory_mb, disk_mb, resources, request_hash, created_at, updated_at) SELECT 'c', "
                "id, 'w', 'instance', '', '', '', 'create', 'released', 'aborted', 0, 0, 1, 0, "
                "'{}', '', '2020-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000' "
                "FROM compute_nodes"
            )
        found = find_bad(audited, WARNING)
        assert list(found) == ["Old claims"]
        assert "released_claims_days" in found["Old claims"][1]
        audited.configure(extra="[database]\nreleased_claims_days = 30")
        assert find_bad(audited, SUCCESS) == {}

    @pytest.mark.parametrize(
        ("inventory", "text"),
        [({"ready": False}, "is not ready"), ({"nodes": "none"}, "nodes")],
        ids=["not ready", "malformed"],
    )
    def test_a_host_that_cannot_be_read_stops_no_other_check(self, audited, inventory, text):
        write_inventory(audited, **inventory)
        audited.configure(cpu_shared_set="3")
        found = find_bad(audited, FAILURE)
        assert list(found) == ["Nodes", "Reserved resources", "CPU sets", "Unresolved devices"]
        assert all(text in details for _, details in found.values())

    @pytest.mark.parametrize(
        ("failure", "text", "timeout"), [("boom", "boom", 60), ("hang", "no answer", 5)]
    )
    def test_a_node_that_cannot_be_read_is_a_warning(self, audited, failure, text, timeout):
        write_inventory(audited, fail={"node-1": failure})
        audited.configure(probe_timeout=timeout)
        found = find_bad(audited, WARNING)
        assert list(found) == ["Reserved resources"]
        assert text in found["Reserved resources"][1]


class TestNothingIsWritten:
    def test_by_a_check_before_the_first_start(self, programs):
        before = list_files(programs.directory)
        check(programs, FAILURE)
        assert list_files(programs.directory) == before

    def test_by_a_check_of_a_host_that_is_ready(self, audited):
        before = list_files(audited.directory)
        check(audited, SUCCESS)
        assert list_files(audited.directory) == before

    def test_beside_a_live_agent(self, audited):
        with audited.start() as agent:
            agent.wait_for("is ready")
            check(audited, SUCCESS)
            assert agent.stop() == 0

    def test_by_a_user_who_may_only_read(self, audited):
        compute_id = audited.directory / "state" / "compute_id"
        directories = [audited.directory, audited.directory / "state"]
        before = list_files(audited.directory)
        for path in (*before, *directories):
            path.chmod(0o500 if path in directories else 0o400)
        try:
            assert check_unprivileged(audited) == (SUCCESS, {})
            compute_id.chmod(0)
            code, found = check_unprivileged(audited)
        finally:
            for path in directories:
                path.chmod(0o700)
        assert (code, list(found)) == (WARNING, ["Host name"])
        assert f"{compute_id}: permission denied" in found["Host name"]
        assert list_files(audited.directory) == before


def check_unprivileged(programs):
    """Run the check without root's power over permissions; return its code and what is bad."""
    command = [
        BIN / "nodetracker-status",
        f"--config-file={programs.path}",
        "upgrade",
        "check",
        "--json",
    ]
    if os.geteuid() == 0:
        require("setpriv")
        drop = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {
        item["check"]: item["details"] for item in checks if item["result"] != SUCCESS
    }


@pytest.mark.parametrize("server", ["mariadb", "postgresql"])
def test_every_kind_of_server_is_judged(tmp_path, server, request):
    database = request.getfixturevalue(server)
    programs = Programs(tmp_path, database.create_database(f"nt_status_{os.getpid()}"))
    write_inventory(programs)
    found = find_bad(programs, FAILURE)
    assert list(found) == ["Database schema"]
    assert "no schema exists: run nodetracker-manage db sync" in found["Database schema"][1]
    assert programs.manage("db", "sync").returncode == 0
    assert programs.run("nodetracker-compute", "--once").returncode == 0
    assert find_bad(programs, SUCCESS) == {}


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ([], "command"),
            (["upgrade"], "check"),
            (["upgrade", "cheque"], "cheque"),
            (["upgrade", "check", "--no-such"], "--no-such"),
        ],
    )
    def test_of_usage_end_with_2(self, programs, arguments, text):
        done = programs.run("nodetracker-status", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"probe_timeout": "soon"}, "probe_timeout"),
            ({"cpu_shared_set": "0-x"}, "cpu_shared_set: '0-x'"),
            ({"reserved_huge_pages": "node:0"}, "reserved_huge_pages"),
            ({"driver": "xen"}, "unknown driver 'xen'"),
        ],
    )
    def test_of_a_value_end_with_78(self, programs, options, text):
        programs.configure(**options)
        done = programs.run("nodetracker-status", "upgrade", "check")
        assert (done.returncode, done.stdout) == (78, "")
        (line,) = done.stderr.splitlines()
        assert text in line

    def test_of_the_check_itself_are_its_failure(self, audited):
        code = (
            "import sys; from nodetracker.cmd import status; "
            "status.revisions.check = lambda engine: 1 / 0; "
            "status.main(sys.argv[1:])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, f"--config-file={audited.path}", "upgrade", "check"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == FAILURE
        assert "the check failed with ZeroDivisionError" in done.stdout
        assert done.stdout.count("Result: Success") == len(CHECKS) - 1
        assert done.stderr == ""

    def test_eventlet_stays_out(self):
        code = "import nodetracker.cmd.status, sys; print(sys.modules['eventlet'])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "None"
