"""Values in an engine's answers that random ones have shown to count as nothing, or worse."""

import pytest

from tests.hostile.docker import IDS, DockerHost
from tests.hostile.values import DEEP

FIRST, FULL, VISIBLE = (("containers", key) for key in IDS[:3])
CONFIG, LIMITS = (*FULL, "Config"), (*FULL, "HostConfig")
CAPTURES = [
    ((*FIRST, "State", "Status"), []),
    ((*FIRST, "State", "Status"), 5),
    ((*FIRST, "Id"), "\ud800"),
    ((*FIRST, "Id"), IDS[1]),
    ((*FIRST, "HostConfig", "NanoCpus"), []),
    ((*FIRST, "HostConfig", "NanoCpus"), 10**400),
    ((*LIMITS, "CgroupParent"), "a\0b"),
    ((*LIMITS, "CgroupParent"), "\ud800"),
    ((*LIMITS, "CpusetCpus"), 7),
    ((*LIMITS, "CpusetCpus"), "0-65535," * 60_000),
    ((*LIMITS, "StorageOpt"), "10G"),
    ((*LIMITS, "StorageOpt", "size"), 10),
    ((*LIMITS, "RestartPolicy"), "always"),
    ((*LIMITS, "Devices"), {"PathOnHost": "/dev/vfio/1"}),
    ((*LIMITS, "Devices", 0, "PathOnHost"), ["/dev/vfio/1"]),
    ((*LIMITS, "DeviceRequests"), "all"),
    ((*LIMITS, "DeviceRequests", 0, "Count"), "2"),
    ((*LIMITS, "DeviceRequests", 0, "Capabilities"), "gpu"),
    ((*LIMITS, "DeviceRequests", 2, "DeviceIDs", 0), "\N{SUPERSCRIPT TWO}"),
    ((*LIMITS, "DeviceRequests", 2, "DeviceIDs", 0), "9" * 5000),
    ((*LIMITS, "DeviceRequests", 2, "Driver"), 1.5),
    (CONFIG, []),
    ((*CONFIG, "Labels"), [["nodetracker.workload", "x"]]),
    ((*CONFIG, "Labels", "nodetracker.workload"), 7),
    ((*VISIBLE, "Config", "Env"), "NVIDIA_VISIBLE_DEVICES=1"),
    ((*VISIBLE, "Config", "Env", 0), ["NVIDIA_VISIBLE_DEVICES=1"]),
    ((*VISIBLE, "HostConfig", "Runtime"), 1),
    ((*FULL, "Mounts"), 1),
    (("list", 0, "Id"), "../2"),
    (("list", 0, "Id"), "\ud800"),
    (("list", 0), DEEP),
    (("statistics", IDS[0], "cpu_stats", "cpu_usage", "total_usage"), 10**400),
    (("statistics", IDS[0]), "x"),
    (("df", "Images", 0, "Size"), -1),
    (("info", "DefaultRuntime"), 5),
    (("info", "DockerRootDir"), "a\0b"),
    (("info", "Labels"), [DEEP]),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return DockerHost(tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize(("path", "value"), CAPTURES, ids=lambda value: repr(value)[-40:])
def test_what_is_wrong_is_named_and_counts_as_nothing_nowhere(host, path, value):
    assert list(host.find_faults(path, value)) == []
