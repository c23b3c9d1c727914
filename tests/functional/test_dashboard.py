"""A real Prometheus scrapes an agent and the REST service, and answers what the dashboard asks."""

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.functional.servers.process import find_free_port, require
from tests.functional.servers.prometheus import Prometheus
from tests.programs import Programs, wait_until

DASHBOARD = Path(__file__).parents[2] / "etc" / "grafana" / "nodetracker.json"
NODE = {"nodename": "n1", "vcpus": 16, "memory_mb": 65536, "disk_gb": 500}
VARIABLES = {"$__rate_interval": "1m", "$host": ".*", "$node": ".*"}
_METRIC = re.compile(r"\b(?:nodetracker|process)_\w+")
_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")


def list_queries() -> list[str]:
    """Return every query of the dashboard, of its variables too."""
    document = json.loads(DASHBOARD.read_text())
    queries = [
        target["expr"] for panel in document["panels"] for target in panel.get("targets", ())
    ]
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, variable
            queries.append(f"group by ({match[2]}) ({match[1]})")
    return queries


def expand(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


class Scraped:
    """An agent, whose broker is away, and the REST service, scraped each second."""

    def __init__(self, tmp_path: Path) -> None:
        self.agent_port, self.api_port = find_free_port(), find_free_port()
        self.programs = Programs(tmp_path)
        self.programs.configure(
            metrics_port=self.agent_port,
            update_resources_interval=1,
            extra=f"transport_url = rabbit://nobody@127.0.0.1:{find_free_port()}\n"
            f"[api]\nport = {self.api_port}\nauth_strategy = noauth",
        )
        self.programs.inventory.write_text(yaml.safe_dump({"nodes": [NODE]}))
        self.programs.make_schema()
        self.prometheus: Prometheus | None = None

    @contextlib.contextmanager
    def run(self) -> Iterator[Prometheus]:
        """Run all of them until both pages were read twice with all their families."""
        with self.programs.start(), self.programs.start("nodetracker-api"):
            wait_until(lambda: "nodetracker_fleet_node_" in self.read_page())
            server = Prometheus({"nodetracker": self.agent_port, "nodetracker-api": self.api_port})
            try:
                wait_until(lambda: len(server.query("sum_over_time(up[1m]) >= 3")) == 2)
                yield server
            finally:
                server.remove()

    def read_page(self) -> str:
        """Return the page of the REST service, "" while it is not served."""
        try:
            url = f"http://127.0.0.1:{self.api_port}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read().decode()
        except OSError:
            return ""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    return Scraped(tmp_path_factory.mktemp("scraped"))


@pytest.fixture(scope="module")
def prometheus(scraped):
    require("prometheus")
    with scraped.run() as server:
        yield server


def test_every_panel_has_a_title_and_a_place_and_asks_the_chosen_data_source():
    document = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({str(panel["gridPos"]) for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    variables = [variable["name"] for variable in document["templating"]["list"]]
    assert variables == ["datasource", "host", "node"]
    asked = {
        part["datasource"]["uid"]
        for panel in panels
        if panel["type"] != "row"
        for part in (panel, *panel["targets"])
    }
    assert asked == {"${datasource}"}


def test_both_pages_are_scraped(prometheus):
    def read_up():
        return {found["metric"]["job"]: found["value"][1] for found in prometheus.query("up")}

    wait_until(lambda: read_up() == {"nodetracker": "1", "nodetracker-api": "1"})


def test_promtool_finds_nothing_to_say_of_the_page(prometheus, scraped):
    require("promtool")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scraped.read_page(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_query_of_the_dashboard_is_answered(prometheus):
    errors = []
    for query in list_queries():
        try:
            prometheus.query(expand(query))
        except ValueError as error:
            errors.append((query, str(error)))
    assert errors == []


def test_every_metric_of_the_dashboard_exists(prometheus):
    known = set(prometheus.ask("label/__name__/values"))
    used = {name for query in list_queries() for name in _METRIC.findall(query)}
    assert used - known == set()


def test_the_dashboard_shows_the_fleet(prometheus):
    """Queries that may be empty only while nothing is wrong or requested are left out."""
    for query in list_queries():
        if not query.endswith("> 0"):
            # One that is late is not scraped, and for a while has no values.
            wait_until(lambda query=query: prometheus.query(expand(query)))
