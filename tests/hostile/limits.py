"""Bounds of what one piece of hostile input may cost."""

import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = 600 * 2**20
SECONDS = 5.0


@contextmanager
def limited(seconds: float = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Limit the memory that the process may take beside what it has, and its CPU time.

    Not its addresses: glibc reserves 64 MiB of them for each thread that allocates.
    """
    has = re.search(r"^VmData:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert has is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(has[1]) * 1024 + memory, hard))
    started_at = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    used = time.process_time() - started_at
    assert used < seconds, f"{used:.1f} s of CPU time"
