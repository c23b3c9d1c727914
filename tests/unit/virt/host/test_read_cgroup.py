"""Test reading the usage of containers' control groups, version 1 and 2."""

import pytest
from host_tree import MakeRoots

from nodetracker.model.errors import HostDataError
from nodetracker.virt.host.cgroup import CgroupUsage, cut_path, read_cgroup_usage

ID = "1b20cc08c1b58adb"
V1 = {
    "proc/7/cgroup": f"4:memory:/docker/{ID}\n3:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}\n",
    f"sys/fs/cgroup/cpuacct/docker/{ID}/cpuacct.usage": "27797899\n",
    f"sys/fs/cgroup/memory/docker/{ID}/memory.usage_in_bytes": "745472\n",
    f"sys/fs/cgroup/memory/docker/{ID}/memory.stat": "hierarchical_memory_limit 18446744073709551615\ntotal_inactive_file 45472\n",
}
SCOPE = f"system.slice/docker-{ID}.scope"
V2 = {
    "proc/7/cgroup": f"0::/{SCOPE}/init.scope\n",
    f"sys/fs/cgroup/{SCOPE}/cpu.stat": "usage_usec 27\nuser_usec 20\n",
    f"sys/fs/cgroup/{SCOPE}/memory.current": "745472\n",
    f"sys/fs/cgroup/{SCOPE}/memory.stat": "anon 1\ninactive_file 45472\n",
}


def test_version_1_is_read(make_roots: MakeRoots) -> None:
    assert read_cgroup_usage(7, ID, make_roots(V1)) == CgroupUsage(27797899, 700000)


def test_version_2_is_read_from_the_containers_own_group(make_roots: MakeRoots) -> None:
    assert read_cgroup_usage(7, ID, make_roots(V2)) == CgroupUsage(27000, 700000)


def test_more_cache_than_usage_means_zero_memory(make_roots: MakeRoots) -> None:
    path = f"sys/fs/cgroup/{SCOPE}/memory.current"
    usage = read_cgroup_usage(7, ID, make_roots(V2 | {path: "5"}))
    assert usage is not None
    assert usage.working_set_bytes == 0


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="gone"),
        pytest.param({"proc/7/cgroup": "0::/system.slice/ssh.service\n"}, id="another process"),
        pytest.param({"proc/7/cgroup": f"0::/../../docker/{ID}\n"}, id="outside of what we see"),
        pytest.param({"proc/7/cgroup": f"0::/docker/{ID}\n"}, id="no files"),
    ],
)
def test_a_process_that_has_exited_has_unknown_usage(
    make_roots: MakeRoots, files: dict[str, str]
) -> None:
    assert read_cgroup_usage(7, ID, make_roots(files)) is None


@pytest.mark.parametrize(
    ("name", "text"), [("memory.stat", "anon 1\n"), ("memory.current", "much\n")]
)
def test_malformed_files_are_an_error(make_roots: MakeRoots, name: str, text: str) -> None:
    with pytest.raises(HostDataError):
        read_cgroup_usage(7, ID, make_roots(V2 | {f"sys/fs/cgroup/{SCOPE}/{name}": text}))


def test_a_path_without_its_owner_is_none() -> None:
    assert cut_path("/user.slice", ID) is None
