"""The engine's report about itself: parsing and tolerance of invalid items."""

import math
from pathlib import Path

import pytest

from nodetracker.accounting.audit.inventory import storage_columns
from nodetracker.model.errors import ConfigError, HostDataError
from nodetracker.virt.docker.plugin import PLUGIN, _find_image_store
from nodetracker.virt.docker.report import (
    find_image_store,
    has_disk_quotas,
    is_same_host,
    parse_image_bytes,
    parse_labels,
    parse_report,
    parse_version_number,
)
from nodetracker.virt.host.disk import read_storage
from nodetracker.virt.host.roots import Roots
from tests.contract.drivers.docker import default_values
from tests.engine_stub import INFO, VERSION


def report_of(version=VERSION, **changes):
    return parse_report(INFO | changes, version, "sock")


def test_a_docker_engine_s_report_is_parsed():
    report = report_of()
    engine = report.engine
    assert (engine.name, engine.version, engine.api_version) == ("docker", "24.0.7", "1.43")
    assert (engine.storage_driver, engine.root_dir) == ("overlay2", "/var/lib/docker")
    assert (engine.cgroup_version, engine.cgroup_driver) == ("2", "systemd")
    assert (engine.runtimes, engine.default_runtime) == (("runc",), "runc")
    assert engine.labels == {"rack": "7"}
    assert report.hypervisor.type == "docker"
    assert report.hypervisor.version == 24000007
    assert report.hypervisor.supported_instances == (("x86_64", "docker", "exe"),)
    assert report.daemon_name == "host-1"
    assert report.problems == ()


def test_podman_is_distinguished_from_docker():
    version = {"ApiVersion": "1.41", "Components": [{"Name": "Podman Engine"}]}
    report = report_of(version, ServerVersion="4.3.1", Architecture="amd64", Labels=None)
    assert report.engine.name == report.hypervisor.type == "podman"
    assert report.hypervisor.supported_instances == (("x86_64", "podman", "exe"),)


@pytest.mark.parametrize(
    ("labels", "expected", "problems"),
    [
        pytest.param(None, {}, 0, id="null"),
        pytest.param([], {}, 0, id="none"),
        pytest.param(["gpu"], {"gpu": ""}, 1, id="without equals"),
        pytest.param(["url=a=b=c"], {"url": "a=b=c"}, 0, id="several equals"),
        pytest.param(["a="], {"a": ""}, 0, id="empty value"),
        pytest.param(["ключ=значение 😀"], {"ключ": "значение 😀"}, 0, id="any text"),
        pytest.param([7, "a=b"], {"a": "b"}, 1, id="no text"),
        pytest.param("a=b", {}, 1, id="no list"),
        pytest.param(["a=1", "a=2"], {"a": "2"}, 0, id="twice"),
    ],
)
def test_labels_with_any_text_are_parsed(labels, expected, problems):
    found, lines = parse_labels(labels)
    assert found == expected
    assert len(lines) == problems


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"DriverStatus": None}, id="null DriverStatus"),
        pytest.param({"Runtimes": None}, id="null Runtimes"),
        pytest.param({"Runtimes": []}, id="Runtimes of another type"),
        pytest.param({"ServerVersion": None}, id="no version"),
        pytest.param({"CgroupVersion": None}, id="old API without cgroup version"),
        pytest.param({"Name": None}, id="no name"),
        pytest.param({"Driver": 7}, id="driver of another type"),
    ],
)
def test_a_missing_or_invalid_field_does_not_affect_others(changes):
    engine = report_of(**changes).engine
    assert engine.labels == {"rack": "7"}
    assert engine.root_dir == "/var/lib/docker"


def test_missing_runtimes_are_an_empty_tuple():
    assert parse_report({}, None, "sock").engine.runtimes == ()


def test_an_answer_that_is_not_an_object_is_an_error():
    with pytest.raises(HostDataError, match="expected an object"):
        parse_report([], VERSION, "sock")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("20.10.24+dfsg1", 20010024),
        ("4.3.1", 4003001),
        ("29.0", 29000000),
        ("25.0.0-rc.1", 25000000),
        ("dev", 0),
        ("", 0),
    ],
)
def test_versions_become_numbers(text, number):
    assert parse_version_number(text) == number


@pytest.mark.parametrize(
    ("driver", "fs_type", "options", "expected"),
    [
        ("overlay2", "xfs", ("rw", "prjquota"), True),
        ("overlay2", "xfs", ("rw", "pquota"), True),
        ("overlay2", "xfs", ("rw", "noquota"), False),
        ("overlay2", "xfs", ("rw", "pqnoenforce"), False),
        ("overlay2", "ext4", ("rw", "prjquota"), True),
        ("overlay2", "ext4", ("rw",), False),
        ("overlay2", "tmpfs", ("rw", "prjquota"), False),
        ("overlay", "xfs", ("prjquota",), True),
        ("vfs", "xfs", ("prjquota",), True),
        ("zfs", "zfs", ("rw",), True),
        ("btrfs", "btrfs", ("rw",), True),
        ("devicemapper", "ext4", ("rw",), True),
        ("aufs", "xfs", ("prjquota",), False),
        ("", "", (), False),
    ],
)
def test_disk_quotas_depend_on_driver_filesystem_and_options(driver, fs_type, options, expected):
    assert has_disk_quotas(driver, fs_type, options) is expected


