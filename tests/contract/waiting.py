"""Wait for statements that wait for others' locks."""

from concurrent.futures import Future
from typing import Any

import pytest

WAIT_SECONDS = 0.4


def assert_waits(future: "Future[Any]") -> None:
    with pytest.raises(TimeoutError):
        future.result(timeout=WAIT_SECONDS)
