"""Encoded values are decoded to equal ones, and equal data has equal text."""

import dataclasses
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from nodetracker.accounting.audit.planner import DEVICE_TEXTS, GUEST_TEXTS
from nodetracker.db import codec
from nodetracker.db.codec import render_json
from nodetracker.db.columns import NODE_SHAPES
from nodetracker.db.connection.dialect import JsonText, Line, LongText
from nodetracker.db.schema import tables
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.node import NODE_COLUMNS, NodeValues
from nodetracker.model.pci import PciDevice
from nodetracker.model.service import Incarnation, ServiceRecord
from nodetracker.model.text import LONG_TEXT_LENGTH, TEXT_LENGTH
from nodetracker.model.warning import WARNING_ITEM_LENGTH

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


def list_texts(table: sa.Table, columns: Iterable[str]) -> dict[str, int]:
    """Return the lengths of the text columns among the named ones."""
    kinds = {name: table.c[name].type for name in columns}
    return {
        name: kind.length if isinstance(kind, Line) else LONG_TEXT_LENGTH
        for name, kind in kinds.items()
        if isinstance(kind, Line | LongText)
    }


def test_texts_are_truncated_to_the_columns_lengths() -> None:
    assert set(list_texts(tables.compute_nodes, NODE_COLUMNS).values()) == {TEXT_LENGTH}
    parsed = {"uuid", "kind", "power_state", "claim_uuid"}
    assert list_texts(tables.guests, set(codec.GUEST_COLUMNS) - parsed) == GUEST_TEXTS
    parsed = {"address", "parent_addr", "dev_type", "status", "claim_uuid"}
    assert list_texts(tables.pci_devices, set(codec.DEVICE_COLUMNS) - parsed) == DEVICE_TEXTS
    assert list_texts(tables.warnings, ["nodename", "item", "message"]) == {
        "nodename": TEXT_LENGTH,
        "item": WARNING_ITEM_LENGTH,
        "message": LONG_TEXT_LENGTH,
    }


@given(PLAIN)
def test_plain_data_comes_back_equal(value: object) -> None:
    assert json.loads(render_json(value)) == value


@given(st.dictionaries(st.text(), st.integers()))
def test_equal_data_is_the_same_text(value: dict[str, int]) -> None:
    other = dict(reversed(value.items()))
    assert render_json(other) == render_json(MappingProxyType(value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_values_that_json_cannot_express_are_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        render_json(value)


@given(
    st.dictionaries(
        st.text(),
        st.builds(
            FactEntry,
            state=st.sampled_from(FactState),
            source=st.text(),
            since=st.datetimes(timezones=st.just(UTC)),
            error=st.none() | st.text(),
            unseen_kinds=st.lists(st.sampled_from(WorkloadKind), unique=True).map(tuple),
        ),
    )
)
def test_facts_come_back_equal(facts: dict[str, FactEntry]) -> None:
    row = codec.encode_values(NodeValues(facts=facts))
    row["facts"] = json.loads(render_json(row["facts"]))
    assert codec.decode_values(row) == NodeValues(facts=facts)


def test_merging_copies_only_the_named_columns() -> None:
    wanted = NodeValues(vcpus=5, memory_mb=6, runtimes=["a"], labels=MappingProxyType({"x": "y"}))
    merged = codec.merge_values(NodeValues(), wanted, ("vcpus", "runtimes", "labels"))
    assert merged == NodeValues(vcpus=5, runtimes=["a"], labels={"x": "y"})
    assert merged.runtimes is not wanted.runtimes


def test_times_are_converted_to_utc() -> None:
    local = datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    merged = codec.merge_values(NodeValues(), NodeValues(booted_at=local), ("booted_at",))
    assert merged.booted_at is not None
    assert merged.booted_at.tzinfo is UTC


def test_every_field_has_its_column() -> None:
    assert set(NODE_COLUMNS) <= set(tables.compute_nodes.c.keys())
    assert set(codec.GUEST_COLUMNS) <= set(tables.guests.c.keys())
    assert {f.name for f in dataclasses.fields(PciDevice)} <= set(tables.pci_devices.c.keys())
    service = {f.name for f in dataclasses.fields(ServiceRecord)} - {"incarnation", "damaged"}
    service |= {f.name for f in dataclasses.fields(Incarnation)}
    assert service <= set(tables.services.c.keys())


def test_the_json_columns_are_those_that_hold_json() -> None:
    found = {c.name for c in tables.compute_nodes.c if isinstance(c.type, JsonText)}
    assert found - {"capacity_seen"} == NODE_SHAPES.keys()  # which no record has
