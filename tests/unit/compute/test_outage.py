import logging

from nodetracker.compute.outage import OutageLog
from nodetracker.errors import StoreUnavailableError


def test_an_outage_is_one_line_at_its_begin_and_one_at_its_end(caplog):
    caplog.set_level(logging.INFO)
    seconds = iter([100.0, 142.0])
    outage = OutageLog("The database", logging.getLogger("test"), lambda: next(seconds))
    outage.succeeded()
    for number in range(3):
        outage.failed(StoreUnavailableError(f"refused {number}"))
        assert outage.is_out
    for _ in range(3):
        outage.succeeded()
        assert not outage.is_out
    assert caplog.messages == ["The database: refused 0", "The database is back after 42 s"]
