"""Decoding of the engine's event stream."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.audit import EventKind
from nodetracker.model.errors import HostDataError
from nodetracker.virt.docker import events
from nodetracker.virt.docker.events import MAX_EVENT_BYTES, EventDecoder, parse_event

START = {
    "Type": "container",
    "Action": "start",
    "Actor": {"ID": "a1", "Attributes": {"name": "wéb-1", "image": "bb"}},
    "time": 1795257604,
    "timeNano": 1795257604013812726,
}


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("create", EventKind.CHANGED),
        ("start", EventKind.CHANGED),
        ("pause", EventKind.CHANGED),
        ("unpause", EventKind.CHANGED),
        ("update", EventKind.CHANGED),
        ("rename", EventKind.CHANGED),
        ("oom", EventKind.CHANGED),
        ("die", EventKind.STOPPED),
        ("died", EventKind.STOPPED),
        ("destroy", EventKind.GONE),
        ("remove", EventKind.GONE),
    ],
)
def test_actions_that_change_a_container_are_events(action, kind):
    event = parse_event(START | {"Action": action})
    assert (event.kind, event.container_id, event.name) == (kind, "a1", "wéb-1")


@pytest.mark.parametrize(
    "raw",
    [
        START | {"Action": "exec_create: /bin/busybox id"},
        START | {"Action": "health_status: healthy"},
        START | {"Action": "top"},
        START | {"Type": "image"},
        START | {"Type": "network"},
        {"Type": "system", "Action": "refresh"},
        [],
        None,
    ],
)
def test_irrelevant_events_are_none(raw):
    assert parse_event(raw) is None


def test_a_reload_of_the_daemon_is_an_event_without_a_container():
    event = parse_event({"Type": "daemon", "Action": "reload", "Actor": {"ID": "X"}})
    assert (event.kind, event.container_id) == (EventKind.CHANGED, "")


def test_an_event_has_the_since_parameter_of_its_time():
    assert parse_event(START).since == "1795257604.013812726"
    assert parse_event(START | {"timeNano": 1795257604000000007}).since == "1795257604.000000007"


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(1, 30), st.sampled_from(["", "\n"]))
def test_pieces_of_any_size_give_the_same_events(numbers, size, separator):
    raws = [START | {"timeNano": number + 1} for number in numbers]
    text = separator.join(json.dumps(raw, ensure_ascii=False) for raw in raws).encode()
    decoder = EventDecoder("engine")
    found = [
        event.at_ns
        for start in range(0, len(text), size)
        for event in decoder.feed(text[start : start + size])
    ]
    assert found == [number + 1 for number in numbers]


@given(
    st.lists(st.dictionaries(st.text('{}"\\\n\u00e9', max_size=4), st.text('{}"\\', max_size=4))),
    st.integers(1, 9),
)
def test_what_is_in_texts_ends_no_event(labels, size):
    raws = [
        START | {"Actor": {"ID": str(number), "Attributes": texts}}
        for number, texts in enumerate(labels)
    ]
    text = "".join(map(json.dumps, raws)).encode()
    decoder = EventDecoder("engine")
    found = [
        (event.container_id, event.labels)
        for start in range(0, len(text), size)
        for event in decoder.feed(text[start : start + size])
    ]
    assert found == [(str(number), texts) for number, texts in enumerate(labels)]


@pytest.mark.parametrize(
    "stream",
    [b"<html>", b"}", b"\n [1]\n", b'{"a": }', b'{"a":' * 100_000 + b"1" + b"}" * 100_000],
    ids=["html", "end", "list", "invalid", "deep"],
)
def test_a_stream_that_has_no_events_is_an_error(stream):
    with pytest.raises(HostDataError, match="engine: an event is not a JSON object"):
        list(EventDecoder("engine").feed(stream))


@pytest.mark.parametrize("piece", [b"{" + b'"a":' * 15, b'{"a": "' + b"x" * 56], ids=len)
def test_an_event_that_never_ends_takes_bounded_memory_and_time(piece):
    decoder = EventDecoder("engine")
    for _ in range(MAX_EVENT_BYTES // len(piece)):
        assert list(decoder.feed(piece)) == []
    with pytest.raises(HostDataError, match="engine: an event of more than 1048576 bytes"):
        list(decoder.feed(piece))


def test_each_byte_of_an_event_is_looked_at_once(monkeypatch):
    """A 1 MiB event that comes byte by byte."""
    looked_at = []
    real = re.compile(rb'["{}]')

    class Counting:
        def search(self, piece, place):
            looked_at.append(len(piece) - place)
            return real.search(piece, place)

    monkeypatch.setattr(events, "_OUTSIDE_TEXT", Counting())
    decoder = EventDecoder("engine")
    for _ in range(10_000):
        assert list(decoder.feed(b" ")) == list(decoder.feed(b"{")) == []
    assert sum(looked_at) <= 2 * 20_000
