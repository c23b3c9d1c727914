"""One module a driver: how the contract suite makes it, breaks its source and mends it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nodetracker.ports import Driver


@dataclass
class DriverCase:
    """One driver under the suite.

    Attributes:
        driver: made, and its host initialised.
        break_fact: makes one fact of every node unreadable.
        broken_fact: that fact's name.
        cut: takes the whole source away, so that nothing can be read.
        mend: undoes both.
        hang: makes one reading hang until the event is set, None when the
            driver's source cannot be made to.
        close: lets go of the source, after the driver.
        change: makes a guest of one node another, None when the driver tells
            no events.
    """

    driver: Driver
    break_fact: Callable[[], None]
    broken_fact: str
    cut: Callable[[], None]
    mend: Callable[[], None]
    hang: Callable[[threading.Event], None] | None = None
    change: Callable[[], None] | None = None
    close: Callable[[], None] = lambda: None
