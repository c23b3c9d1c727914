"""What commands print for requests without a host, on nodes of all kinds, compared with a file.

GOLDEN=write in the environment writes the file again.
"""

import dataclasses
import io
import json
import logging
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nodetracker.accounting.pci.columns import pci_columns
from nodetracker.accounting.usage import charge_of_guest, usage_columns
from nodetracker.cmd import manage
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.amounts import Amounts
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.service import COMPUTE_BINARY, AuditState, ServiceChange
from tests.builders import (
    SINCE,
    create,
    key_of,
    make_cell,
    make_device,
    make_empty_values,
    make_guest,
    make_incarnation,
    register,
    take_service,
)
from tests.functional.own_logs import without_messaging
from tests.programs import Programs

GOLDEN = Path(__file__).parent.parent / "golden" / "placing.txt"
GPU = {"address": "0000:c1:00.0", "resource_class": "PGPU", "guests": []}
GUEST = make_guest("guest", vcpu_milli=4000, memory_mb=4096, disk_mb=0)
NIC = '{"name": "nic", "vendor_id": "8086", "product_id": "154c"}'
SPECS: dict[str, dict[str, Any]] = {
    "large": {"vcpus": 16, "memory_mb": 32768, "local_gb": 400},
    "cells": {"pcpus": 2, "numa_topology": {"cells": [make_cell(0), make_cell(1)]}},
    "traits": {"traits": ["CUSTOM_T"]},
    "fpgas": {"inventory": {"CUSTOM_FPGA": {"total": 2, "reserved": 0, "allocation_ratio": 1.0}}},
    "gpu": {
        "gpus": [GPU],
        "inventory": {"PGPU": {"total": 1, "reserved": 0, "allocation_ratio": 1.0}},
    },
    "lost": {"facts": {"memory": FactEntry(FactState.UNKNOWN, "proc", SINCE, "gone")}},
}
CLOSED = ("disabled", "maintenance", "forced-down", "silent", "unreachable")


