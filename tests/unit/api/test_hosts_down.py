"""``/v1/warnings`` and ``/v1/overview`` agree with the services about hosts that are down."""

from dataclasses import replace
from datetime import timedelta

import pytest

from nodetracker.model.service import AuditState
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind
from tests.builders import register
from tests.statements import count_statements
from tests.stores import SqliteStore
from tests.unit.api.conftest import Api, follow

DOWN = WarningKind.HOST_DOWN
HOSTS = ("h1", "h2", "h3", "h4")
BACK = "h3"


@pytest.fixture
def store():
    """Four hosts of which only one is alive; two have a stored warning, and one had."""
    moments = [SqliteStore().now().replace(microsecond=0)]
    store = SqliteStore(lambda: moments[0])
    agents = {host: register(store, host, f"agent-of-{host}") for host in HOSTS}
    stored = HostWarning(DOWN, WHOLE_HOST, "", "stored text")
    store.raise_warning("h4", stored)
    store.resolve_warnings(DOWN, ["h4"])
    store.raise_warning(BACK, stored)
    store.raise_warning("h2", stored)
    moments[0] += timedelta(seconds=100)
    store.report_state(agents[BACK], 1, AuditState())
    store.sync_warnings(agents[BACK], [HostWarning(WarningKind.CLOCK_SKEW, WHOLE_HOST, "", "off")])
    return store


def hosts_of(shown):
    return [item["host"] for item in shown if item["kind"] == DOWN]


def test_hosts_that_are_down_now_have_a_warning_and_no_others(api):
    states = {item["host"]: item["state"] for item in api.get("/v1/services")["services"]}
    down = sorted(host for host, state in states.items() if state == "down")
    shown = api.get("/v1/warnings")["warnings"]
    assert sorted(hosts_of(shown)) == down == ["h1", "h2", "h4"]
    assert api.get("/v1/overview")["warnings"][DOWN] == len(down)
    assert {item["id"] is None for item in shown if item["host"] == "h1"} == {True}
    assert all("no heartbeat since" in item["message"] for item in shown if item["kind"] == DOWN)


def test_since_when_a_host_is_down_is_the_same_everywhere(api):
    hosts = api.get("/v1/hosts")["hosts"]
    since = {item["host_name"]: item["down_since"] for item in hosts if item["down_since"]}
    assert since == api.get("/v1/overview")["down_since"]
    assert sorted(since) == ["h1", "h2", "h4"]


def test_what_did_not_change_is_the_same(api):
    assert api.get("/v1/warnings") == api.get("/v1/warnings")


def test_resolved_ones_are_those_of_hosts_that_are_back(api):
    shown = api.get("/v1/warnings?all=true&kind=host_down")["warnings"]
    assert {item["host"]: item["resolved_at"] is None for item in shown} == {
        "h1": True, "h2": True, "h4": True, BACK: False,
    }  # fmt: skip
    assert {item["host"]: item["earlier"] for item in shown}["h4"] == 1


@pytest.mark.parametrize("query", ["all=true", "all=false", "all=false&kind=host_down"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_links_lead_through_all(api, limit, query):
    whole = api.get(f"/v1/warnings?{query}")["warnings"]
    assert follow(api, f"/v1/warnings?{query}&limit={limit}", "warnings") == whole
    assert len(api.get(f"/v1/warnings?{query}&limit={limit}")["warnings"]) <= limit


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("host=h1", ["h1"]), ("host=h2", ["h2"]), ("host=h4", ["h4"]), (f"host={BACK}", []),
        ("kind=clock_skew", []), ("node=n1", []),
    ],
)  # fmt: skip
def test_filters_select_them_as_others(api, query, hosts):
    assert hosts_of(api.get(f"/v1/warnings?{query}")["warnings"]) == hosts


def test_a_page_reads_the_services_of_its_own_hosts(api, store, monkeypatch):
    for host in (f"down-{number:02d}" for number in range(30)):
        register(store, host, f"agent-of-{host}")
        store.raise_warning(host, HostWarning(DOWN, WHOLE_HOST, "", "stored"))
    read, list_services = [], store.list_outage_services

    def note(*arguments):
        read.extend(found := list_services(*arguments))
        return found

    monkeypatch.setattr(store, "list_outage_services", note)
    api = Api(replace(api.backend, settings=replace(api.backend.settings, service_down_time=-60)))
    with count_statements(store) as seen:
        shown = api.get("/v1/warnings?kind=host_down&limit=10")["warnings"]
    assert len(seen) == 2
    assert {service.host for service in read} == {item["host"] for item in shown}
    assert len(read) == len(shown) == 10
