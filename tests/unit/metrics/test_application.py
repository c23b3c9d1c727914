"""The agent's pages: metrics and health."""

import dataclasses
import gzip
import json

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.unit.metrics.fakes import STATUS
from tests.unit.metrics.served import Served


@pytest.fixture
def served():
    with Served() as served:
        yield served


def names(families):
    return {family.name for family in families}


def test_metrics_are_text_by_default(served):
    response, body = served.request("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "nodetracker_node_guests" in names(parse_text(body.decode()))


def test_metrics_are_openmetrics_on_request(served):
    response, body = served.request(
        "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.1"
    )
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "nodetracker_node_guests" in names(parse_openmetrics(body.decode()))


def test_metrics_are_compressed_if_the_client_accepts_it(served):
    response, body = served.request("/metrics", **{"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert "nodetracker_node_guests" in names(parse_text(gzip.decompress(body).decode()))


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"audit": dataclasses.replace(STATUS.audit, nodes={})}, 200, "pass"),
        ({}, 200, "warn"),
        ({"database_error": "away"}, 503, "fail"),
    ],
)
def test_the_status_of_health_shows_whether_the_agent_works(served, changes, code, status):
    served.status = dataclasses.replace(STATUS, **changes)
    response, body = served.request("/health")
    assert (response.status, json.loads(body)["status"]) == (code, status)
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("path", ["/metrics", "/health", "/"])
def test_head_is_the_same_without_a_body(served, path):
    whole, body = served.request(path)
    response, nothing = served.request(path, "HEAD")
    assert (response.status, nothing) == (whole.status, b"")
    assert int(response.headers["Content-Length"]) == pytest.approx(len(body), abs=50)


@pytest.mark.parametrize("path", ["/", "/metrics/", "/healthz", "/favicon.ico"])
def test_any_other_path_is_an_error_that_names_the_pages(served, path):
    response, body = served.request(path)
    assert (response.status, body) == (
        404,
        b"Not Found: available pages are /metrics and /health\n",
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_any_other_method_is_refused(served, method):
    response, body = served.request("/health", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert body == b"Method Not Allowed: use GET, HEAD\n"
