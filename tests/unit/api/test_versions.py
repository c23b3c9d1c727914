"""Version documents, which clients read first."""

import pytest


def test_nova_has_one_version(api):
    [version] = api.get("/")["versions"]
    assert (version["id"], version["status"]) == ("v2.1", "CURRENT")
    assert (version["min_version"], version["version"]) == ("2.1", "2.96")


@pytest.mark.parametrize("path", ["/v2.1", "/v2.1/"])
def test_novas_version_has_what_clients_require(api, path):
    version = api.get(path, host="h", port=80)["version"]
    assert version["links"][0] == {"rel": "self", "href": "http://h/v2.1/"}
    assert {"id", "status", "version", "min_version"} <= set(version)


@pytest.mark.parametrize("path", ["/container", "/container/"])
def test_zun_has_one_version(api, path):
    [version] = api.get(path, host="h", port=80)["versions"]
    assert (version["min_version"], version["max_version"]) == ("1.1", "1.40")
    assert version["links"] == [{"rel": "self", "href": "http://h/container/v1/"}]


def test_zuns_version_names_its_resources(api):
    assert api.get("/container/v1", host="h", port=80)["hosts"][0]["href"] == (
        "http://h/container/v1/hosts/"
    )


def test_nodetracker_s_own_version_leads_to_its_description(api):
    document = api.get("/v1", host="h", port=80)
    assert document["name"] == "nodetracker"
    links = {link["rel"]: link["href"] for link in document["links"]}
    assert links["self"] == "http://h/v1"
    assert links["service-desc"] == "http://h/v1/openapi.json"
