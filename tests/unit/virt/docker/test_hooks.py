"""Test which containers get GPUs by hooks of Podman."""

import json

import pytest

from nodetracker.virt.docker.containers import Container
from nodetracker.virt.docker.guests import GpuHooks, read_gpu_hooks
from nodetracker.virt.host.roots import Roots

HOOK = "/usr/bin/nvidia-container-runtime-hook"
ANNOTATED = {"^gpu$": "^yes$"}


def read(tmp_path, **files):
    base = tmp_path / "usr/share/containers/oci/hooks.d"
    base.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (base / f"{name}.json").write_text(text)
    return read_gpu_hooks(Roots(tmp_path / "proc", tmp_path / "sys", tmp_path))


def hook(path=HOOK, **when):
    return json.dumps({"version": "1.0.0", "hook": {"path": path}, "when": when})


@pytest.mark.parametrize(
    ("text", "annotations", "expected"),
    [
        (hook(always=True), {}, True),
        (hook(always=False), {}, False),
        (hook("/usr/bin/other", always=True), {}, False),
        (hook(annotations=ANNOTATED), {"gpu": "yes"}, True),
        (hook(annotations=ANNOTATED), {"gpu": "no"}, False),
        ("{", {}, True),
    ],
    ids=["always", "never", "another hook", "annotated", "otherwise annotated", "unreadable"],
)
def test_a_hook_runs_when_it_says(tmp_path, text, annotations, expected):
    hooks = read(tmp_path, nvidia=text)
    container = Container("c", "n", "", "running", annotations=annotations)
    assert hooks.apply_to(container) is expected


def test_a_file_in_etc_replaces_that_of_the_package(tmp_path):
    etc = tmp_path / "etc/containers/oci/hooks.d"
    etc.mkdir(parents=True)
    (etc / "nvidia.json").write_text(hook(always=False))
    hooks = read(tmp_path, nvidia=hook(always=True))
    assert not hooks.apply_to(Container("c", "n", "", "running"))


def test_without_hooks_none_runs(tmp_path):
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    assert read_gpu_hooks(roots) == GpuHooks()
