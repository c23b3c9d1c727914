"""Nodes in the form of Zun's hosts."""

import pytest

from tests.contract.hosts import add_host

KEYS = {
    "uuid", "hostname", "mem_total", "mem_used", "mem_free", "mem_available", "cpus", "cpu_used",
    "disk_total", "disk_used", "disk_quota_supported", "total_containers", "architecture",
    "os_type", "os", "kernel_version", "labels", "runtimes", "enable_cpu_pinning", "links",
}  # fmt: skip


@pytest.fixture(autouse=True)
def hosts(store):
    add_host(store, "alpha", "a1", "a2", memory_mb=1000)
    add_host(store, "beta", "b1", memory_mb=4096, memory_mb_used=5000)


def list_names(api, query=""):
    return [host["hostname"] for host in api.get(f"/container/v1/hosts{query}")["hosts"]]


def test_shows_zun_s_keys(api):
    host = api.get("/container/v1/hosts/beta")
    assert host.keys() == KEYS
    assert (host["mem_total"], host["mem_used"], host["mem_free"]) == (4096, 5000, 0)
    assert host["links"][0]["href"].endswith(f"/container/v1/hosts/{host['uuid']}")


def test_the_name_is_the_host_s_where_it_has_one_node(api):
    assert list_names(api) == ["a1", "a2", "beta"]


def test_is_found_by_uuid_and_name(api):
    for name in ("a2", "beta"):
        found = api.get(f"/container/v1/hosts/{name}")
        assert found["hostname"] == name
        assert api.get(f"/container/v1/hosts/{found['uuid']}") == found
        assert api.get(f"/container/v1/hosts/{found['uuid'].replace('-', '').upper()}") == found


@pytest.mark.parametrize(
    "name", ["alpha", "b1", "nobody", "00000000-0000-4000-8000-000000000000", "a%25"]
)
def test_an_unknown_name_is_not_found(api, name):
    found = api.request("GET", f"/container/v1/hosts/{name}")
    assert found.status_code == 404
    assert "no such host" in found.json["errors"][0]["detail"]


def test_a_name_of_several_nodes_is_a_conflict(api, store):
    add_host(store, "gamma", "a1", "other")
    found = api.request("GET", "/container/v1/hosts/a1")
    assert found.status_code == 409
    assert "use the uuid" in found.json["errors"][0]["detail"]


def test_is_sorted_by_zun_s_keys(api):
    assert list_names(api, "?sort_key=mem_total&sort_dir=desc") == ["beta", "a2", "a1"]


@pytest.mark.parametrize("query", ["sort_key=secret", "sort_dir=up", "limit=0", "marker=nobody"])
def test_an_invalid_parameter_is_refused(api, query):
    found = api.request("GET", f"/container/v1/hosts?{query}")
    assert found.status_code == 400
    assert query.partition("=")[0] in found.json["errors"][0]["detail"]


def test_next_leads_through_all_pages(api):
    path, seen = "/container/v1/hosts/?limit=1&sort_key=cpus", []
    while path:
        page = api.get(path)
        seen += [host["hostname"] for host in page["hosts"]]
        path = page["next"] and page["next"].partition("falconframework.org")[2]
    assert sorted(seen) == ["a1", "a2", "beta"]


def test_a_version_outside_is_not_acceptable(api):
    found = api.request(
        "GET", "/container/v1/hosts", headers={"OpenStack-API-Version": "container 1.41"}
    )
    assert found.status_code == 406
