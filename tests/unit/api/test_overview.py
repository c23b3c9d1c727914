"""``/v1/overview``, and the overview that all callers share."""

import dataclasses
import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from nodetracker.api.fleet_cache import FleetCache
from nodetracker.model.errors import StoreUnavailableError
from nodetracker.model.fleet import OverviewRows
from nodetracker.model.service import COMPUTE_BINARY, ServiceChange
from nodetracker.model.warning import HostWarning, WarningKind
from tests.builders import NOW, make_node
from tests.settings import make_api_settings
from tests.unit.api.conftest import Api
from tests.unit.api.placing import make_body, post

PATH = "/v1/overview"


class Rows:
    """A store that counts overviews; with `hold`, reading waits until `go_on` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.seconds = 0.0
        self.takes = 0.0
        self.reading, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def read_overview(self) -> OverviewRows:
        self.count += 1
        self.reading.set()
        assert self.go_on.wait(30)
        self.seconds += self.takes
        if self.error is not None:
            raise self.error
        return OverviewRows(NOW)


@pytest.fixture
def rows():
    return Rows()


@pytest.fixture
def cache(rows):
    return FleetCache(rows, make_api_settings("api-1"), lambda: rows.seconds)


def test_the_fleet_is_shown(api, store):
    make_node(store)
    shown = api.get(PATH)
    (node,) = shown["nodes"]
    assert (node["host"], node["nodename"], node["state"]) == ("alpha", "node-1", "up")
    assert node["amounts"] == shown["totals"]
    assert not shown["truncated"]


def test_it_needs_its_rule(api):
    api.rules.denied.add("nodetracker:overview:show")
    assert api.request("GET", PATH).status_code == 403


def test_a_steady_fleet_is_304_also_when_it_is_read_again(api, store, backend):
    make_node(store)
    first = api.request("GET", PATH)
    backend.fleet.invalidate("alice")
    headers = {"If-None-Match": first.headers["ETag"]}
    again = api.request("GET", PATH, headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    store.set_service("alpha", COMPUTE_BINARY, ServiceChange(disabled=True))
    backend.fleet.invalidate("alice")
    assert api.request("GET", PATH, headers=headers).status_code == 200


def read_changes(api, base):
    answer = api.request("GET", f"{PATH}?{urlencode({'base': base})}")
    shown = answer.json
    assert answer.status_code == 200
    return answer.headers["ETag"], shown["base"], [node["host"] for node in shown["nodes"]]


def test_only_nodes_that_have_changed_since_an_answer_are_in_the_next(api, store, backend):
    def read_again(base):
        backend.fleet.invalidate("alice")
        return read_changes(api, base)

    for host in ("alpha", "beta", "gamma"):
        make_node(store, host=host)
    first = api.request("GET", PATH)
    assert first.json["base"] is None
    tag = first.headers["ETag"]
    assert read_again(tag) == (tag, tag, [])
    store.set_service("beta", COMPUTE_BINARY, ServiceChange(disabled=True))
    second, base, nodes = read_again(tag)
    assert (base, nodes) == (tag, ["beta"])
    store.set_service("gamma", COMPUTE_BINARY, ServiceChange(disabled=True))
    third, base, nodes = read_again(second)
    assert (base, nodes) == (second, ["gamma"])
    assert read_again(tag) == (third, tag, ["beta", "gamma"])
    store.set_service("gamma", COMPUTE_BINARY, ServiceChange(disabled=False))
    assert read_again(second) == (second, second, [])
    assert read_again(third) == (second, third, ["gamma"])


@pytest.mark.parametrize("base", ["none", '"none"'])
def test_all_nodes_are_in_an_answer_without_a_known_base(api, store, backend, base):
    make_node(store)
    assert read_changes(api, base)[1:] == (None, ["alpha"])
    tag = api.request("GET", PATH).headers["ETag"]
    make_node(store, host="beta")
    backend.fleet.invalidate("alice")
    assert read_changes(api, tag)[1:] == (None, ["alpha", "beta"])


def test_a_bounded_number_of_overviews_are_known(api, store, backend):
    make_node(store)
    tag = api.request("GET", PATH).headers["ETag"]
    for number in range(40):
        store.raise_warning(
            "alpha", HostWarning(WarningKind.FACT_HELD, "node-1", f"{number}", "no")
        )
        backend.fleet.invalidate("alice")
        newest = api.request("GET", PATH).headers["ETag"]
    assert read_changes(api, tag)[1] is None
    assert read_changes(api, newest)[1] == newest


def test_gzip_is_made_once_and_is_the_same_document(api, store, backend):
    make_node(store)
    found = api.request("GET", PATH, headers={"Accept-Encoding": "gzip"})
    assert found.headers["Content-Encoding"] == "gzip"
    assert found.content is not None
    assert gzip.decompress(found.content) == backend.fleet.get().body.plain
    assert json.loads(gzip.decompress(found.content)) == api.get(PATH)


def test_a_change_through_this_process_is_seen_at_once(api, store):
    make_node(store)
    (service,) = store.list_services("alpha")
    assert api.get(PATH)["nodes"][0]["status"] == "enabled"
    api.request("PATCH", f"/v1/services/{service.uuid}", json={"disabled": True})
    assert api.get(PATH)["nodes"][0]["status"] == "disabled"


@pytest.mark.parametrize(
    ("path", "is_kept"),
    [("/v1/claims?dry_run=true", True), ("/v1/candidates", True), ("/v1/claims", False)],
)
def test_only_requests_that_change_something_drop_it(store, backend, path, is_kept):
    make_node(store)
    fleet = FleetCache(store, backend.settings, lambda: 0.0)
    kept = fleet.get()
    api = Api(dataclasses.replace(backend, fleet=fleet))
    assert post(api, path, make_body(1)).status_code in (200, 201)
    assert (fleet.get("alice") is kept) == is_kept


def test_more_nodes_than_the_limit_are_not_listed(backend, store):
    make_node(store)
    settings = dataclasses.replace(backend.settings, overview_max_nodes=0)
    api = Api(dataclasses.replace(backend, fleet=FleetCache(store, settings)))
    shown = api.get(PATH)
    assert (shown["nodes"], shown["truncated"]) == ([], True)
    assert shown["totals"]["VCPU"]["total"] == 8


def test_fifty_callers_cost_one_making(cache, rows):
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda _: cache.get(), range(50)))
    assert rows.count == 1
    assert len({id(kept) for kept in found}) == 1


def test_it_is_kept_for_two_seconds(cache, rows):
    first = cache.get()
    rows.seconds = 1.9
    assert cache.get() is first
    assert cache.age_seconds == pytest.approx(1.9)
    rows.seconds = 2.0
    assert cache.get() is not first


def test_one_that_takes_long_is_kept_for_ten_times_as_long(cache, rows):
    rows.takes = 1.0
    cache.get()
    rows.seconds += 9.9
    cache.get()
    assert rows.count == 1
    rows.seconds += 0.2
    cache.get()
    assert rows.count == 2


def test_others_get_the_last_one_while_one_is_made(cache, rows):
    first = cache.get()
    rows.seconds = 5.0
    rows.go_on.clear()
    rows.reading.clear()
    with ThreadPoolExecutor(1) as pool:
        maker = pool.submit(cache.get)
        assert rows.reading.wait(30)
        assert cache.get() is first
        rows.go_on.set()
        assert maker.result() is not first
    assert rows.count == 2


def test_who_changed_something_does_not_get_one_that_was_started_before(cache, rows):
    rows.go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        maker = pool.submit(cache.get)
        assert rows.reading.wait(30)
        cache.invalidate("alice")
        waiter = pool.submit(cache.get, "alice")
        rows.go_on.set()
        old = maker.result()
        assert waiter.result() is not old
    assert rows.count == 2
    assert cache.get("alice") is cache.get("bob") is waiter.result()
    assert rows.count == 2


def test_nobody_else_waits_for_a_change(cache, rows):
    first = cache.get("bob")
    cache.invalidate("alice")
    rows.go_on.clear()
    rows.reading.clear()
    with ThreadPoolExecutor(1) as pool:
        maker = pool.submit(cache.get, "alice")
        assert rows.reading.wait(30)
        assert cache.get("bob") is cache.get() is first
        rows.go_on.set()
        assert maker.result() is not first
    assert cache.get("bob") is maker.result()
    assert rows.count == 2


def test_a_change_is_seen_by_others_before_the_kept_one_is_out_of_date(cache, rows):
    rows.takes = 1.0
    first = cache.get()
    cache.invalidate("alice")
    rows.seconds += 0.9
    assert cache.get("bob") is first
    rows.seconds += 0.1
    assert cache.get("bob") is not first
    assert rows.count == 2


def test_steady_changes_leave_half_of_the_time_to_other_requests(cache, rows):
    rows.takes = 1.0
    cache.get()
    for _ in range(100):
        cache.invalidate("alice")
        cache.get("bob")
        rows.seconds += 0.1
    assert rows.count <= 11  # of a second each, in 10 s besides them


def test_after_an_error_a_change_is_still_waited_for(cache, rows):
    cache.get()
    cache.invalidate("alice")
    rows.error = StoreUnavailableError("away")
    with pytest.raises(StoreUnavailableError):
        cache.get("alice")
    rows.error = None
    cache.get("alice")
    assert rows.count == 3


def test_an_error_is_not_kept(cache, rows):
    rows.error = StoreUnavailableError("away")
    with pytest.raises(StoreUnavailableError):
        cache.get()
    rows.error = None
    assert cache.get().overview.now == NOW


def test_who_waits_gets_the_maker_s_error(cache, rows):
    rows.error = StoreUnavailableError("away")
    rows.go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        maker = pool.submit(cache.get)
        assert rows.reading.wait(30)
        waiter = pool.submit(cache.get)
        rows.go_on.set()
        for task in (maker, waiter):
            with pytest.raises(StoreUnavailableError):
                task.result()
