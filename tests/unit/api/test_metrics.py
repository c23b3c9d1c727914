"""``/metrics`` of the REST service."""

import dataclasses

from nodetracker.api.routes import list_routes
from tests.contract.test_ledger import make_node
from tests.unit.api.conftest import Api


def test_the_fleet_s_metrics_come_from_the_overview(api, store):
    make_node(store)
    lines = api.request("GET", "/metrics").text.splitlines()
    assert 'nodetracker_fleet_nodes{state="up",status="enabled"} 1.0' in lines
    assert 'nodetracker_fleet_cpu_capacity{resource="vcpus"} 8.0' in lines
    assert "nodetracker_fleet_memory_capacity_bytes 8.589934592e+09" in lines
    assert 'nodetracker_host_up{host="alpha"} 1.0' in lines
    node = 'nodetracker_fleet_node_cpu_capacity{host="alpha",nodename="node-1",resource="pcpus"}'
    assert f"{node} 2.0" in lines


def test_series_of_nodes_can_be_left_out(backend, store):
    make_node(store)
    settings = dataclasses.replace(backend.settings, metrics_per_node=False)
    text = Api(dataclasses.replace(backend, settings=settings)).request("GET", "/metrics").text
    assert "nodetracker_fleet_cpu_capacity" in text
    assert "nodename=" not in text


def test_metrics_need_their_rule_unless_they_are_open(backend):
    closed = Api(backend, identity=None)
    assert closed.request("GET", "/metrics").status_code == 401
    opened = Api(backend, list_routes(open_metrics=True), identity=None)
    assert opened.request("GET", "/metrics").status_code == 200
    backend.authorizer.denied.add("nodetracker:metrics:show")
    assert Api(backend).request("GET", "/metrics").status_code == 403
