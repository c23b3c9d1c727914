"""What the questions of Docker's plugin say that a container will take."""

import pytest

from nodetracker.model.errors import ClaimRefusedError, HostDataError
from nodetracker.model.guest import derive_container_uuid
from nodetracker.model.numa import NumaTopology
from nodetracker.virt.docker.containers import parse_container
from nodetracker.virt.docker.guests import HostTopology
from nodetracker.virt.docker.starts import KEPT_CONTAINERS, ContainerStartReader, StartRules

ID = "ab" * 32
LIMITED = {"HostConfig": {"Memory": 512 * 2**20, "NanoCpus": 1_500_000_000}}


def make_listed(state, container_id=ID, name="web", created="2026-01-01", labels=None, **limits):
    return parse_container(
        {
            "Id": container_id,
            "Name": f"/{name}",
            "Created": created,
            "State": {"Status": state},
            "HostConfig": limits,
            "Config": {"Labels": labels or {}},
        }
    )


LISTED = make_listed("exited", NanoCpus=2 * 10**9, Memory=2**30)


def make_reader(*listed, **rules):
    return ContainerStartReader(
        StartRules(64, **rules),
        lambda: listed,
        lambda container: HostTopology(),
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
    running = make_listed("running", Memory=64 * 2**20)
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


def test_one_that_was_created_is_known_by_its_name_before_it_is_listed():
    reader = make_reader()
    ask(reader, "created", id=ID, name="web", document=LIMITED)
    assert ask(reader, "start", id="web").uuid == derive_container_uuid(ID)


def test_a_name_means_no_other_whose_id_begins_with_it():
    """``db`` and ``cafe`` are hexadecimal."""
    other = make_listed("exited", "db" * 32, "other", Memory=2**20)
    named = make_listed("exited", "cd" * 32, "db", Memory=2**30)
    for listed in ((other, named), (named, other)):
        assert ask(make_reader(*listed), "start", id="db").memory_mb == 1024
    assert ask(make_reader(other, named), "start", id="dbdb").memory_mb == 1
    assert ask(make_reader(other, named), "start", id=other.id).memory_mb == 1


def test_one_that_was_created_has_the_name_that_another_had_when_it_was_listed():
    reader = make_reader(LISTED)
    ask(reader, "created", id="cd" * 32, name="web", document=LIMITED)
    assert ask(reader, "start", id="web").uuid == derive_container_uuid("cd" * 32)


@pytest.mark.parametrize(
    ("before", "update"),
    [
        ({"NanoCpus": 10**9}, {"CpusetCpus": "0-1"}),
        ({"NanoCpus": 4 * 10**9}, {"CpusetCpus": "0-1"}),
        ({"CpusetCpus": "0"}, {"NanoCpus": 2 * 10**9}),
        ({"NanoCpus": 10**9}, {"CpuShares": 4096}),
        ({"CpuQuota": 50_000}, {"CpuPeriod": 50_000}),
        ({"CpuQuota": 50_000, "CpuPeriod": 50_000}, {"CpuQuota": 200_000}),
        ({"CpuQuota": 50_000}, {"CpuQuota": -1}),
        ({"Memory": 2**30}, {"Memory": 2**63 - 4096}),
        ({"Memory": 2**30}, {"Memory": 0, "CpusetCpus": "", "NanoCpus": None}),
    ],
)
def test_an_updated_one_is_charged_as_the_engine_will_describe_it(before, update):
    running = make_listed("running", **before)
    after = make_listed(
        "running", **before | {key: value for key, value in update.items() if value}
    )
    updated = ask(make_reader(running), "update", id="web", document=update)
    assert updated == ask(make_reader(after), "start", id="web")


def test_an_update_that_takes_a_required_limit_away_is_refused():
    running = make_listed("running", CpuQuota=50_000, Memory=2**30)
    reader = make_reader(running, requires_limits=True)
    for update, lacking in (({"CpuQuota": -1}, "CPUs"), ({"Memory": 2**63 - 4096}, "memory")):
        with pytest.raises(ClaimRefusedError, match=f"no limit of {lacking} is set"):
            ask(reader, "update", id="web", document=update)


def test_one_that_was_updated_starts_with_its_new_limits_before_it_is_listed_again():
    listed = [LISTED]
    reader = make_reader()
    reader.list_listed = lambda: listed
    for memory_mb in (2048, 4096):
        assert ask(reader, "updated", id="web", document={"Memory": memory_mb * 2**20}) is None
        assert ask(reader, "start", id="web").memory_mb == memory_mb
    listed[0] = make_listed("exited", Memory=512 * 2**20)
    assert ask(reader, "start", id="web").memory_mb == 512
    reader = make_reader()
    ask(reader, "created", id=ID, document=LIMITED)
    ask(reader, "updated", id=ID, document={"Memory": 2**30})
    assert amounts(ask(reader, "start", id=ID)) == (1500, 1024, 0)


WORKLOAD = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11"
LABELS = {"nodetracker.workload": WORKLOAD}


def test_one_that_is_to_be_created_is_of_the_workload_of_its_label():
    """Which may have a claim."""
    assert ask(make_reader(), "create", document={**LIMITED, "Labels": LABELS}).uuid == WORKLOAD
    uuid = ask(make_reader(trusts_labels=False), "create", document={"Labels": LABELS}).uuid
    assert uuid not in (WORKLOAD, ask(make_reader(), "create", document={}).uuid)


def test_of_several_with_one_label_the_oldest_has_it_as_when_they_are_listed():
    """A claim, and what the door grants, is for one of them."""
    first = make_listed("running", "ef" * 32, "first", labels=LABELS)
    reader = make_reader(first)
    document = {**LIMITED, "Labels": LABELS}
    assert ask(reader, "create", document=document).uuid != WORKLOAD
    ask(reader, "created", id=ID, name="second", document=document)
    assert ask(reader, "start", id="second").uuid == derive_container_uuid(ID)
    assert ask(reader, "start", id="first").uuid == WORKLOAD


def test_compose_creates_one_in_the_place_of_another():
    """Which it removes before the start."""
    reader = make_reader(LISTED)
    replaces = {"com.docker.compose.replace": "web"}
    document = {**LIMITED, "Labels": replaces}
    own = ask(reader, "create", name=f"{ID[:12]}_web", document=document)
    assert own.uuid == derive_container_uuid(ID)
    for name, labels in (("web", replaces), (f"{ID[:12]}_web", {}), ("a_web", replaces)):
        other = ask(reader, "create", name=name, document={**LIMITED, "Labels": labels})
        assert other.uuid != own.uuid


@pytest.mark.parametrize("state", ["running", "paused"])
def test_an_update_of_one_that_runs_takes_the_new_limits(state):
    running = make_listed(state, NanoCpus=2 * 10**9, Memory=2**30)
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
    running = make_listed("running", "cd" * 32, "running")
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
