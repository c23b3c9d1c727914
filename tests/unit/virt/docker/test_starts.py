"""What the questions of Docker's plugin say that a container will take."""

import pytest

from nodetracker.model.errors import ClaimRefusedError, HostDataError
from nodetracker.model.guest import derive_container_uuid
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import HostTopology
from nodetracker.virt.docker.starts import KEPT_CONTAINERS, ContainerStartReader, StartRules

ID = "ab" * 32
LIMITED = {"HostConfig": {"Memory": 512 * 2**20, "NanoCpus": 1_500_000_000}}
LISTED = Container(ID, "web", "", "exited", vcpu_milli=2000, memory_mb=1024, has_cpu_limit=True)


def make_reader(*listed, **rules):
    return ContainerStartReader(
        StartRules(64, **rules),
        lambda reference: next((c for c in listed if c.is_meant_by(reference)), None),
        HostTopology,
        lambda container: container,
    )


def ask(reader, ask, **question):
    return reader.read({"driver": "docker", "ask": ask, **question}, NumaTopology())


def amounts(guest):
    return guest.vcpu_milli, guest.memory_mb, guest.disk_mb


def test_one_that_is_to_be_created_takes_its_limits():
    guest = ask(make_reader(), "create", name="web", document=LIMITED)
    assert amounts(guest) == (1500, 512, 0)
    assert guest.name == "web"


def test_the_case_of_keys_does_not_count_as_little_as_for_the_engine():
    for key, memory in (("hostconfig", "MEMORY"), ("HOSTCONFIG", "memory")):
        guest = ask(make_reader(), "create", document={key: {memory: 512 * 2**20}})
        assert guest.memory_mb == 512
    running = Container(ID, "web", "", "running", memory_mb=64)
    update = {"memory": 2048 * 2**20}
    assert ask(make_reader(running), "update", id="web", document=update).memory_mb == 2048


def test_one_without_a_limit_takes_what_is_charged_until_it_is_measured():
    assert amounts(ask(make_reader(), "create", document={"HostConfig": {}})) == (0, 64, 0)


def test_one_that_was_created_is_known_by_its_id_before_it_is_listed():
    reader = make_reader()
    assert ask(reader, "created", id=ID, document=LIMITED) is None
    for reference in (ID, ID[:12]):
        guest = ask(reader, "start", id=reference)
        assert amounts(guest) == (1500, 512, 0)
        assert guest.uuid == derive_container_uuid(ID)


def test_others_are_known_from_the_listing():
    for reference in (ID, ID[:6], "web", "/web"):
        assert amounts(ask(make_reader(LISTED), "start", id=reference)) == (2000, 1024, 0)


def test_one_that_nobody_knows_is_named():
    with pytest.raises(HostDataError, match="container db is not known yet"):
        ask(make_reader(LISTED), "start", id="db")


def test_its_workload_is_that_of_its_label_unless_labels_are_not_trusted():
    uuid = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
    document = {**LIMITED, "Labels": {"nodetracker.workload": uuid}}
    for trusts_labels in (True, False):
        reader = make_reader(trusts_labels=trusts_labels)
        ask(reader, "created", id=ID, document=document)
        assert (ask(reader, "start", id=ID).uuid == uuid) is trusts_labels


def test_only_the_last_ones_that_were_created_are_remembered():
    reader = make_reader()
    for number in range(KEPT_CONTAINERS + 1):
        ask(reader, "created", id=f"{number:064x}", document=LIMITED)
    assert ask(reader, "start", id=f"{KEPT_CONTAINERS:064x}") is not None
    with pytest.raises(HostDataError):
        ask(reader, "start", id=f"{0:064x}")


@pytest.mark.parametrize("state", ["running", "paused"])
def test_an_update_of_one_that_runs_takes_the_new_limits(state):
    running = Container(ID, "web", "", state, vcpu_milli=2000, memory_mb=1024)
    update = {"Memory": 2048 * 2**20, "NanoCpus": 0}
    assert amounts(ask(make_reader(running), "update", id="web", document=update)) == (
        2000,
        2048,
        0,
    )
    update = {"Memory": 0, "NanoCpus": 3 * 10**9}
    assert amounts(ask(make_reader(running), "update", id="web", document=update)) == (
        3000,
        1024,
        0,
    )


def test_an_update_of_one_that_was_started_since_it_was_listed_is_asked_about(monkeypatch):
    reader, update = make_reader(LISTED), {"Memory": 2048 * 2**20}
    ask(reader, "start", id="web")
    assert ask(reader, "update", id="web", document=update).memory_mb == 2048
    monkeypatch.setattr("nodetracker.virt.docker.starts.STARTED_SECONDS", 0.0)
    assert ask(reader, "update", id="web", document=update) is None


def test_an_update_of_one_that_does_not_run_starts_nothing():
    assert ask(make_reader(LISTED), "update", id="web", document={"Memory": 1}) is None


@pytest.mark.parametrize(
    ("document", "lacking"),
    [
        ({"HostConfig": {}}, "CPUs and memory"),
        ({"HostConfig": {"Memory": 2**20}}, "CPUs"),
        ({"HostConfig": {"NanoCpus": 10**9}}, "memory"),
    ],
)
def test_one_without_limits_is_refused_where_they_are_required(document, lacking):
    reader = make_reader(requires_limits=True)
    assert ask(reader, "create", document=LIMITED) is not None
    with pytest.raises(ClaimRefusedError, match=f"no limit of {lacking} is set"):
        ask(reader, "create", document=document)


def test_one_whose_request_plugins_do_not_get_is_refused():
    with pytest.raises(ClaimRefusedError, match="too large"):
        ask(make_reader(), "create", document=None)


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "create", "document": []},
        {"ask": "create", "document": {"HostConfig": {"Memory": "much"}}},
        {"ask": "create", "document": {"HostConfig": {"Devices": []}, "hostconfig": {}}},
        {"ask": "create", "document": {"HostConfig": {"DeviceRequests": [{"Count": "all"}]}}},
        {"ask": "update", "id": "running", "document": 7},
    ],
)
def test_a_request_that_cannot_be_read_is_refused(question):
    running = Container("cd" * 32, "running", "", "running")
    with pytest.raises(ClaimRefusedError, match="cannot be read"):
        make_reader(LISTED, running).read(question, NumaTopology())


def test_what_is_not_a_question_is_named():
    with pytest.raises(HostDataError, match="unknown question 'stop'"):
        ask(make_reader(LISTED), "stop", id="web")


def test_the_case_of_keys_within_a_request_for_devices_does_not_count():
    requests = [{"driver": "nvidia", "deviceids": ["0"], "COUNT": 0}]
    devices = [{"pathonhost": "/dev/kfd"}]
    limits = {"devicerequests": requests, "DEVICES": devices}
    details = ask(make_reader(), "create", document={"HostConfig": limits}).details
    assert (details["gpu_names"], details["devices"]) == (["0"], ["/dev/kfd"])