class Fleet:
    """Nodes of all kinds in the database of commands."""

    def __init__(self, programs: Programs, store: SqlStore) -> None:
        self.programs = programs
        self.store = store
        self.lines: list[str] = []
        for name, values in SPECS.items():
            self.add(name, **values)
        self.add("nics", devices=(make_device(),))
        self.add("guest", guests=(GUEST,))
        for name in CLOSED:
            self.add(name, beat=AuditState(by_conductor=name == "unreachable"), traits=["CUSTOM_C"])
        store.set_service("disabled", COMPUTE_BINARY, ServiceChange(disabled=True))
        store.set_service("maintenance", COMPUTE_BINARY, ServiceChange(maintenance=True))
        store.set_service("forced-down", COMPUTE_BINARY, ServiceChange(forced_down=True))
        with store.engine.begin() as connection:
            connection.execute(
                sa.update(tables.services)
                .where(tables.services.c.host.in_(["silent", "unreachable"]))
                .values(last_seen_up=SINCE)
            )
        agent = key_of(take_service(store, "ghost", make_incarnation("agent-ghost"), "other"))
        store.apply_changes(agent, [create(agent, "ghost-n", make_empty_values())], 60)

    def add(
        self,
        name: str,
        guests: Any = (),
        devices: Any = (),
        beat: AuditState = AuditState(),  # noqa: B008
        **values: Any,
    ) -> None:
        agent = register(self.store, name, f"agent-{name}")
        self.store.report_state(agent, 1, beat)
        charge = sum((charge_of_guest(guest, 0) for guest in guests), Amounts())
        node = make_empty_values(**pci_columns(devices), **values)
        used = usage_columns(charge, node.reserved, node.memory_mb, node.local_gb)
        node = dataclasses.replace(node, **used)
        self.store.apply_changes(agent, [create(agent, f"{name}-n", node, guests, devices)], 60)

    def run(self, *arguments: str, **body: Any) -> None:
        """Run a command and add what it prints; a request is named after its place."""
        shown = [*arguments]
        if body:
            number = str(uuid.UUID(int=len(self.lines) + 1))
            workload = {"uuid": body.pop("workload", number)}
            path = self.programs.directory / "request.json"
            path.write_text(json.dumps({"uuid": number, "workload": workload} | body))
            shown.append(json.dumps(body))
            arguments = (*arguments, str(path))
        output = io.StringIO()
        with without_messaging(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(cfg, "CONF", cfg.ConfigOpts())
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", output)
            patch.setattr(logging.getLogger(), "handlers", [])
            code = manage.main([f"--config-file={self.programs.path}", *arguments])
        text = re.sub(r"migration [0-9a-f-]{36}", "migration UUID", output.getvalue())
        self.lines.append(f"$ {' '.join(shown)}\n{text}exit code {code}\n")

    def list(self, *arguments: str) -> None:
        """List candidates."""
        options = [word for text in arguments for word in ("--resource", text)]
        self.run("candidate", "list", "-f", "csv", *options)

    def claim(self, *options: str, **body: Any) -> None:
        """Request a claim."""
        show = ["-f", "value", "-c", "host", "-c", "nodename"]
        show += ["-c", "fits", "-c", "reasons"] if "--dry-run" in options else ["-c", "state"]
        self.run("claim", "create", *options, *show, **body)

    def move(self, source: str, kind: str, **body: Any) -> None:
        """Request a move."""
        show = ["-f", "value", "-c", "source_node", "-c", "dest_node", "-c", "status"]
        claim = next(claim for claim in self.store.list_claims(source) if claim.is_active)
        move = {"type": kind, "source_claim": claim.uuid}
        self.run("migration", "create", *show, workload=claim.workload.uuid, migration=move, **body)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    programs = Programs(
        tmp_path, extra="report_interval = 10\nservice_down_time = 9999\n[pci]\nalias = " + NIC
    )
    programs.make_schema()
    store = open_store(DatabaseSettings(programs.connection))
    yield Fleet(programs, store)
    store.close()


def list_candidates(fleet: Fleet) -> None:
    fleet.list()
    fleet.list("VCPU=9", "MEMORY_MB=9000")
    fleet.list("VCPU=99")
    fleet.list("PGPU=1")
    fleet.list("CUSTOM_FPGA=3")
    fleet.run("candidate", "list", "-f", "csv", "--trait", "CUSTOM_T")
    fleet.run("candidate", "list", "-f", "csv", "--trait", "CUSTOM_C")
    fleet.run("candidate", "list", "-f", "csv", "--limit", "2")


def claim(fleet: Fleet) -> None:
    on_cells = {"resources": {"PCPU": 1}, "numa": {"cpu_policy": "dedicated"}}
    two_cells = {"resources": {"PCPU": 2}, "numa": {"cpu_policy": "dedicated", "nodes": 2}}
    nic = {"resources": {"VCPU": 1}, "pci_requests": [{"alias": "nic"}]}
    fleet.claim("--dry-run", resources={"VCPU": 9})
    fleet.claim(resources={"VCPU": 9})
    for body in (on_cells, two_cells, nic, nic):
        fleet.claim(**body)
    fleet.claim(resources={"VCPU": 1}, pci_requests=[{"alias": "unknown"}])
    for resources in ({"PGPU": 1}, {"PGPU": 1}, {"CUSTOM_FPGA": 2}, {"CUSTOM_FPGA": 1}):
        fleet.claim(resources=resources)
    for trait in ("CUSTOM_T", "CUSTOM_C"):
        fleet.claim(resources={"VCPU": 1}, required_traits=[trait])
        fleet.claim("--dry-run", resources={"VCPU": 1}, required_traits=[trait, "CUSTOM_U"])
    fleet.claim("--node", "guest-n", resources={"VCPU": 5})
    fleet.claim("--node", "guest-n", workload=GUEST.uuid, resources={"VCPU": 9})
    fleet.claim("--node", "guest-n", workload=GUEST.uuid, resources={"VCPU": 8})
    fleet.claim("--node", "nobody", resources={"VCPU": 1})
    for name in (*CLOSED, "ghost", "lost"):
        fleet.claim("--node", f"{name}-n", resources={"MEMORY_MB": 1})
    limits = {"VCPU": 17}
    fleet.claim(resources={"VCPU": 17}, limits=limits, required_traits=["CUSTOM_T"])


def move(fleet: Fleet) -> None:
    dedicated = {"cpu_policy": "dedicated"}
    fleet.move("large", "migration", resources={"VCPU": 9})
    fleet.move("large", "migration", resources={"VCPU": 7, "MEMORY_MB": 9000})
    fleet.move("large", "evacuation", resources={"VCPU": 1}, required_traits=["CUSTOM_C"])
    fleet.move("large", "rebuild", resources={"VCPU": 8})
    fleet.move("large", "rebuild", resources={"VCPU": 7})
    fleet.move("large", "migration", resources={"VCPU": 1}, required_traits=["CUSTOM_T"])
    fleet.move("cells", "resize", resources={"PCPU": 1}, numa=dedicated)
    fleet.move("gpu", "migration", resources={"PGPU": 1})
    fleet.move("nics", "migration", resources={"VCPU": 1}, pci_requests=[{"alias": "nic"}])
    fleet.move("traits", "live-migration", resources={"VCPU": 1}, required_traits=["CUSTOM_T"])


def test_requests_without_a_host_print_what_they_always_did(fleet: Fleet) -> None:
    list_candidates(fleet)
    claim(fleet)
    move(fleet)
    fleet.add("untracked", tracks_resources=False)
    fleet.list("VCPU=99")
    fleet.claim(resources={"VCPU": 99})
    text = "\n".join(fleet.lines)
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
