"""Test that device nodes and CDI names are read with the functions that they are of."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.device_nodes import parse_cdi, read_device_nodes
from nodetracker.virt.host.roots import Roots
from tests.hostile.limits import limited
from tests.hostile.values import YAML_TEXTS


def test_nodes_are_read_from_the_kernel_and_the_specifications(tmp_path):
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    texts = {
        "proc/driver/nvidia/gpus/0000:5e:00.0/information": (
            "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n"
        ),
        "etc/cdi/nvidia.yaml": (
            "kind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n"
            "devices:\n- name: '0'\n  containerEdits:\n    deviceNodes:\n"
            "    - {path: /dev/nvidia3}\n"
        ),
    }
    texts["etc/cdi/broken.yaml"] = "kind: [\n"
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    function = roots.sysfs / "devices/pci0000:00/0000:c1:00.0"
    function.mkdir(parents=True)
    node = roots.sysfs / "class/drm/renderD128"
    node.mkdir(parents=True)
    (node / "device").symlink_to(function)
    nodes = read_device_nodes(roots)
    assert nodes.nvidia == {3: ("0000:5e:00.0", "GPU-1")}
    assert nodes.drm == {"renderD128": "0000:c1:00.0"}
    assert nodes.cdi == {"nvidia.com/gpu=0": ("/dev/nvidiactl", "/dev/nvidia3")}
    assert nodes.problems.keys() == {"cdi"}
    assert "broken.yaml" in nodes.problems["cdi"]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"devices": []}', '{"kind": "a/b", "devices": {}}',
        '{"kind": "a/b", "devices": [1]}', '{"kind": "a/b", "containerEdits": 5}',
        '{"kind": "a/b", "containerEdits": {"deviceNodes": "/dev/a"}}',
        '{"kind": "a/b", "containerEdits": {"deviceNodes": [{"path": 5}]}}',
        '{"kind": "a/b", "containerEdits": {"deviceNodes": [{"path": "a/b=c"}]}}',
        '{"kind": "a/b", "kind": "c/d"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_specification_is_an_error(text):
    for name in ("a.json", "a.yaml"):
        with pytest.raises(HostDataError, match="not a CDI specification"):
            parse_cdi(text, name)


@pytest.mark.parametrize("text", YAML_TEXTS.values(), ids=YAML_TEXTS)
def test_a_hostile_specification_is_named_within_a_second(text):
    with limited(seconds=1), pytest.raises(HostDataError, match="not a CDI specification"):
        parse_cdi(text, "a.yaml")
