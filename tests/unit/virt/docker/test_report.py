import pytest

from nodetracker.model.errors import DriverUnavailableError
from nodetracker.virt.docker.report import ReportReader


class SlowClient:
    """An engine whose report takes longer than its client waits."""

    source = "sock"

    def __init__(self):
        self.now = 0.0
        self.seconds = 10.0
        self.calls = 0

    def info(self):
        self.calls += 1
        self.now += self.seconds
        if self.seconds:
            raise DriverUnavailableError("sock", "no answer within 10 s")
        return {"Name": "host-1"}

    def version(self):
        return {"ApiVersion": "1.43"}


@pytest.fixture
def client():
    return SlowClient()


@pytest.fixture
def reader(client):
    return ReportReader(client, lambda: client.now)


def fails(reader):
    with pytest.raises(DriverUnavailableError, match="no answer within 10 s"):
        reader.read(has_live_events=True)
    return True


def test_a_report_that_timed_out_is_not_requested_again_during_a_pause(client, reader):
    assert fails(reader)
    client.now += 39
    assert fails(reader)
    assert client.calls == 1
    client.now += 1
    assert fails(reader)
    assert client.calls == 2


def test_a_restart_of_the_engine_ends_the_pause(client, reader):
    assert fails(reader)
    client.seconds = 0.0
    reader.expire()
    assert fails(reader)
    reader.end_pause()
    assert reader.read(has_live_events=True).daemon_name == "host-1"


def test_a_refused_connection_causes_no_pause(client, reader):
    def refuse():
        raise DriverUnavailableError("sock", "Connection refused")

    answer, client.info = client.info, refuse
    with pytest.raises(DriverUnavailableError, match="Connection refused"):
        reader.read(has_live_events=True)
    client.seconds, client.info = 0.0, answer
    assert reader.read(has_live_events=True).daemon_name == "host-1"
