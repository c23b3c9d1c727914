"""One claimer of a storm, as a process of its own.

It claims, confirms, renews and aborts at random on one node, and writes each
request before it is sent and each answer once it is there, a line of JSON
each, so that whoever kills it knows what it was answered. `StormProcess` is
the tests' side of it.
"""

import argparse
import json
import os
import random
import sys
import uuid
from pathlib import Path
from typing import Any, TextIO

import sqlalchemy as sa
from oslo_config import cfg

import nodetracker.cmd  # noqa: F401 - keeps eventlet out
from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.bootstrap.options.opts import register_options
from nodetracker.bootstrap.stores import build_store
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import tables
from nodetracker.db.store import SqlStore, open_store
from nodetracker.model.errors import ClaimRefusedError
from nodetracker.ports import AdmissionPolicy, Store
from tests.fork_server import get_server
from tests.programs import wait_until

ADMISSION_POLICY = AdmissionPolicy(service_down_time=3600, claim_timeout=3600)


class StormProcess:
    """A claimer that waits for `begin`, and what it wrote.

    Args:
        log: file of its lines; its errors are in one with "-errors" at the end.
        arguments: those of `main`.
    """

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._errors = log.with_name(f"{log.name}-errors")
        source, self._gate = os.pipe()
        with self._log.open("wb") as output, self._errors.open("wb") as errors:
            self.process = get_server().start(
                [__name__, *arguments], output, errors, os.environ, source=source
            )
        os.close(source)

    def wait_until_ready(self) -> None:
        """Wait until it is connected."""
        wait_until(lambda: b"ready" in self._log.read_bytes() or self.process.poll() is not None)
        assert self.process.poll() is None, self._errors.read_text()

    def begin(self) -> None:
        """Let it claim."""
        os.close(self._gate)

    def wait(self, timeout: float) -> None:
        """Wait until it has ended by itself."""
        assert self.process.wait(timeout) == 0, self._errors.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def told(self) -> list[dict[str, Any]]:
        """Return the lines that it wrote as a whole."""
        lines = self._log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


def wait_for_killed(store: SqlStore) -> None:
    """Wait until all that killed processes have sent is written, which locks nodes, or undone.

    A server goes on with a COMMIT whose client is gone.
    """
    with store.engine.connect() as connection:
        connection.execute(sa.select(tables.compute_nodes.c.id).with_for_update())
        connection.rollback()


class Claimer:
    """Claims on one node and tells what it was answered."""

    def __init__(self, store: Store, hosts: list[str], seed: int, told: TextIO) -> None:
        self._store = store
        self._hosts = hosts
        self._random = random.Random(seed)
        self._told = told
        self._held: list[str] = []

    def claim(self, body: dict[str, Any]) -> None:
        """Ask for one claim."""
        self._notify("asked", body["uuid"], body=body)
        host = self._random.choice(self._hosts) if len(self._hosts) > 1 else self._hosts[0]
        try:
            claim = self._store.create_claim(
                parse_claim_request(body), host, "node-1", ADMISSION_POLICY
            )
        except ClaimRefusedError as error:
            self._notify("refused", body["uuid"], reasons=error.reasons)
            return
        self._held.append(claim.uuid)
        self._notify("granted", claim.uuid, state=claim.state)

    def go_on(self) -> None:
        """Do one more thing: mostly claim and abort, so that the node is nearly full."""
        choice = self._random.random()
        if not self._held or choice < 0.5:
            self.claim(self._make_body())
            return
        name = self._random.choice(self._held)
        if choice < 0.9:
            self._notify("aborting", name)
            self._store.abort_claim(name)
            self._held.remove(name)
            self._notify("aborted", name)
        elif choice < 0.97:
            self._store.confirm_claim(name)
            self._notify("confirmed", name)
        else:
            self._store.renew_claim(name, ADMISSION_POLICY)
            self._notify("renewed", name)

    def _make_body(self) -> dict[str, Any]:
        is_container = self._random.random() < 0.5
        milli = self._random.randrange(3000)
        return {
            "uuid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "workload": {
                "uuid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                "kind": "container" if is_container else "instance",
            },
            "resources": {
                "VCPU": milli / 1000 if is_container else milli // 1000,
                "MEMORY_MB": self._random.randrange(4096),
            },
            "disk": {"root_gb": self._random.randrange(20), "swap_mb": 512},
        }

    def _notify(self, what: str, name: str, **more: Any) -> None:
        self._told.write(json.dumps({"what": what, "uuid": name, **more}) + "\n")
        self._told.flush()


def main() -> None:
    """Storm until killed, or for as many steps as asked."""
    parser = argparse.ArgumentParser(description="Claim at random on one node.")
    parser.add_argument("connection")
    parser.add_argument("--host", default="host-1", help="one, or several with commas")
    parser.add_argument(
        "--by-conductor", action="store_true", help="the connection is a configuration file"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="end after so many; else go on until killed")
    parser.add_argument(
        "--same", type=int, metavar="N", help="only N claims of 1 CPU and 100 MiB, at once"
    )
    arguments = parser.parse_args()
    if arguments.by_conductor:
        register_options(cfg.CONF)
        cfg.CONF([f"--config-file={arguments.connection}"])
        store = build_store(cfg.CONF)
    else:
        store = open_store(DatabaseSettings(arguments.connection))
    store.now()  # connected, before the start is given
    claimer = Claimer(store, arguments.host.split(","), arguments.seed, sys.stdout)
    print(json.dumps({"what": "ready", "uuid": ""}), flush=True)
    sys.stdin.readline()
    if arguments.same is not None:
        for _ in range(arguments.same):
            body = {
                "uuid": str(uuid.uuid4()),
                "workload": {"uuid": str(uuid.uuid4())},
                "resources": {"VCPU": 1, "MEMORY_MB": 100},
            }
            claimer.claim(body)
    steps = arguments.steps
    while arguments.same is None and steps != 0:
        claimer.go_on()
        steps = None if steps is None else steps - 1
    store.close()
