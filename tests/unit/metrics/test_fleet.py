"""The page of the fleet's metrics."""

import dataclasses
import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from nodetracker.metrics.fleet import render_page
from tests.unit.metrics.fakes import check_with_promtool
from tests.unit.views.overview import NODE, build

GOLDEN = Path(__file__).parents[2] / "golden" / "fleet-metrics.txt"


def test_the_page_equals_the_golden_file():
    page = render_page(build(NODE), max_nodes=10).decode()
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(page)
    assert page == GOLDEN.read_text()


def test_an_empty_fleet_has_totals():
    page = render_page(build(services=()), max_nodes=10).decode()
    assert "\nnodetracker_fleet_disk_capacity_bytes 0.0\n" in page
    assert "nodename=" not in page


def test_names_are_escaped_as_the_library_does():
    names = {"host": 'a"b', "nodename": "back\\slash\nnew line"}
    page = render_page(build(dataclasses.replace(NODE, **names)), max_nodes=10).decode()
    labels = {
        tuple(sample.labels.values())
        for family in text_string_to_metric_families(page)
        if family.name == "nodetracker_fleet_node_memory_limit_bytes"
        for sample in family.samples
    }
    assert labels == {tuple(names.values())}


def test_promtool_accepts_the_page():
    check_with_promtool(GOLDEN.read_text())
