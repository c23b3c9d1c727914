"""``/health`` of the REST service."""

import dataclasses

import pytest

from nodetracker.model.health import ApiStatus
from nodetracker.views.health import evaluate_api_health
from tests.unit.api.conftest import Api

FINE = ApiStatus(heartbeat_age_seconds=4.0, overview_age_seconds=1.5)
FAILING = dataclasses.replace(FINE, database_error="nt@db: connection refused")


def make_api(backend, status, **options):
    return Api(
        dataclasses.replace(backend, read_health=lambda: evaluate_api_health(status)), **options
    )


def test_who_may_read_sees_all_checks(backend):
    found = make_api(backend, FINE).request("GET", "/health")
    assert (found.status_code, found.headers["Cache-Control"]) == (200, "no-store")
    assert found.json == {
        "status": "pass",
        "checks": {
            "database": {"status": "pass"},
            "broker": {"status": "pass"},
            "user_file": {"status": "pass"},
            "heartbeat": {"status": "pass", "age_seconds": 4.0},
            "overview": {"status": "pass", "age_seconds": 1.5},
        },
    }


def test_a_database_that_cannot_be_used_is_503(backend):
    found = make_api(backend, FAILING).request("GET", "/health")
    assert found.status_code == 503
    assert found.json["status"] == "fail"
    assert found.json["checks"]["database"] == {
        "status": "fail",
        "output": "nt@db: connection refused",
    }


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("broker", {"broker_error": "refused"}),
        ("user_file", {"user_file_error": "no user"}),
        ("heartbeat", {"heartbeat_age_seconds": None}),
        ("heartbeat", {"heartbeat_age_seconds": 61.0}),
    ],
    ids=str,
)
def test_what_requests_can_do_without_is_a_warning(backend, check, changes):
    found = make_api(backend, dataclasses.replace(FINE, **changes)).request("GET", "/health")
    assert (found.status_code, found.json["status"]) == (200, "warn")
    assert [name for name, one in found.json["checks"].items() if one["status"] != "pass"] == [
        check
    ]


def test_what_a_process_does_not_have_passes(backend):
    status = ApiStatus(has_heartbeat=False, has_broker=False, has_user_file=False)
    checks = make_api(backend, status).request("GET", "/health").json["checks"]
    assert checks["broker"] == checks["user_file"] == {"status": "pass", "output": "not configured"}
    assert checks["heartbeat"]["output"] == "not reported by this process"
    assert checks["overview"] == {"status": "pass", "age_seconds": None}


def test_others_see_states_without_texts(backend):
    anonymous = make_api(backend, FAILING, identity=None)
    backend.authorizer.denied.add("nodetracker:health:show")
    found = anonymous.request("GET", "/health")
    assert (found.status_code, found.json["checks"]["database"]) == (503, {"status": "fail"})
    assert "connection refused" not in found.text
    assert anonymous.request("HEAD", "/health").status_code == 503
