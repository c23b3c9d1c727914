"""The size of a Ceph pool: as ceph df says, divided by its copies, or raw with a warning."""

import json

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import Filesystem, StorageInfo
from nodetracker.virt.libvirt.ceph import CephSettings, measure_usable, parse_ceph_df

GIB = 2**30
RAW = StorageInfo(Filesystem("", 3 * 1024, 31, 2 * 1024, device="images"))


def answer(*names, **stats):
    return json.dumps({"stats": {}, "pools": [{"name": name, "stats": stats} for name in names]})


def measure(settings, run=pytest.fail):
    found = measure_usable(RAW, "vms", settings, run)
    instances = found.instances
    return (instances.total_mb, instances.used_mb, instances.available_mb), found.problems


@pytest.mark.parametrize(
    ("user", "arguments"), [("", []), ("nova", ["--id", "nova"])], ids=["default", "user"]
)
def test_ceph_df_says_what_a_pool_can_store(user, arguments):
    commands = []

    def run(command):
        commands.append(command)
        return answer("rbd", "vms", stored=10 * GIB, bytes_used=30 * GIB, max_avail=20 * GIB)

    settings = CephSettings("/etc/ceph/ceph.conf", user, replicas=7)
    assert measure(settings, run) == ((30 * 1024, 10 * 1024, 20 * 1024), ())
    expected = ["ceph", "df", "--format", "json", "--conf", "/etc/ceph/ceph.conf", *arguments]
    assert commands == [expected]


def test_before_nautilus_the_used_bytes_are_without_copies():
    assert parse_ceph_df(answer("vms", bytes_used=1, max_avail=2.0), "vms") == (1, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (answer("rbd", stored=1, max_avail=1), "has no pool vms"),
        (answer("vms", stored=1), "is not an answer"),
        (answer("vms", max_avail=1), "has no amounts of pool vms"),
        (answer("vms", stored=-1, max_avail=1), "has no amounts of pool vms"),
        ("[]", "is not an answer"),
        ("unable to connect", "is not an answer"),
    ],
)
def test_an_answer_without_the_pool_s_amounts_is_an_error(text, reason):
    with pytest.raises(HostDataError, match=reason):
        measure(CephSettings("/etc/ceph/ceph.conf"), lambda _: text)


def test_a_raw_size_is_divided_by_the_number_of_copies():
    assert measure(CephSettings(replicas=3)) == ((1024, 11, 682), ())


def test_a_raw_size_counts_with_a_warning_that_names_the_options():
    amounts, (problem,) = measure(CephSettings())
    assert amounts == (3 * 1024, 31, 2 * 1024)
    assert problem.path == "pool images"
    assert "images_rbd_ceph_conf" in problem.text
    assert "rbd_replicas" in problem.text
