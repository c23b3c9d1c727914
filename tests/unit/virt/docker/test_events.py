"""Decoding of the engine's event stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.model.audit import EventKind
from nodetracker.virt.docker.events import EventDecoder, parse_event

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
    decoder = EventDecoder()
    found = [
        event.at_ns
        for start in range(0, len(text), size)
        for event in decoder.feed(text[start : start + size])
    ]
    assert found == [number + 1 for number in numbers]


def test_a_stream_that_is_not_json_is_an_error():
    with pytest.raises(ValueError):
        list(EventDecoder().feed(b"<html>"))
