"""URLs of brokers are judged before anything is connected, and never shown; lines of an outage."""

import logging
from types import SimpleNamespace

import pytest
from oslo_config import cfg

from nodetracker.model.errors import ConfigError
from nodetracker.rpc.transport import NOTIFICATIONS_GROUP, Transport, import_library

GOOD = "rabbit://u:secret@127.0.0.1:1/"


@pytest.fixture
def make():
    def make(url, notifications_url=None, driver=("messagingv2",)):
        conf = cfg.ConfigOpts()
        library = import_library()
        conf.register_opts(library.notify.notifier._notifier_opts, group=NOTIFICATIONS_GROUP)
        conf([], default_config_files=[])
        conf.set_override("driver", list(driver), NOTIFICATIONS_GROUP)
        conf.set_override("transport_url", notifications_url, NOTIFICATIONS_GROUP)
        return Transport(conf, url)

    return make


BAD = [
    ("rabbit://u:s3/cret@h:1/", "invalid URL (ValueError)"),
    ("nonsense", "invalid URL (InvalidTransportURL)"),
    ("rabbit://", "no broker in the URL"),
    ("nosuch://u:s3cret@h/", "unknown driver 'nosuch'"),
]


@pytest.mark.parametrize(("url", "text"), BAD)
def test_a_url_of_calls_that_cannot_be_used_is_refused(make, url, text):
    with pytest.raises(ConfigError) as raised:
        make(url)
    assert str(raised.value).startswith(f"[DEFAULT] transport_url: {text}")
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(("url", "text"), BAD)
def test_a_url_of_notifications_that_cannot_be_used_is_refused(make, url, text):
    with pytest.raises(ConfigError) as raised:
        make(GOOD, url)
    assert str(raised.value).startswith(f"[{NOTIFICATIONS_GROUP}] transport_url: {text}")
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("driver", [(), ("noop",), ("",)])
def test_where_none_are_wanted_there_is_no_way_to_send_them(make, driver):
    assert make(GOOD, "nonsense", driver).notifications is None


def test_they_go_to_a_broker_of_their_own_or_to_that_of_the_calls(make):
    for url, host in ((None, "127.0.0.1"), ("rabbit://other:2/", "other")):
        assert make(GOOD, url).notifications._driver._url.hosts[0].hostname == host


@pytest.fixture
def driver():
    import_library()
    from oslo_messaging._drivers import impl_rabbit

    return impl_rabbit


@pytest.fixture
def connect(driver, monkeypatch):
    """Attempts to connect to brokers, each with its outcome, as the library makes them."""

    def connect(hosts, attempts):
        alternatives = [f"amqp://u:p@{host}//" for host in hosts]
        for host, error in attempts:
            transport = driver.kombu.transport.get_transport_cls("amqp")(
                SimpleNamespace(
                    host=host, hostname="h", userid="u", password="p", login_method="PLAIN",
                    virtual_host="/", insist=False, ssl=None, connect_timeout=1, heartbeat=0,
                    port=5672, transport_options=None,
                    alt=alternatives if len(hosts) > 1 else [],
                )
            )  # fmt: skip

            class Connection:
                def __init__(self, error=error, **_):
                    self.error = error

                def connect(self):
                    if self.error is not None:
                        getattr(self.error, "meanwhile", list)()
                        raise self.error

            monkeypatch.setattr(transport, "Connection", Connection)
            if error is None:
                transport.establish_connection()
            else:
                with pytest.raises(OSError, match=str(error)):
                    transport.establish_connection()

    return connect


REFUSED, LATE = OSError("refused"), OSError("timed out")


def test_a_broker_that_is_away_is_logged_once_when_it_goes_and_once_when_it_is_back(
    connect, caplog
):
    caplog.set_level(logging.INFO)
    host = "h:5672"
    outcomes = (None, REFUSED, LATE, None, None)
    connect([host], [(host, outcome) for outcome in outcomes])
    assert caplog.messages == [
        "The message broker at h:5672: refused",
        "The message broker at h:5672 is back after 0 s",
    ]


def test_an_attempt_that_began_before_another_succeeded_is_no_outage(connect, caplog):
    """As of threads that connect to a broker while it starts."""
    caplog.set_level(logging.INFO)
    host, slow = "i:5672", OSError("timed out")
    slow.meanwhile = lambda: connect([host], [(host, None)])
    connect([host], [(host, REFUSED), (host, slow), (host, None)])
    assert caplog.messages == [
        "The message broker at i:5672: refused",
        "The message broker at i:5672 is back after 0 s",
    ]


def test_a_cluster_is_away_once_none_of_its_brokers_is_reached(connect, caplog):
    caplog.set_level(logging.INFO)
    hosts = ["a:1", "b:2", "c:3"]
    moved = [("a:1", REFUSED), ("b:2", REFUSED), ("c:3", None)]
    connect(hosts, [*moved, *moved])
    assert caplog.messages == []
    connect(hosts, [("c:3", REFUSED), ("c:3", REFUSED), ("a:1", REFUSED), ("b:2", LATE)])
    connect(hosts[::-1], [("c:3", REFUSED), ("b:2", None), ("b:2", None)])
    assert caplog.messages == [
        "The message broker cluster at a:1, b:2, c:3: timed out",
        "The message broker cluster at a:1, b:2, c:3 is back after 0 s",
    ]


class TestLinesOfTheDriver:
    """Lines of the library's driver at each attempt to reach the broker."""

    def log(self, driver, level, line, *args):
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        library = driver.LOG.logger
        library.addHandler(handler)
        try:
            driver.LOG.log(level, line, *args)
        finally:
            library.removeHandler(handler)
        return [record.levelname for record in records]

    @pytest.mark.parametrize(
        ("line", "args"),
        [
            (
                "[%(connection_id)s] AMQP server on %(hostname)s:%(port)s is unreachable: "
                "%(err_str)s. Trying again in %(sleep_time)d seconds.",
                {"connection_id": "c", "hostname": "h", "port": 1, "sleep_time": 1,
                 "err_str": ConnectionRefusedError("refused")},
            ),
            ("Connection failed: %s (retrying in %s seconds)", ("refused", 1)),
            ("Unexpected error during heartbeat thread processing, retrying...", ()),
            ("Unable to connect to AMQP server on h:1 after 0 tries: refused", ()),
            (
                "Failed to publish message to topic '%(topic)s': %(err_str)s",
                {"topic": "t", "err_str": OSError("refused")},
            ),
            ("Failed to consume message from queue: %s", (OSError("refused"),)),
        ],
    )  # fmt: skip
    def test_are_for_debugging(self, driver, caplog, line, args):
        arguments = (args,) if isinstance(args, dict) else args
        caplog.set_level(logging.WARNING, driver.LOG.name)
        assert self.log(driver, logging.ERROR, line, *arguments) == []
        caplog.set_level(logging.DEBUG, driver.LOG.name)
        assert self.log(driver, logging.ERROR, line, *arguments) == ["DEBUG"]

    @pytest.mark.parametrize("text", ["The broker has blocked the connection: memory", "other"])
    def test_about_something_else_stay(self, driver, text):
        assert self.log(driver, logging.ERROR, text) == ["ERROR"]

    def test_about_a_queue_that_the_broker_refuses_stay(self, driver):
        line = "[%(connection_id)s] AMQP server on %(hostname)s is unreachable: %(err_str)s."
        locked = driver.amqp_ex.ResourceLocked("in use")
        values = {"connection_id": "c", "hostname": "h", "err_str": locked}
        assert self.log(driver, logging.ERROR, line, values) == ["ERROR"]