@pytest.mark.parametrize(
    ("daemon", "host", "expected"),
    [
        ("web1", "web1", True),
        ("web1", "WEB1.example.com", True),
        ("web1.example.com", "web1", True),
        ("web1", "web10", False),
        ("web1.a.example", "web1.b.example", False),
    ],
)
def test_hosts_are_the_same_with_or_without_a_domain(daemon, host, expected):
    assert is_same_host(daemon, host) is expected


def test_images_are_measured_by_layers_or_else_by_image():
    assert parse_image_bytes({"LayersSize": 5, "Images": [{"Size": 9}]}, "s") == 5
    assert parse_image_bytes({"LayersSize": 0, "Images": [{"Size": 9}, {"Size": 1}]}, "s") == 10
    assert parse_image_bytes({"Images": None}, "s") == 0
    usage = {"TotalCount": 5, "TotalSize": 16, "Reclaimable": 1}
    assert parse_image_bytes({"ImageUsage": usage}, "s") == 16
    assert parse_image_bytes({"ImagesUsage": usage, "BuildCacheUsage": {}}, "s") == 16
    assert parse_image_bytes({"LayersSize": 0, "ImageUsage": {"TotalSize": 0}}, "s") == 0
    for odd in (
        [],
        {},
        {"ImageUsage": {"TotalSize": None}},
        {"Containers": []},
        {"Images": [{}]},
        {"Images": [{"Size": None}]},
        {"Images": [{"Size": math.inf}]},
    ):
        with pytest.raises(HostDataError):
            parse_image_bytes(odd, "s")


SNAPSHOTTER = [["driver-type", "io.containerd.snapshotter.v1"]]


@pytest.mark.parametrize(
    ("status", "address", "expected"),
    [
        (SNAPSHOTTER, "/run/containerd/containerd.sock", "/var/lib/containerd"),
        (SNAPSHOTTER, "/var/run/containerd/containerd.sock", "/var/lib/containerd"),
        (SNAPSHOTTER, None, "/var/lib/containerd"),
        (
            SNAPSHOTTER,
            "/var/run/docker/containerd/containerd.sock",
            "/srv/docker/containerd/daemon",
        ),
        ([["Backing Filesystem", "extfs"]], "/run/containerd/containerd.sock", ""),
        (None, None, ""),
    ],
)
def test_the_image_store_is_where_the_engine_s_containerd_has_its_files(status, address, expected):
    containerd = {} if address is None else {"Containerd": {"Address": address}}
    info = {"DockerRootDir": "/srv/docker", "DriverStatus": status} | containerd
    assert find_image_store(info) == expected


URLS = ["unix:///a.sock", "unix:///b.sock"]


def paths_of(*items, urls=URLS):
    values = default_values(base_url=urls, image_store_path=list(items))
    parts = PLUGIN.split(values)
    return [
        (name, _find_image_store(its["image_store_path"], *its["base_url"])) for name, its in parts
    ]


def test_each_engine_has_its_own_image_store():
    a, b = URLS
    assert paths_of() == [(a, ""), (b, "")]
    assert paths_of("/srv/x") == [(a, "/srv/x"), (b, "/srv/x")]
    assert paths_of(f"{b}=/srv/b", "/srv/x") == [(a, "/srv/x"), (b, "/srv/b")]
    assert paths_of("/srv/x", urls=[a, a]) == [("docker", "/srv/x")]


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (["unix:///c.sock=/srv"], "unix:///c.sock is not in base_url"),
        (["srv"], "expected an absolute path"),
        (["/srv", "/var"], "has another path"),
    ],
)
def test_an_invalid_image_store_is_a_configuration_error(items, text):
    with pytest.raises(ConfigError, match=text):
        paths_of(*items)


def test_the_smaller_of_two_filesystems_is_what_is_available(tmp_path):
    store = read_storage(tmp_path, Roots(), Path("/dev/shm"))
    assert store.further is not None
    left = min(store.instances.available_mb, store.further.available_mb)
    assert store.available_mb == left
    assert storage_columns(store)["local_gb"] == store.instances.total_mb // 1024
    assert storage_columns(store)["disk_available_least"] == left // 1024
    assert read_storage(tmp_path, Roots(), tmp_path.parent).further is None


def test_a_missing_image_store_is_not_measured_as_its_parent(tmp_path):
    assert read_storage(tmp_path / "missing", Roots()).instances.path == str(tmp_path)
    with pytest.raises(HostDataError, match="missing: does not exist"):
        read_storage(tmp_path / "missing", Roots(), tmp_path)
