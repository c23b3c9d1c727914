"""Parsing of containers' descriptions, and the guests built from them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.guest import PowerState
from nodetracker.virt.docker.containers import (
    ContainerError,
    parse_container,
    parse_cpu_charge,
    parse_devices,
    parse_size,
)
from nodetracker.virt.docker.guests import build_guest
from tests.engine_stub import describe_container

MIB = 1 << 20
GIB = 1 << 30


def container_of(status="running", **changes):
    raw = describe_container(**changes)
    raw["State"] = {"Status": status, "Pid": 42}
    return parse_container(raw)


def guest_of(status="running", **changes):
    return build_guest(container_of(status, **changes), "u", 64)


@pytest.mark.parametrize(
    ("config", "milli"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({"NanoCpus": 1_500_000_000}, 1500, id="NanoCpus"),
        pytest.param({"NanoCpus": 1}, 1, id="the least of NanoCpus rounds up"),
        pytest.param({"CpuQuota": 25_000, "CpuPeriod": 100_000}, 250, id="quota"),
        pytest.param({"CpuQuota": 33_333, "CpuPeriod": 100_000}, 334, id="a thousandth rounds up"),
        pytest.param({"CpuQuota": 200_000, "CpuPeriod": 0}, 2000, id="quota of the usual period"),
        pytest.param({"CpuQuota": 200_000, "CpuPeriod": -1}, 2000, id="quota of no valid period"),
        pytest.param({"CpuQuota": -1, "CpuShares": 512}, 500, id="quota that is off"),
        pytest.param({"CpusetCpus": "0-2,7"}, 4000, id="cpuset"),
        pytest.param({"CpuShares": 1024}, 1000, id="shares"),
        pytest.param({"CpuShares": 2}, 2, id="the least shares"),
        pytest.param(
            {"NanoCpus": 10**9, "CpusetCpus": "0-3", "CpuShares": 512}, 1000, id="NanoCpus first"
        ),
        pytest.param({"CpuQuota": 10**5, "CpusetCpus": "0-3"}, 1000, id="quota before cpuset"),
        pytest.param({"CpusetCpus": "0-3", "CpuShares": 512}, 500, id="shares before cpuset"),
        pytest.param({"CpusetCpus": "0-3", "CpuShares": 8192}, 4000, id="shares within cpuset"),
        pytest.param({"CpusetCpus": "2", "NanoCpus": 4 * 10**9}, 1000, id="NanoCpus in cpuset"),
        pytest.param({"CpusetCpus": "2", "CpuQuota": 3 * 10**5}, 1000, id="quota in cpuset"),
        pytest.param({"NanoCpus": None, "CpuQuota": None}, 0, id="null"),
    ],
)
def test_cpus_follow_from_the_first_setting_that_is_present(config, milli):
    assert parse_cpu_charge(config)[0] == milli


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({}, ""),
        ({"NanoCpus": 10**9}, "NanoCpus"),
        ({"CpuQuota": 10**5}, "quota"),
        ({"CpuShares": 512, "CpusetCpus": "0-28"}, "shares"),
        ({"CpuShares": 0, "CpusetCpus": "0-28"}, "CPU set"),
        ({"NanoCpus": 4 * 10**9, "CpusetCpus": "2"}, "CPU set"),
    ],
)
def test_the_setting_that_counts_is_named(config, rule):
    assert parse_cpu_charge(config)[1] == rule
    container = parse_container({"Id": "a" * 64, "HostConfig": config, "State": {}})
    assert build_guest(container, "u", 64).details.get("cpu_rule", "") == rule


@pytest.mark.parametrize(
    "config",
    [
        {"NanoCpus": "1"},
        {"CpuShares": 1.5},
        {"CpusetCpus": "a-b"},
        {"CpuQuota": True},
        {"NanoCpus": 2**70},
    ],
)
def test_cpus_of_another_type_are_an_error(config):
    with pytest.raises(ContainerError):
        parse_cpu_charge(config)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512m", 512 * MIB),
        ("1.5g", 1536 * MIB),
        ("10G", 10 * GIB),
        ("10GB", 10 * GIB),
        ("10GiB", 10 * GIB),
        ("1t", 1024 * GIB),
        ("2048", 2048),
        ("100 mb", 100 * MIB),
    ],
)
def test_sizes_are_parsed_in_the_engine_s_notation(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "g", "-1g", "1x", "1.g", "ten", "9000000p", "9" * 400])
def test_an_invalid_size_is_an_error(text):
    with pytest.raises(ContainerError, match="is not a valid size"):
        parse_size(text)


def test_all_attributes_of_a_container_are_parsed():
    container = container_of(
        Memory=100 * MIB + 1,
        StorageOpt={"size": "10G"},
        RestartPolicy={"Name": "always"},
        Devices=[{"PathOnHost": "/dev/fuse"}],
        DeviceRequests=[{"Driver": "nvidia", "Count": -1}],
    )
    assert (container.name, container.pid) == ("web-1", 42)
    assert (container.vcpu_milli, container.memory_mb, container.disk_mb) == (500, 101, 10240)
    assert (container.gpus, container.devices) == (-1, ("/dev/fuse",))
    assert container.restart_policy == "always"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda raw: raw.pop("HostConfig"), "HostConfig", id="no HostConfig"),
        pytest.param(lambda raw: raw.update(State=None), "State", id="no State"),
        pytest.param(lambda raw: raw["HostConfig"].update(Memory="512m"), "Memory", id="text"),
        pytest.param(
            lambda raw: raw["HostConfig"].update(StorageOpt={"size": "x"}), "size", id="odd size"
        ),
    ],
)
def test_an_invalid_value_that_determines_usage_is_an_error(change, reason):
    raw = describe_container()
    change(raw)
    with pytest.raises(ContainerError, match=reason):
        parse_container(raw)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    st.sampled_from(["HostConfig", "State", "Config", "Name", "Created", "Id"]),
)
def test_any_description_is_a_container_or_a_container_error(value, key):
    raw = describe_container() | {key: value}
    try:
        guest = build_guest(parse_container(raw), "u", 64)
    except ContainerError:
        return
    json.dumps(guest.details)


@pytest.mark.parametrize(
    ("requests", "names", "count"),
    [
        (None, (), 0),
        ([], (), 0),
        ([{"Driver": "nvidia", "Count": 2}], ("0", "1"), 2),
        ([{"Driver": "", "Count": -1, "Capabilities": [["gpu", "nvidia"]]}], ("all",), -1),
        ([{"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0", "GPU-1"]}], ("0", "GPU-1"), 2),
        ([{"Driver": "cdi", "DeviceIDs": ["vendor.com/nic=1"]}], (), 0),
        ([{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=GPU-2"]}],
         ("nvidia.com/gpu=1", "nvidia.com/gpu=GPU-2"), 2),
        ([{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"], "Capabilities": [["gpu"]]}],
         ("nvidia.com/gpu=all",), -1),
        ([{"Driver": "amd", "Count": -1}], ("amd.com/gpu=all",), -1),
        ([None, {"Driver": "nvidia", "DeviceIDs": [None, "3"]}], ("3",), 1),
    ],
)  # fmt: skip
def test_requested_gpus_are_named_and_counted(requests, names, count):
    container = container_of(DeviceRequests=requests)
    assert (container.gpu_names, container.gpus) == (names, count)


@pytest.mark.parametrize(
    ("runtime", "default", "visible", "requests", "names"),
    [
        ("nvidia", "runc", "all", None, ("all",)),
        ("nvidia-cdi", "runc", "all", None, ("all",)),
        ("/usr/bin/nvidia-container-runtime", "runc", "all", None, ("all",)),
        ("/usr/bin/nvidia-container-runtime.cdi", "runc", "all", None, ("all",)),
        ("nvidia", "runc", "0, GPU-1", None, ("0", "GPU-1")),
        ("nvidia", "runc", "none", None, ()),
        ("nvidia", "runc", "void", None, ()),
        ("nvidia", "runc", "", None, ()),
        ("nvidia", "runc", "all", [{"Driver": "nvidia", "Count": 1}], ("0",)),
        ("runc", "nvidia", "all", None, ()),
        ("runc", "runc", "all", None, ()),
        (None, "runc", "all", None, ()),
        (None, "nvidia", "all", None, ("all",)),
        ("", "nvidia-cdi", "1", None, ("1",)),
        ("oci", "nvidia", "1", None, ("1",)),
    ],
)
def test_the_environment_assigns_gpus_where_a_runtime_obeys_it(
    runtime, default, visible, requests, names
):
    raw = describe_container(1, Runtime=runtime, DeviceRequests=requests)
    raw["Config"]["Env"] = ["PATH=/bin", None, f"NVIDIA_VISIBLE_DEVICES={visible}"]
    assert parse_container(raw).obey(default, False).gpu_names == names


def test_podman_names_the_runtime_elsewhere_and_may_have_a_hook():
    raw = describe_container(1, Runtime="oci") | {"OCIRuntime": "crun"}
    raw["Config"]["Env"] = ["NVIDIA_VISIBLE_DEVICES=all"]
    assert parse_container(raw).obey("crun", False).gpu_names == ()
    assert parse_container(raw).obey("crun", True).gpu_names == ("all",)
    raw["OCIRuntime"] = "/usr/bin/nvidia-container-runtime"
    assert parse_container(raw).obey("crun", False).gpu_names == ("all",)


def test_amd_s_runtime_obeys_its_own_variable():
    raw = describe_container(1, Runtime="amd")
    raw["Config"]["Env"] = ["AMD_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all"]
    assert parse_container(raw).obey("runc", False).gpu_names == ("amd.com/gpu=0",)


@pytest.mark.parametrize(
    ("runtime", "variable", "names"),
    [
        ("habana", "HABANA_VISIBLE_DEVICES=all", ("habana.ai/gaudi=all",)),
        ("ascend", "ASCEND_VISIBLE_DEVICES=0-3,5", ("huawei.com/npu=0-3", "huawei.com/npu=5")),
        ("runc", "HABANA_VISIBLE_DEVICES=all", ()),
        ("nvidia", "ASCEND_VISIBLE_DEVICES=0", ()),
    ],
)
def test_runtimes_of_accelerators_obey_their_own_variables(runtime, variable, names):
    raw = describe_container(1, Runtime=runtime)
    raw["Config"]["Env"] = [variable]
    assert parse_container(raw).obey("runc", False).gpu_names == names


@pytest.mark.parametrize(
    ("settings", "devices"),
    [
        ({"DeviceCgroupRules": ["c 226:* rwm"]}, ("/dev/apex_0", "/dev/dri")),
        ({"Privileged": True}, ("/dev/apex_0", "/dev/dri")),
        ({"DeviceCgroupRules": None, "Privileged": False}, ()),
    ],
)
def test_devices_that_are_mounted_are_used_where_the_container_may(settings, devices):
    raw = describe_container(1, **settings)
    raw["Mounts"] = [
        {"Type": "bind", "Source": source}
        for source in ("/dev/dri", "/dev/apex_0", "/dev", "/srv/data")
    ]
    assert parse_container(raw).devices == devices


def test_images_for_old_releases_of_cuda_get_all_gpus():
    raw = describe_container(1, Runtime="nvidia")
    raw["Config"]["Env"] = ["CUDA_VERSION=8.0"]
    assert parse_container(raw).obey("runc", False).gpu_names == ("all",)
    raw["Config"]["Env"].append("NVIDIA_REQUIRE_CUDA=cuda>=9.0")
    assert parse_container(raw).obey("runc", False).gpu_names == ()


@pytest.mark.parametrize("memory", [9223372036854771712, 9223372036854710272, 2**63 - 1])
def test_the_kernel_s_maximum_is_not_a_memory_limit(memory):
    assert container_of(Memory=memory).memory_mb is None


def test_cpu_and_memory_sets_are_parsed():
    container = container_of(NanoCpus=10**9, CpusetCpus="0-2,^1,7", CpusetMems="1")
    assert (container.cpus, container.cells) == (frozenset({0, 2, 7}), frozenset({1}))
    assert container.vcpu_milli == 1000


def test_devices_are_host_paths():
    assert parse_devices([{"PathOnHost": "/dev/b"}, {"PathOnHost": "/dev/a"}, None]) == (
        "/dev/a",
        "/dev/b",
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("running", PowerState.RUNNING),
        ("paused", PowerState.PAUSED),
        ("restarting", PowerState.CRASHED),
        ("created", PowerState.SHUTDOWN),
        ("exited", PowerState.SHUTDOWN),
        ("removing", PowerState.SHUTDOWN),
        ("dead", PowerState.CRASHED),
        ("something new", PowerState.NOSTATE),
    ],
)
def test_states_map_to_nova_s_power_states(status, state):
    assert container_of(status).power_state is state


@pytest.mark.parametrize(
    ("status", "policy", "is_charged"),
    [
        ("running", "no", True),
        ("paused", "no", True),
        ("restarting", "on-failure", True),
        ("exited", "always", True),
        ("stopped", "always", True),
        ("stopped", "no", False),
        ("exited", "no", False),
        ("exited", "", False),
        ("exited", "unless-stopped", False),
        ("exited", "on-failure", False),
        ("created", "always", False),
        ("dead", "always", False),
    ],
)
def test_a_stopped_container_that_is_not_restarted_uses_only_its_disk(status, policy, is_charged):
    guest = guest_of(status, RestartPolicy={"Name": policy}, StorageOpt={"size": "1G"})
    assert guest.disk_mb == 1024
    assert (guest.vcpu_milli, guest.memory_mb) == ((500, 64) if is_charged else (0, 0))


def test_a_container_without_limits_uses_its_working_set_and_is_marked_unlimited():
    guest = build_guest(container_of(Memory=0, NanoCpus=0), "u", 192)
    assert (guest.vcpu_milli, guest.memory_mb, guest.disk_mb) == (0, 192, 0)
    assert guest.details["unlimited"] == ["cpu", "memory", "disk"]


def test_details_omit_missing_values():
    guest = guest_of(
        RestartPolicy={"Name": "no"},
        StorageOpt={"size": "1G"},
        Devices=[{"PathOnHost": "/dev/fuse"}],
        DeviceRequests=[{"Driver": "nvidia", "Count": -1}],
    )
    assert guest.details == {
        "container_id": f"{1:064x}",
        "image": "bb",
        "cpu_rule": "NanoCpus",
        "devices": ["/dev/fuse"],
        "gpus": "all",
        "gpu_names": ["all"],
    }


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"Status": "running", "ExitCode": 0, "OOMKilled": False}, {}),
        ({"Status": "running", "Health": {"Status": "none"}}, {}),
        ({"Status": "running", "Health": {"Status": "starting"}}, {"health": "starting"}),
        ({"Status": "running", "Health": {"Status": "unhealthy"}}, {"health": "unhealthy"}),
        ({"Status": "exited", "ExitCode": 0, "OOMKilled": False}, {"exit_code": 0}),
        (
            {"Status": "exited", "ExitCode": 137, "OOMKilled": True},
            {"exit_code": 137, "oom_killed": True},
        ),
        ({"Status": "restarting", "ExitCode": 1}, {"exit_code": 1}),
        ({"Status": "created", "ExitCode": 0}, {}),
    ],
)
def test_a_guest_shows_its_health_and_how_its_container_ended(state, shown):
    description = describe_container() | {"State": state}
    details = build_guest(parse_container(description), "", 0).details
    keys = ("health", "exit_code", "oom_killed")
    assert {key: details[key] for key in keys if key in details} == shown


@pytest.mark.parametrize(("count", "shown"), [(-1, "all"), (0, None), (1, 1), (2, 2)])
def test_a_guest_shows_how_many_gpus_its_container_requested(count, shown):
    guest = guest_of(DeviceRequests=[{"Driver": "nvidia", "Count": count}])
    assert guest.details.get("gpus") == shown
