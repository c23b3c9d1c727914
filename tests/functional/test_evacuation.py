"""A host with guests of libvirt, Docker and the fake driver is emptied by its plan."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.functional.docker_agent import create
from tests.functional.servers.engines import Dockerd
from tests.functional.servers.libvirtd import Libvirtd, domain_xml
from tests.oracle import check_usage
from tests.programs import Programs, wait_until

VM, CONTAINER, FAKE = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2, 3))
KINDS = {VM: "instance", CONTAINER: "container", FAKE: "instance"}
FAKE_GUEST = {"uuid": FAKE, "name": "fake-1", "vcpus": 1, "memory_mb": 64, "disk_gb": 0}


class EngineHost:
    """A host with a libvirtd, a dockerd and an inventory file of its own."""

    def __init__(self, directory: Path, name: str, connection: str) -> None:
        self.name = name
        self.libvirtd, self.dockerd = Libvirtd(), Dockerd()
        self.client = self.dockerd.client()
        extra = f"[libvirt]\nconnection_uris = {self.libvirtd.uri}\n"
        self.programs = Programs(
            directory / name,
            connection,
            name,
            extra=f"{extra}[docker]\nbase_url = {self.dockerd.url}",
            driver="libvirt,docker,fake",
            update_resources_interval=2,
        )
        self._write()

    def start_guests(self) -> None:
        self.libvirtd.define(domain_xml("vm-1", VM))
        self.libvirtd.virsh("start", "vm-1")
        self.client.start(create(self.client, f"zun-{CONTAINER}"))
        self._write(FAKE_GUEST)

    def end_guests(self) -> None:
        self.libvirtd.virsh("destroy", "vm-1")
        self.libvirtd.virsh("undefine", "vm-1")
        self.client.remove_container(f"zun-{CONTAINER}", force=True)
        self._write()

    def _write(self, *guests: Any) -> None:
        node = {"nodename": "n", "vcpus": 64, "memory_mb": 65536, "disk_gb": 500}
        document = {"nodes": [node | {"guests": list(guests)}]}
        self.programs.inventory.write_text(yaml.safe_dump(document))

    def remove(self) -> None:
        self.client.close()
        self.dockerd.remove()
        self.libvirtd.remove()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[EngineHost]]:
    with contextlib.ExitStack() as stack:
        made = []
        for name in ("source", "other"):
            made.append(EngineHost(tmp_path, name, f"sqlite:///{tmp_path}/db.sqlite"))
            stack.callback(made[-1].remove)
        yield made


def claim(programs: Programs, workload: str) -> str:
    path = programs.directory / "claim.json"
    resources = {"VCPU": 1, "MEMORY_MB": 64}
    kind = KINDS[workload]
    path.write_text(
        json.dumps({"workload": {"uuid": workload, "kind": kind}, "resources": resources})
    )
    return str(programs.ask("claim", "create", str(path), "--host", programs.host)["uuid"])


def test_a_host_is_emptied_by_its_plan(hosts: list[EngineHost], tmp_path: Path) -> None:
    source, other = hosts
    programs = source.programs
    programs.make_schema()
    with contextlib.ExitStack() as stack:
        for host in hosts:
            stack.enter_context(host.programs.start()).wait_for("is ready")
        claims = [claim(programs, workload) for workload in KINDS]

        def are_confirmed(uuids: list[str]) -> bool:
            states = [programs.ask("claim", "show", uuid)["state"] for uuid in uuids]
            return set(states) == {"confirmed"}

        source.start_guests()
        wait_until(lambda: are_confirmed(claims))
        path = tmp_path / "plan.json"
        assert programs.manage("host", "out", "source", "--reason", "new disk").returncode == 0
        planned = programs.ask("host", "plan", "source", "--file", str(path))
        assert {row["workload_uuid"]: row["to_host"] for row in planned} == dict.fromkeys(
            KINDS, "other"
        )
        moves = programs.ask("migration", "create", str(path))["migrations"]
        assert [move["status"] for move in moves] == ["accepted"] * 3
        source.end_guests()
        other.start_guests()
        wait_until(lambda: are_confirmed([move["dest_claim"] for move in moves]))
        for move in moves:
            ended = programs.ask("migration", "confirm", move["uuid"])
            assert ended["status"] == "confirmed"
        wait_until(lambda: programs.ask("workload", "list", "--host", "source") == [])
        assert len(programs.ask("workload", "list", "--host", "other")) == 3
        assert programs.ask("host", "plan", "source") == []
    with contextlib.closing(open_store(DatabaseSettings(programs.connection))) as store:
        for host in hosts:
            check_usage(store, host.name)
