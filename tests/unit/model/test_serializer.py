"""What is sent is what is read, for everything that the ports carry."""

import contextlib
import dataclasses
import json
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from nodetracker.conductor.interface import CONDUCTOR
from nodetracker.model.amounts import ResourceVerdict
from nodetracker.model.change import ItemDiff
from nodetracker.model.claim import ClaimState
from nodetracker.model.errors import (
    ClaimRefusedError,
    FencedError,
    NodeBusyError,
    NodetrackerError,
    RequestError,
    RpcVersionError,
)
from nodetracker.model.guest import Guest, PowerState
from nodetracker.model.node import NodeRecord
from nodetracker.model.serializer import decode_error, encode, encode_error, make_reader
from nodetracker.ports import HostAgent, Store
from nodetracker.rpc.interface import Interface
from tests.builders import make_device, make_guest, make_values

BERLIN = timezone(timedelta(hours=2))


def travel(hint: Any, value: object) -> object:
    return make_reader(hint)(json.loads(json.dumps(encode(value))), "")


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**62),
        (float, 0.1 + 0.2),
        (float, 3),
        (str, "Dünger 🌱 \ud800"),
        (bool, False),
        (int | None, None),
        (datetime, datetime(2026, 3, 29, 1, 59, 59, 999999, tzinfo=UTC)),
        (timedelta, timedelta(days=3, microseconds=1)),
        (ClaimState, ClaimState.HELD),
        (frozenset[int], frozenset({3, 1})),
        (tuple[int, ...], (1, 2)),
        (tuple[int, str], (1, "a")),
        (Mapping[int, list[str]], {1: ["a"]}),
        (Mapping[str, Any], {"a": [1, None, {"b": 1.5}]}),
        (Point, Point(1, 2.0, ("a",))),
        (ItemDiff[Guest], ItemDiff(added=(make_guest("web"),))),
        (list[Point] | None, [Point(1)]),
    ],
    ids=str,
)
def test_a_value_is_read_as_it_was_written(hint: Any, value: object) -> None:
    assert travel(hint, value) == value


def test_a_time_is_the_same_moment_from_any_zone() -> None:
    moment = datetime(2026, 3, 1, 12, 0, tzinfo=BERLIN)
    assert travel(datetime, moment) == moment


def test_a_whole_node_travels_with_all_that_hangs_below_it() -> None:
    guest, device = make_guest("web", power_state=PowerState.PAUSED), make_device()
    record = NodeRecord(
        id=1, uuid="u", host="h", nodename="n", generation=3, epoch=2, values=make_values(),
        guests={guest.uuid: guest}, devices={device.address: device},
    )  # fmt: skip
    assert travel(NodeRecord, record) == record


