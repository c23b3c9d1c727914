"""Cases of the drivers' contract suite, one module per driver."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nodetracker.ports import Driver


@dataclass
class DriverCase:
    """One driver and functions that break and repair its source.

    Attributes:
        driver: the driver under test.
        break_fact: makes one fact of every node unreadable.
        broken_fact: the name of that fact.
        cut: removes the whole source, so that nothing can be read.
        mend: undoes both.
        hang: makes one reading hang until the event is set, None if the
            driver's source cannot hang.
        close: releases the source, after the driver.
        change: changes a guest of one node, None if the driver does not
            support events.
    """

    driver: Driver
    break_fact: Callable[[], None]
    broken_fact: str
    cut: Callable[[], None]
    mend: Callable[[], None]
    hang: Callable[[threading.Event], None] | None = None
    change: Callable[[], None] | None = None
    close: Callable[[], None] = lambda: None
