"""One agent of several hypervisors that libvirt simulates, each a separate node."""

from pathlib import Path

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.libvirt_nodes import domain, pci_device, require_binding, write_node
from tests.programs import Programs

UUID = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b01"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    require_binding()
    return Programs(tmp_path / "agent")


def configure(programs: Programs, *uris: str, extra: str = "") -> None:
    programs.configure(
        driver="libvirt",
        extra=f"[libvirt]\nconnection_uris = {','.join(uris)}\n{extra}",
        instances_path=programs.directory,
    )
    programs.make_schema()


def test_each_hypervisor_is_a_node_with_its_own_facts(programs: Programs, tmp_path: Path) -> None:
    small = write_node(tmp_path / "small.xml", cores=2, memory_mb=2048)
    large = write_node(
        tmp_path / "large.xml",
        sockets=2,
        cores=16,
        memory_mb=65536,
        more=pci_device("0000:81:00.0", 0)
        + pci_device("0000:82:00.0", 1)
        + domain("web", UUID, 4, 4096),
    )
    configure(
        programs,
        f"small={small}",
        f"large={large}",
        "default=test:///default",
        extra='[pci]\ndevice_spec = {"vendor_id": "8086", "product_id": "10fb"}\n',
    )
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    store = open_store(DatabaseSettings(programs.connection))
    nodes = {record.nodename: record for record in store.load_nodes("host-1")}
    store.close()
    assert {name: (n.values.vcpus, n.values.memory_mb) for name, n in nodes.items()} == {
        "small": (2, 2048),
        "large": (32, 65536),
        "default": (16, 3072),
    }
    assert {name: n.values.vcpus_used for name, n in nodes.items()} == {
        "small": 0, "large": 4, "default": 2,
    }  # fmt: skip
    assert nodes["large"].guests[UUID].name == "web"
    assert {d.address: d.numa_node for d in nodes["large"].devices.values()} == {
        "0000:81:00.0": 0,
        "0000:82:00.0": 1,
    }
    assert all(d.is_available for d in nodes["large"].devices.values())
    assert len(nodes["default"].values.numa_topology["cells"]) == 2
    assert len({record.uuid for record in nodes.values()}) == 3


def test_an_error_names_both_hypervisors_of_one_name(programs: Programs, tmp_path: Path) -> None:
    first, second = write_node(tmp_path / "a.xml"), write_node(tmp_path / "b.xml")
    configure(programs, first, second)
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 78
    assert first in done.stderr
    assert second in done.stderr
    assert "name=URI" in done.stderr


@pytest.mark.parametrize(
    ("uris", "message"),
    [
        (["n=test:///default", "n=test:///other.xml"], "duplicate name 'n'"),
        (["test:///default", "test:///default"], "duplicate URI"),
        (["default"], "expected URI or name=URI"),
    ],
)
def test_invalid_uris_end_the_agent(programs: Programs, uris: list[str], message: str) -> None:
    configure(programs, *uris)
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 78
    assert "connection_uris" in done.stderr
    assert message in done.stderr


def test_a_dead_hypervisor_beside_a_live_one(programs: Programs, tmp_path: Path) -> None:
    live = write_node(tmp_path / "live.xml")
    configure(programs, f"live={live}", "dead=qemu:///system?socket=/nowhere/sock")
    done = programs.run("nodetracker-compute", "--once")
    assert done.returncode == 1
    assert "live: vcpus 0/4" in done.stdout
    assert "/nowhere/sock" in done.stdout


def test_without_the_binding_the_agent_names_package_and_extra(
    programs: Programs, tmp_path: Path
) -> None:
    configure(programs, "test:///default")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "libvirt.py").write_text("raise ImportError('no binding')\n")
    done = programs.run("nodetracker-compute", "--once", PYTHONPATH=str(tmp_path / "none"))
    assert done.returncode == 78
    assert "libvirt-python" in done.stderr
    assert "nodetracker[libvirt]" in done.stderr
