"""A hypervisor with a remote URI: over TLS and over a substitute of ssh, to a real libvirtd."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from nodetracker.model.fact import FactState
from nodetracker.model.guest import PowerState
from nodetracker.model.node import NodeRecord
from tests.functional.servers.libvirtd import Libvirtd, domain_xml
from tests.functional.servers.tls import Authority
from tests.programs import Programs, wait_until

UUID = "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b01"
URIS: dict[str, Callable[[Libvirtd], str]] = {
    "tls": lambda libvirtd: libvirtd.tls_uri,
    "ssh": Libvirtd.ssh_uri,
}


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libvirtd]:
    """A libvirtd with one domain and a pool for its disks."""
    made = Libvirtd(Authority(tmp_path_factory.mktemp("authority")))
    pool = made.directory / "pool"
    pool.mkdir()
    made.virsh("pool-create-as", "default", "dir", "--target", str(pool))
    made.define(domain_xml("vm-1", UUID, vcpus=2, memory_mb=64))
    yield made
    made.remove()


@pytest.mark.parametrize("kind", URIS)
def test_rows_follow_and_outlive_its_connection(
    libvirtd: Libvirtd, tmp_path: Path, kind: str
) -> None:
    uri = URIS[kind](libvirtd)
    programs = Programs(
        tmp_path / "agent",
        driver="libvirt",
        extra=f"[libvirt]\nconnection_uris = far={uri}\nkeepalive_interval = 1\n",
        update_resources_interval=2,
    )
    programs.make_schema()
    store = open_store(DatabaseSettings(programs.connection))

    def node() -> NodeRecord:
        (record,) = store.load_nodes("host-1")
        return record

    with programs.start() as agent:
        agent.wait_for("is ready")
        wait_until(lambda: bool(store.load_nodes("host-1")))
        assert node().nodename == "far"
        assert node().values.hypervisor_type == "QEMU"
        assert (node().values.vcpus_used, node().values.memory_mb_used) == (2, 512 + 64)
        assert node().values.local_gb > 0
        libvirtd.virsh("start", "vm-1")
        wait_until(lambda: node().guests[UUID].power_state is PowerState.RUNNING)
        libvirtd.virsh("destroy", "vm-1")
        wait_until(lambda: node().guests[UUID].power_state is PowerState.SHUTDOWN)
        libvirtd.freeze()
        try:
            wait_until(lambda: node().values.facts["guests"].state is FactState.HELD)
            assert node().values.vcpus_used == 2
        finally:
            libvirtd.thaw()
        wait_until(lambda: node().values.facts["guests"].state is FactState.FRESH)
        assert "Traceback" not in agent.output()
        assert agent.stop(signal.SIGTERM) == 0
    store.close()