@pytest.mark.parametrize(
    ("hint", "plain", "said"),
    [
        (Point, {"x": 1, "z": 2}, "z: unknown field"),
        (Point, {"y": 1.0}, "x: missing"),
        (Point, {"x": "1"}, "x: invalid value '1': expected int"),
        (Point, {"x": True}, "x: invalid value true: expected int"),
        (Point, [], "invalid value []: expected Point"),
        (
            list[Point],
            [{"x": 1}, {"x": 1, "tags": [5]}],
            "[1].tags[0]: invalid value 5: expected str",
        ),
        (Mapping[str, int], {"a": {"b": 1}}, "a: invalid value {'b': 1}: expected int"),
        (Mapping[int, int], {"a": 1}, "a: invalid value 'a': expected integer"),
        (ClaimState, "lost", "invalid value 'lost': expected ClaimState"),
        (datetime, "yesterday", "invalid value 'yesterday': expected time"),
        (int | None, "x", "invalid value 'x': expected int"),
        (type(None), 5, "invalid value 5: expected null"),
        (tuple[int, int], [1], "invalid value [1]: expected list of 2"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_path(hint: Any, plain: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        make_reader(hint)(plain, "")
    assert str(caught.value) == said


@pytest.mark.parametrize("plain", [5, "five", None])
def test_a_value_of_one_of_several_types_is_read_by_the_one_that_fits(plain: object) -> None:
    assert make_reader(int | str | None)(plain, "") == plain
    with pytest.raises(RequestError, match=r"invalid value 1\.5: expected str"):
        make_reader(int | str | None)(1.5, "")


def test_a_value_that_the_reader_does_not_know_is_left_out_of_lists_and_keys_only() -> None:
    unknown = frozenset({ClaimState.HELD})
    states = {"all": (ClaimState.HELD, ClaimState.RELEASED), "text": ["held"]}
    assert encode(states, unknown) == {"all": ["released"], "text": ["held"]}
    assert encode({ClaimState.HELD: 1, ClaimState.RELEASED: 2}, unknown) == {"released": 2}
    with pytest.raises(RpcVersionError, match="the caller's version does not know 'held'"):
        encode({"state": ClaimState.HELD}, unknown)


def test_a_field_that_an_older_sender_does_not_know_has_its_default() -> None:
    assert make_reader(Point)({"x": 1}, "") == Point(1)


@pytest.mark.parametrize(
    "hint", [bytes, object(), set[complex]], ids=["bytes", "an object", "complex numbers"]
)
def test_what_cannot_travel_is_found_when_its_reader_is_made(hint: Any) -> None:
    with pytest.raises(TypeError):
        make_reader(hint)


def test_what_has_no_json_is_not_sent() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        encode({"a": object()})


def list_dataclasses(hint: Any, found: set[type]) -> set[type]:
    """Gather every dataclass that a type is made of."""
    own = typing.get_origin(hint) or hint
    for argument in typing.get_args(hint):
        list_dataclasses(argument, found)
    if dataclasses.is_dataclass(own) and own not in found:
        found.add(own)
        for field in typing.get_type_hints(own).values():
            list_dataclasses(field, found)
    return found


@pytest.mark.parametrize("protocol", [Store, HostAgent])
def test_everything_that_a_port_takes_and_gives_can_travel(protocol: type) -> None:
    methods = Interface(protocol, "test", "1.0", CONDUCTOR.local).methods
    for name in methods:
        for hint in typing.get_type_hints(getattr(protocol, name)).values():
            for item in list_dataclasses(hint, set()):
                with contextlib.suppress(RequestError):
                    make_reader(item)({}, "")


def test_arguments_travel_by_name_whatever_way_they_are_given() -> None:
    method = CONDUCTOR.methods["list_claims"]
    plain = method.encode_arguments("alpha", state=ClaimState.HELD)
    assert plain == {"host": "alpha", "state": "held"}
    assert method.read_arguments(plain) == {"host": "alpha", "state": ClaimState.HELD}


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"hosts": "x"}, "hosts: unknown argument"),
        ({}, "missing a required argument: 'uuid'"),
        ({"uuid": 5}, "uuid: invalid value 5: expected str"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(plain: dict[str, Any], said: str) -> None:
    method = CONDUCTOR.methods["confirm_claim"]
    with pytest.raises(RequestError) as caught:
        method.read_arguments(plain)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "error",
    [
        FencedError("taken over"),
        ClaimRefusedError(["Free memory 1 MB < requested 2 MB", "no such trait"], ["ram"]),
        ClaimRefusedError(
            ["moved", "n1: Free memory 1.00 MB < requested 2 MB"],
            ["ram"],
            [(), ("n1: ", ResourceVerdict("MEMORY_MB", 4.0, 1.0, 1.5, 3.0, 4.0, 1.0, 2.0))],
        ),
        RequestError("resources.VCPU", "is no integer"),
        NodeBusyError("alpha", "n1"),
    ],
    ids=str,
)
def test_an_error_is_raised_again_as_it_was(error: NodetrackerError) -> None:
    again = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_options_of_an_error_may_be_missing_or_of_a_later_version() -> None:
    plain = {"type": "ClaimRefusedError", "arguments": [["no room"]]}
    for options in ({}, {"colour": "red"}, {"parts": [[{"colour": "red"}]]}):
        again = decode_error(plain | {"options": options})
        assert isinstance(again, ClaimRefusedError)
        assert (again.reasons, again.checks, again.parts) == (("no room",), (), ())


@pytest.mark.parametrize(
    "plain",
    [{}, {"type": "KeyError", "arguments": ["x"]}, {"type": "RequestError", "arguments": []}],
    ids=str,
)
def test_an_error_that_is_not_known_is_another_versions(plain: dict[str, Any]) -> None:
    assert isinstance(decode_error(plain), RpcVersionError)
