"""The process shell of the agent: every signal in every state, and what systemd is told."""

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.servers.process import find_free_port
from tests.functional.servers.systemd import NotifySocket
from tests.programs import Programs, Running, wait_until

NODES = [
    {"nodename": name, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
    for name in ("node-1", "node-2")
]
STATES = ("idle", "auditing", "hung", "database away")
SECRET = "s3cret-of-nobody"


def write_inventory(programs: Programs, **more: object) -> None:
    programs.inventory.write_text(yaml.safe_dump({"nodes": NODES} | more))


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    programs = Programs(tmp_path)
    write_inventory(programs)
    programs.make_schema()
    return programs


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    socket = NotifySocket(tmp_path)
    yield socket
    socket.close()


class Shell:
    """An agent in one of the states, under something that listens like systemd."""

    def __init__(self, programs: Programs, systemd: NotifySocket, state: str) -> None:
        self.programs = programs
        self.systemd = systemd
        self.state = state
        self.options = {"probe_timeout": 3 if state == "auditing" else 60}
        if state in ("auditing", "hung"):
            write_inventory(programs, fail={"node-1": "hang"})
        if state == "database away":
            port = find_free_port()
            programs.connection = f"mysql+pymysql://nt:{SECRET}@127.0.0.1:{port}/nt"
        programs.configure(
            "graceful_shutdown_timeout = 2" if state == "hung" else "", **self.options
        )

    @contextlib.contextmanager
    def run(self, is_forked: bool = True, **env: str) -> Iterator[Running]:
        env["NOTIFY_SOCKET"] = self.systemd.address
        with self.programs.start(is_forked=is_forked, **env) as agent:
            if self.state == "database away":
                agent.wait_for("The database:")
                self.systemd.wait_for("READY=1")
            elif self.state == "idle":
                self.systemd.wait_for("READY=1")
            else:  # the other node is written while the audit waits for the first
                wait_until(lambda: len(self.programs.ask("node", "list")) == 1)
            yield agent

    def is_alive(self, agent: Running) -> bool:
        return agent.process.poll() is None


@pytest.fixture(params=STATES)
def shell(request: pytest.FixtureRequest, programs: Programs, systemd: NotifySocket) -> Shell:
    return Shell(programs, systemd, request.param)


@pytest.fixture
def idle(programs: Programs, systemd: NotifySocket) -> Shell:
    return Shell(programs, systemd, "idle")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_it(shell: Shell, number: signal.Signals) -> None:
    with shell.run() as agent:
        assert agent.stop(number) == (1 if shell.state == "hung" else 0)
        assert "STOPPING=1" in shell.systemd.messages
        last = agent.output().splitlines()[-1]
        assert (
            ("ending the process anyway" in last)
            if shell.state == "hung"
            else last.endswith("Stopped")
        )
        assert "Traceback" not in agent.output()
        assert SECRET not in agent.output()
    if shell.state == "auditing":  # the audit that ran has been finished
        shown = {row["nodename"]: row for row in shell.programs.ask("node", "list")}
        assert shown["node-2"]["vcpus"] == 16


def test_a_second_stop_signal_ends_it_at_once(programs: Programs, systemd: NotifySocket) -> None:
    shell = Shell(programs, systemd, "hung")
    programs.configure("graceful_shutdown_timeout = 600", **shell.options)
    with shell.run() as agent:
        agent.process.send_signal(signal.SIGTERM)
        systemd.wait_for("STOPPING=1")
        assert agent.stop(signal.SIGTERM, timeout=60) == 1  # of 600


def test_a_reload_takes_new_values(shell: Shell) -> None:
    with shell.run() as agent:
        ready = shell.systemd.count("READY=1")
        shell.programs.configure(reserved_host_memory_mb=4096, **shell.options)
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for("Configuration reloaded")
        shell.systemd.wait_for("RELOADING=1\nMONOTONIC_USEC=")
        if shell.state in ("idle", "database away"):  # what has not started is not ready
            shell.systemd.wait_for("READY=1", ready + 1)
        if shell.state == "idle":
            wait_until(lambda: shell.programs.ask("node", "list")[0]["memory_mb_used"] == 4096)
        assert shell.is_alive(agent)


def test_a_reload_with_a_bad_value_changes_nothing(shell: Shell) -> None:
    with shell.run() as agent:
        before = shell.programs.path.read_text()
        for options, text in (
            ({"reserved_host_memory_mb": "plenty"}, "plenty"),
            ({"reserved_host_memory_mb": 4096, "cpu_dedicated_set": "0-x"}, "cpu_dedicated_set"),
        ):
            shell.programs.configure(**(shell.options | options))
            agent.process.send_signal(signal.SIGHUP)
            agent.wait_for(text)
        shell.programs.path.write_text("[DEFAULT\n")
        agent.process.send_signal(signal.SIGHUP)
        wait_until(lambda: agent.output().count("Configuration not reloaded") == 3)
        shell.programs.path.write_text(before)
        if shell.state == "idle":
            assert shell.programs.ask("node", "list")[0]["memory_mb_used"] == 512
            agent.process.send_signal(signal.SIGHUP)
            agent.wait_for("Configuration reloaded")
        assert shell.is_alive(agent)
        assert "Traceback" not in agent.output()


LICENSES = """
meta: {{schema_version: '1.0'}}
providers:
  - identification: {{uuid: $COMPUTE_NODE}}
    inventories: {{additional: [CUSTOM_LICENSE: {{total: {}}}]}}
"""


def test_provider_files_are_read_again_unless_one_is_malformed(idle: Shell, tmp_path: Path) -> None:
    path = tmp_path / "providers" / "licenses.yaml"
    path.parent.mkdir()

    def read() -> int:
        shown = idle.programs.ask("node", "show", "host-1", "node-1")
        total: int = shown["inventory"]["CUSTOM_LICENSE"]["total"]
        return total

    path.write_text(LICENSES.format(3))
    options: dict[str, Any] = {**idle.options, "provider_config_location": path.parent}
    idle.programs.configure(**options)
    with idle.run() as agent:
        assert read() == 3
        path.write_text(LICENSES.format("many"))
        idle.programs.configure(**options, reserved_host_memory_mb=4096)
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for(f"{path}: provider $COMPUTE_NODE: inventories.additional: CUSTOM_LICENSE: ")
        assert agent.output().count("Configuration not reloaded") == 1
        assert (read(), idle.programs.ask("node", "list")[0]["memory_mb_used"]) == (3, 512)
        path.write_text(LICENSES.format(7))
        idle.programs.configure(**options)
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for("Configuration reloaded")
        wait_until(lambda: read() == 7)
    path.write_text("providers: []")
    with idle.programs.start() as agent:
        assert agent.process.wait(60) == 78
        assert f"{path}: meta: is missing" in agent.output()


@pytest.mark.parametrize("content", [None, "[loggers]\nkeys = root\n"])
def test_a_reload_with_an_unusable_log_configuration_changes_nothing(
    idle: Shell, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "logging.conf"
    if content is not None:
        path.write_text(content)
    with idle.run() as agent:
        idle.programs.configure(f"log_config_append = {path}", reserved_host_memory_mb=4096)
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for("Configuration not reloaded")
        assert f"log_config_append: {path}" in agent.output()
        assert "changed from" not in agent.output()


def test_a_report_is_written_and_it_goes_on(shell: Shell) -> None:
    with shell.run() as agent:
        agent.process.send_signal(signal.SIGUSR2)
        agent.wait_for("Guru Meditation")
        agent.wait_for("service_down_time")
        assert "nodetracker/process/service.py" in agent.output()
        assert SECRET not in agent.output()
        assert shell.is_alive(agent)


def test_the_stacks_of_all_threads_are_written_and_it_goes_on(shell: Shell) -> None:
    with shell.run() as agent:
        agent.process.send_signal(signal.SIGUSR1)
        agent.wait_for("Current thread")
        assert shell.is_alive(agent)


def test_stacks_are_written_while_all_threads_work(idle: Shell) -> None:
    idle.programs.configure(update_resources_interval=1)
    nodes = [NODES[0] | {"nodename": f"node-{number}"} for number in range(50)]
    write_inventory(idle.programs, nodes=nodes)
    with idle.run() as agent:

        def dump_again() -> bool:
            agent.process.send_signal(signal.SIGUSR1)
            return agent.output().count("Current thread") > 50 or not idle.is_alive(agent)

        wait_until(dump_again, interval=0.01)
        assert agent.stop() == 0


def test_a_report_can_go_to_a_file(idle: Shell, tmp_path: Path) -> None:
    idle.programs.path.write_text(
        idle.programs.path.read_text() + f"[oslo_reports]\nlog_dir = {tmp_path}\n"
    )
    with idle.run() as agent:
        agent.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: list(tmp_path.glob("nodetracker-compute_gurumeditation_*")))
        assert idle.is_alive(agent)


def test_systemd_is_told_how_it_does(idle: Shell) -> None:
    with idle.run() as agent:
        idle.systemd.wait_for("STATUS=Host host-1: 2 nodes, all fine")
        messages = idle.systemd.messages
        assert messages.index("STATUS=Host host-1: starting") < messages.index("READY=1")
        assert any(message.startswith("EXTEND_TIMEOUT_USEC=") for message in messages)
        write_inventory(idle.programs, fail={"node-2": "boom"})
        agent.process.send_signal(signal.SIGHUP)  # a reload audits
        idle.systemd.wait_for("STATUS=Host host-1: 1 of 2 nodes not fine, node-2:")


def test_a_database_that_is_away_is_in_the_status(
    programs: Programs, systemd: NotifySocket
) -> None:
    with Shell(programs, systemd, "database away").run():
        systemd.wait_for("STATUS=Host host-1: mysql database nt")
        assert SECRET not in "".join(systemd.messages)


def test_the_watchdog_is_fed_while_the_threads_move(idle: Shell) -> None:
    with idle.run(WATCHDOG_USEC="600000") as agent:
        idle.systemd.wait_for("WATCHDOG=1", 5)
        assert idle.is_alive(agent)


def test_the_watchdog_is_another_process_s_matter(idle: Shell) -> None:
    with idle.run(WATCHDOG_USEC="600000", WATCHDOG_PID="1"):
        idle.systemd.wait_for("STATUS=Host host-1: 2 nodes, all fine")
        assert idle.systemd.messages.count("WATCHDOG=1") <= 2


def test_a_fatal_error_is_the_last_status(idle: Shell) -> None:
    with idle.run() as first:
        with idle.programs.start(NOTIFY_SOCKET=idle.systemd.address) as second:
            assert second.process.wait(60) == 78
        idle.systemd.wait_for("STATUS=host host-1 already has an agent")
        assert idle.systemd.count("READY=1") == 1
        assert idle.is_alive(first)


def test_logs_are_json_by_option(idle: Shell) -> None:
    idle.programs.configure("use_json = true")
    write_inventory(idle.programs, fail={"node-2": "boom"})
    with idle.run() as agent:
        assert agent.stop() == 0
        lines = [json.loads(line) for line in agent.output().splitlines()]
    assert "Agent of host host-1 is ready" in [line["message"] for line in lines]
    assert {"levelname", "name", "asctime", "thread_name"} <= lines[0].keys()


def test_its_threads_are_named_and_few(idle: Shell) -> None:
    idle.programs.configure(update_resources_interval=1)
    with idle.run() as agent:
        idle.systemd.wait_for("STATUS=Host host-1: 2 nodes")
        agent.process.send_signal(signal.SIGUSR2)
        agent.wait_for("service_down_time")
        tasks = Path(f"/proc/{agent.process.pid}/task")
        time.sleep(3)
        wait_until(lambda: len(list(tasks.iterdir())) <= 12)  # the first ones have ended


def test_secrets_are_not_in_its_command_line_or_environment(
    programs: Programs, systemd: NotifySocket
) -> None:
    with Shell(programs, systemd, "database away").run(is_forked=False) as agent:
        process = Path(f"/proc/{agent.process.pid}")
        for name in ("cmdline", "comm", "environ"):
            assert SECRET.encode() not in (process / name).read_bytes()


def read_count(programs: Programs) -> int:
    (service,) = programs.ask("service", "list")
    return int(programs.ask("service", "show", service["host"], service["binary"])["report_count"])


def test_heartbeats_go_on_while_the_driver_hangs(programs: Programs, systemd: NotifySocket) -> None:
    with Shell(programs, systemd, "hung").run():
        first = read_count(programs)
        wait_until(lambda: read_count(programs) >= first + 2)
        (service,) = programs.ask("service", "list")
        assert service["state"] == "up"
        assert re.match(r"[0-9a-f-]{36}$", service["id"])
