"""Finding workloads by name, and adopting guests, on the command line."""

import json
from subprocess import CalledProcessError

import pytest

from tests.builders import make_guest, make_node
from tests.stores import SqliteStore
from tests.unit.cmd.commands import run

NAMES = ("web-1", "web-2", "Web-10", "db_1", "twin", "twin")


@pytest.fixture
def manage(conf):
    store = SqliteStore()
    for number, name in enumerate(NAMES):
        make_node(store, (make_guest(number + 1, name=name),), host=f"h{number}")
    return lambda line: run(store, conf, *line.split())


@pytest.fixture
def ask(manage):
    return lambda line: json.loads(manage(f"{line} -f json"))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("WEB", ["web-1", "web-2", "Web-10"]),
        ("web-?", ["web-1", "web-2"]),
        ("*-1*", ["web-1", "Web-10"]),
        ("*", list(NAMES)),
        ("b_1", ["db_1"]),
        ("b?1", []),
        ("none", []),
    ],
)
def test_a_list_of_workloads_has_those_of_a_name(ask, pattern, names):
    assert [row["name"] for row in ask(f"workload list --name {pattern}")] == names


def test_a_workload_is_shown_by_its_name_or_uuid(ask):
    shown = ask("workload show web-1")
    assert shown["places"][0]["host"] == "h0"
    assert ask(f"workload show {shown['uuid'].upper()}") == shown


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("twin", ["2 workloads are named twin: ", " on h4", " on h5"]),
        ("web", ["no such workload: web"]),
    ],
)
def test_a_name_that_is_not_one_workload_s_is_refused(manage, name, texts):
    with pytest.raises(CalledProcessError) as failed:
        manage(f"workload show {name}")
    assert all(text in failed.value.stderr for text in texts)


def test_a_guest_is_adopted(ask):
    (guest,) = ask("workload list --name db_1")
    claim = ask(f"claim create --adopt {guest['uuid']}")
    assert (claim["state"], claim["workload_uuid"]) == ("confirmed", guest["uuid"])
    assert ask(f"claim create --adopt {guest['uuid']}")["uuid"] == claim["uuid"]


@pytest.mark.parametrize(
    "line",
    ["claim create", "claim create request.json --adopt x", "claim create --adopt x --host h"],
)
def test_a_claim_is_of_a_request_or_of_a_guest(manage, line):
    with pytest.raises(CalledProcessError):
        manage(line)


@pytest.mark.parametrize("names", ["h1 NODE", "--host h1 --node NODE", "h1 --nodename NODE"])
def test_a_node_is_named_by_place_or_by_option(manage, names):
    [node] = json.loads(manage("node list --host h1 -f json"))
    nodename = node["nodename"]
    found = manage(f"node show {names.replace('NODE', nodename)} -c uuid -f json")
    assert found == manage("node show h1 -c uuid -f json")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("node show --node n1", "the following arguments are required: host"),
        ("node show --host h1 --node n1 n2", "unrecognized argument: n2"),
        ("node delete h1", "the following arguments are required: nodename"),
        ("host takeover n1", "the following arguments are required: nodename"),
    ],
)
def test_a_name_that_is_missing_or_given_twice_is_an_error(manage, line, error):
    with pytest.raises(CalledProcessError) as failed:
        manage(line)
    assert (failed.value.returncode, error in failed.value.stderr) == (2, True)
