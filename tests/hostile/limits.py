"""Bounds of what one piece of hostile input may cost."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = 600 * 2**20
SECONDS = 5.0


@contextmanager
def limited(seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Limit the memory that the process may take beside what it has, and its CPU time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, hard))
    started_at = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    used = time.process_time() - started_at
    assert used < seconds, f"{used:.1f} s of CPU time"
