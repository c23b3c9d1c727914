"""Huge pages of libvirt: free ones by cell, and the size of a domain that names none."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.model.numa import NumaCell, NumaTopology, PagePool
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.libvirt.pages import (
    PageSettings,
    choose_default_page_kb,
    parse_configured_mounts,
    query_free_pages,
    read_page_settings,
)

M2, G1 = 2048, 1048576
BOTH = {"/dev/2M": M2, "/dev/1G": G1}


class Client:
    def __init__(self, answer):
        self.calls = []
        self.answer = answer

    def get_free_pages(self, sizes, first, count):
        self.calls.append((sizes, first, count))
        if self.answer is None:
            return None
        return {cell: dict.fromkeys(sizes, cell) for cell in range(first, first + count)}


def test_adjacent_cells_with_the_same_sizes_are_one_query():
    client = Client({})
    found = query_free_pages(client, {0: (M2, G1), 1: (M2, G1), 2: (M2,), 3: (M2,), 8: (M2,)})
    assert client.calls == [((M2, G1), 0, 2), ((M2,), 2, 2), ((M2,), 8, 1)]
    assert found == {
        0: {M2: 0, G1: 0}, 1: {M2: 1, G1: 1}, 2: {M2: 2}, 3: {M2: 3}, 8: {M2: 8},
    }  # fmt: skip


def test_a_hypervisor_that_does_not_count_free_pages_has_unknown_ones():
    assert query_free_pages(Client(None), {0: (M2,)}) == {}


@pytest.mark.parametrize(
    ("pools", "settings", "size_kb"),
    [
        pytest.param({M2: 10, G1: 4}, PageSettings(G1), G1, id="kernel"),
        pytest.param({M2: 0, G1: 4}, PageSettings(M2), G1, id="only size with pages"),
        pytest.param({G1: 4}, PageSettings(), G1, id="only size of a remote host"),
        pytest.param({M2: 10, G1: 4}, PageSettings(), M2, id="sizes of a remote host"),
        pytest.param({524288: 4, 64: 100}, PageSettings(), 524288, id="pages of ordinary memory"),
        pytest.param({}, PageSettings(G1), G1, id="no pages"),
        pytest.param({}, PageSettings(), M2, id="nothing known"),
        pytest.param({M2: 0, G1: 4}, PageSettings(M2, BOTH), M2, id="mount of the default size"),
        pytest.param({M2: 9, G1: 4}, PageSettings(M2, {"/1": G1}), G1, id="only mount"),
        pytest.param({M2: 9}, PageSettings(16384, BOTH), M2, id="first mount"),
        pytest.param({M2: 9}, PageSettings(M2, BOTH, ("/dev/1G",)), G1, id="configured"),
        pytest.param(
            {M2: 9}, PageSettings(M2, BOTH, ("/dev/2M", "/dev/1G")), G1, id="second configured"
        ),
        pytest.param({M2: 9}, PageSettings(M2, BOTH, ("/x",)), M2, id="configured, not mounted"),
    ],
)
def test_the_default_size_of_huge_pages(pools, settings, size_kb):
    pages = tuple(PagePool(size, total) for size, total in pools.items())
    topology = NumaTopology((NumaCell(0, frozenset({0}), 8192, pages=pages),))
    assert choose_default_page_kb(topology, settings) == size_kb


@pytest.mark.parametrize(
    ("text", "mounts"),
    [
        ("", ()),
        ('#hugetlbfs_mount = "/dev/hugepages"\n', ()),
        ('user = "root"\n  hugetlbfs_mount="/dev/1G" # pages\n', ("/dev/1G",)),
        ('hugetlbfs_mount = [\n  "/dev/2M",\n  "/dev/1G"\n]\n', ("/dev/2M", "/dev/1G")),
        ('hugetlbfs_mount = ""\n', ()),
    ],
)
def test_the_mounts_of_the_configuration(text, mounts):
    assert parse_configured_mounts(text) == mounts


def test_the_settings_are_those_of_the_host_s_files(tmp_path):
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("Hugepagesize:       2048 kB\n")
    (proc / "self/mountinfo").write_text(
        "36 24 0:31 / /dev/hugepages rw,relatime shared:16 - hugetlbfs hugetlbfs rw,pagesize=2M\n"
        "65 44 0:39 / /mnt/a\\040b rw - hugetlbfs none rw,pagesize=1024M\n"
        "66 44 0:40 / /old rw - hugetlbfs none rw\n"
        "67 44 0:41 / /tmp rw - tmpfs none rw\n"
    )
    roots = Roots(procfs=proc, rootfs=tmp_path)
    mounts = {"/dev/hugepages": M2, "/mnt/a b": G1, "/old": M2}
    assert read_page_settings(roots) == PageSettings(M2, mounts)
    (tmp_path / "etc/libvirt").mkdir(parents=True)
    (tmp_path / "etc/libvirt/qemu.conf").write_text('hugetlbfs_mount = "/mnt/a b"\n')
    assert read_page_settings(roots) == PageSettings(M2, mounts, ("/mnt/a b",))


def test_settings_that_cannot_be_read_are_left_out(monkeypatch, tmp_path):
    def refuse(path, errors="strict"):
        raise HostDataError(str(path), "Permission denied")

    monkeypatch.setattr("nodetracker.virt.libvirt.pages.read_optional_text", refuse)
    assert read_page_settings(Roots(procfs=tmp_path, rootfs=tmp_path)) == PageSettings()
