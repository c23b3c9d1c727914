"""The agent's /metrics and /health, asked of the real program."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.functional.servers.process import find_free_port, require
from tests.programs import Programs, wait_until

NODES = [
    {"nodename": name, "vcpus": 16, "memory_mb": 65536, "disk_gb": 500} for name in ("n1", "n2")
]


class AgentWithMetrics:
    """An agent with two nodes that serves its metrics."""

    def __init__(self, tmp_path):
        self.port = find_free_port()
        self.programs = Programs(tmp_path)
        self.programs.configure(metrics_port=self.port, update_resources_interval=1)
        self.write()
        self.programs.make_schema()

    def write(self, **more):
        self.programs.inventory.write_text(yaml.safe_dump({"nodes": NODES} | more))

    def get(self, path):
        """Return status and text; 0 while nothing is served."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, ""

    def health(self):
        """Return the status code and the states of the checks that do not pass."""
        code, text = self.get("/health")
        checks = json.loads(text)["checks"] if text else {}
        return code, {
            name: check["status"] for name, check in checks.items() if check["status"] != "pass"
        }

    def value(self, name, **labels):
        """Return the value of one series, None when there is none."""
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return sample.value
        return None

    def wait_for(self, value, name, **labels):
        """Wait until a series has a value."""
        wait_until(lambda: self.value(name, **labels) == value)


@pytest.fixture
def agent(tmp_path):
    return AgentWithMetrics(tmp_path)


def test_a_broker_that_refuses_the_login_is_told_until_it_takes_it(agent, rabbitmq):
    address = rabbitmq.url.rpartition("@")[2]
    agent.programs.configure(
        metrics_port=agent.port,
        update_resources_interval=1,
        extra=f"transport_url = rabbit://health:s3cret-of-health@{address}\n"
        "[oslo_messaging_notifications]\ndriver = messagingv2\ntopics = health",
    )
    with agent.programs.start() as running:
        wait_until(lambda: agent.health() == (200, {"rpc": "warn", "notifications": "warn"}))
        wait_until(lambda: agent.get("/health")[1].count("ACCESS_REFUSED") == 2)
        rabbitmq.add_user("health", "s3cret-of-health")
        wait_until(lambda: agent.health() == (200, {}), 60)
        assert running.stop() == 0
    said = running.output()
    assert said.count("RPC is not served") == said.count("Notifications wait") == 1
    assert "cannot be reached yet" not in said
    assert "s3cret" not in said


def test_health_and_metrics_follow_the_agent(agent):
    with agent.programs.start() as running:
        wait_until(lambda: agent.health() == (200, {}))
        agent.wait_for(2, "nodetracker_nodes", state="fine")
        agent.wait_for(16, "nodetracker_node_cpu_capacity", nodename="n1", resource="vcpus")

        agent.write(fail={"n2": "boom"})
        wait_until(lambda: agent.health() == (200, {"nodes": "warn"}))
        assert "boom" in agent.get("/health")[1]
        agent.wait_for(9, "nodetracker_node_facts", nodename="n2", state="held")
        agent.wait_for(1, "nodetracker_warnings", kind="fact_held")

        agent.programs.inventory.write_text("nodes: [")
        wait_until(lambda: agent.health() == (503, {"driver": "fail", "nodes": "warn"}))
        agent.wait_for(0, "nodetracker_driver_up")
        assert agent.value("nodetracker_node_cpu_capacity", nodename="n1", resource="vcpus") == 16

        agent.write()
        wait_until(lambda: agent.health() == (200, {}))
        assert running.stop() == 0
    assert agent.get("/health") == (0, "")
    assert running.output().count("Metrics and health: serving on") == 1


def test_a_missing_schema_is_a_database_that_fails(agent):
    assert agent.programs.manage("db", "sync", "base", "--yes").returncode == 0
    with agent.programs.start() as running:
        wait_until(lambda: agent.health()[1].get("database") == "fail")
        assert agent.health()[0] == 503
        wait_until(lambda: agent.value("nodetracker_database_errors_total", kind="schema"))
        agent.wait_for(0, "nodetracker_database_up")
        assert running.stop() == 0


def test_prometheus_finds_nothing_to_say_of_the_metrics(agent):
    require("promtool")
    agent.write(fail={"n2": "boom"})
    with agent.programs.start():
        wait_until(lambda: agent.health()[1] == {"nodes": "warn"})
        text = agent.get("/metrics")[1]
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_standalone_serves_them_too(agent):
    with agent.programs.start("nodetracker-standalone"):
        wait_until(lambda: agent.health() == (200, {}))


def test_an_agent_whose_port_is_taken_works_without(agent, tmp_path):
    with agent.programs.start() as running:
        wait_until(lambda: agent.health() == (200, {}))
        (tmp_path / "other").mkdir()
        other = Programs(tmp_path / "other", metrics_port=agent.port)
        other.inventory.write_text(yaml.safe_dump({"nodes": []}))
        other.make_schema()
        with other.start() as second:
            second.wait_for("is ready")
            second.wait_for("Address already in use")
            assert second.stop() == 0
        assert running.stop() == 0


def test_once_serves_nothing(agent):
    done = agent.programs.run("nodetracker-compute", "--once")
    assert done.returncode == 0
    assert "Metrics" not in done.stderr


def test_a_port_that_is_none_ends_the_agent_with_78(agent):
    agent.programs.configure(metrics_port=70000)
    done = agent.programs.run("nodetracker-compute")
    assert (done.returncode, "Traceback" in done.stderr) == (78, False)
    assert "port" in done.stderr.splitlines()[-1]


def test_the_command_line_imports_neither_library():
    code = (
        "import importlib, pkgutil, sys, nodetracker.cmd.manage, nodetracker.cmd.commands as found; "
        "[importlib.import_module(f'{found.__name__}.{module.name}') "
        "for module in pkgutil.iter_modules(found.__path__)]; "
        "print(*[name for name in ('prometheus_client', 'waitress') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
