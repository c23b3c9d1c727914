"""How long a conductor reads the body of a call, and for how long nothing else runs meanwhile.

The bodies are the worst that it parses itself, and what it leaves to a child process. Another
thread notes the longest time in which it did not run.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from nodetracker.accounting.validator import MAX_VALUES
from nodetracker.conductor.bodies import MAX_BODY_BYTES, BodyParser
from nodetracker.model.errors import RequestError
from tests.bench.databases import Row
from tests.builders import WORKLOAD

DATABASES = ()
OPTIONS = {"share": 100}
"""Per cent of the values that are accepted."""

_GUEST = {
    "uuid": WORKLOAD, "name": "guest", "kind": "instance",
    "vcpu_milli": 1500, "memory_mb": 2048, "disk_mb": 20480, "power_state": "running",
    "project_id": "project", "pins": {"cells": [], "devices": [], "unresolved": []},
}  # fmt: skip


def make_bodies(values: int) -> dict[str, bytes]:
    """Return bodies of nearly so many values, and larger ones."""
    guests = json.dumps([_GUEST] * (values // 25)).encode()
    lists = {
        "empty lists": b",".join([b"[]"] * (values // 2)),
        "nested lists": b",".join([b"[[[[]]]]"] * (values // 5)),
        "integers": b",".join([b"1234567"] * values),
        "floats": b",".join([b"1.25e3"] * values),
        "texts": b",".join([b'"text"'] * values),
        "objects": b",".join([b'{"a":1}'] * (values // 4)),
        "one object": b"{%s}" % b",".join(b'"k%x":1' % number for number in range(values // 2)),
        "guests": guests,
        "guests, four times": b",".join([guests] * 4),
        "empty lists, refused": b",".join([b"[]"] * (40 * values)),
    }
    return {name: b'{"arguments":{"changes":[%s]}}' % items for name, items in lists.items()}


class Ticker(threading.Thread):
    """Notes the longest time in which it did not run."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.is_over = False

    def run(self) -> None:
        last = time.monotonic()
        while not self.is_over:
            time.sleep(0.0005)
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            last = now


def measure(options: argparse.Namespace, _directory: Path) -> Iterator[tuple[str, Row]]:
    """Parse each body beside a thread that notes when it does not run."""
    for name, body in make_bodies((MAX_VALUES - 100) * options.share // 100).items():
        ticker = Ticker()
        ticker.start()
        began, cpu = time.monotonic(), time.process_time()
        outcome = "parsed"
        try:
            BodyParser(lambda: True).parse(body, False, MAX_BODY_BYTES)
        except RequestError:
            outcome = "refused"
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        ticker.is_over = True
        ticker.join()
        yield (
            "Bodies of calls",
            {
                "body": name,
                "MiB": round(len(body) / 2**20, 2),
                "outcome": outcome,
                "seconds": seconds,
                "CPU seconds": cpu,
                "longest without another thread, ms": 1000 * ticker.longest,
            },
        )
