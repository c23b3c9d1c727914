"""``/metrics`` of the REST service."""

import dataclasses
import uuid

from nodetracker.api.routes import list_routes
from nodetracker.model.errors import StoreUnavailableError
from tests.builders import make_node
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


def test_without_the_database_the_service_s_own_metrics_are_shown(api, store, monkeypatch):
    def fail():
        raise StoreUnavailableError("away")

    monkeypatch.setattr(store, "read_overview", fail)
    lines = api.request("GET", "/metrics").text.splitlines()
    assert 'nodetracker_api_database_errors_total{kind="unavailable"} 1.0' in lines
    assert not [line for line in lines if line.startswith("nodetracker_fleet")]


def test_claims_are_counted_by_outcome_and_by_the_check_that_failed(api, store):
    make_node(store)
    claim(api, memory_mb=1024)
    claim(api, memory_mb=2**20)
    claim(api, memory_mb=2**20, host="alpha", nodename="node-1")
    claim(api, memory_mb=1024, host="alpha", nodename="node-2")
    api.request("POST", "/v1/claims?dry_run=true", json=body(memory_mb=1))
    api.request("POST", "/v1/claims", json={})
    lines = api.request("GET", "/metrics").text.splitlines()
    assert 'nodetracker_api_claim_requests_total{outcome="granted"} 1.0' in lines
    assert 'nodetracker_api_claim_requests_total{outcome="refused"} 3.0' in lines
    assert 'nodetracker_api_claim_refusals_total{check="ram"} 2.0' in lines
    assert 'nodetracker_api_claim_refusals_total{check="other"} 1.0' in lines
    assert 'nodetracker_api_claim_refusals_total{check="cpu"} 0.0' in lines


def body(memory_mb, **more):
    return {"workload": {"uuid": str(uuid.uuid4())}, "resources": {"MEMORY_MB": memory_mb}} | more


def claim(api, **request):
    return api.request("POST", "/v1/claims", json=body(**request))
