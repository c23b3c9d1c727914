"""Both brokers' URLs are judged before anything is connected, and never shown."""

import pytest
from oslo_config import cfg

from nodetracker.errors import ConfigError
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
