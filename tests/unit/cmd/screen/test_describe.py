"""One node on one screen, compared with files."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nodetracker.accounting.liveness import Liveness
from nodetracker.cmd.screen.lines import line_width, plain_text
from nodetracker.cmd.screen.node_details import MAX_WORKLOADS, draw_description
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.model.change import EventKind
from nodetracker.model.fact import FactState
from nodetracker.model.listing import HistoryQuery, WarningQuery
from nodetracker.model.node import NodeRecord, NodeValues
from nodetracker.views.description import describe_node, render_description
from nodetracker.views.history import collect_names
from nodetracker.views.measured import list_measurements
from tests.database_clock import set_clock
from tests.page_node import RICH, add_rich_node, uuid_of
from tests.stores import SqliteStore
from tests.unit.cmd.screen.golden import check

DOWN_TIME = 60


@pytest.fixture(scope="module")
def parts():
    """The rich node as it is read: record, service, time, warnings and changes."""
    store = SqliteStore()
    now = datetime.now(UTC)  # of each statement, however slow the machine is
    set_clock(store.engine, lambda: now)
    add_rich_node(store)
    (record,) = store.load_nodes(RICH[0])
    (service,) = store.list_services(RICH[0])
    warnings = store.list_warning_page(WarningQuery(host=RICH[0])).items
    changes = store.list_history_page(
        HistoryQuery(host=RICH[0], kinds=(EventKind.NODE,), limit=5)
    ).items
    load = {"load_average": [0.2, 0.12, 0.14], **service.last_audit}
    service = replace(service, last_audit=load)
    return record, service, now + timedelta(seconds=4), warnings, changes


def describe(parts, **changes):
    record, service, now, warnings, entries = parts
    node = replace(record, **changes)
    return describe_node(node, service, Liveness(now, DOWN_TIME), warnings, entries)


def draw(parts, terminal, **changes):
    described = describe(parts, **changes)
    return draw_description(described, collect_names(parts[4]), terminal)


def steady(lines):
    """Replace ages of seconds, which depend on the speed of the test."""
    return [tuple(piece._replace(text=re.sub(r"\b\d s\b", "N s", piece.text)) for piece in line)
            for line in lines]  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_description_is_as_its_file_says(parts, width):
    lines = draw(parts, Terminal(width))
    check(f"describe-{width}", steady(lines))
    assert max(map(line_width, lines)) <= width
    assert len(lines) <= 67


def test_the_description_needs_no_unicode(parts):
    assert plain_text(draw(parts, Terminal(80, has_unicode=False))).isascii()


def test_a_dead_and_disabled_host_does_not_look_healthy(parts):
    record, service, now, warnings, changes = parts
    dead = replace(service, disabled=True, disabled_reason="broken fan", maintenance=True,
                   disabled_at=now, disabled_by="alice@ctl", maintenance_at=now,
                   maintenance_reason="moves house")  # fmt: skip
    later = now + timedelta(hours=2)
    text = plain_text(draw((record, dead, later, warnings, changes), Terminal(100)))
    assert "✖ down, disabled, in maintenance" in text
    assert "broken fan" in text
    assert "Down for    2 h\n" in text
    assert "2 h ago by alice@ctl" in text
    assert "Maintenance 2 h ago: moves house\n" in text
    assert "Uptime" not in text
    assert "Load" not in text
    assert "fresh" not in text
    assert "as last known, read 2 h ago" in text


def test_a_host_that_is_forced_down_says_since_when_by_whom_and_why(parts):
    record, service, now, warnings, changes = parts
    forced = replace(service, forced_down=True, forced_down_reason="fenced off", forced_down_at=now,
                     forced_down_by="alice@ctl")  # fmt: skip
    later = now + timedelta(hours=2)
    text = plain_text(draw((record, forced, later, warnings, changes), Terminal(100)))
    assert "Forced down 2 h ago by alice@ctl: fenced off" in text
    unknown = replace(service, forced_down=True)
    text = plain_text(draw((record, unknown, later, warnings, changes), Terminal(100)))
    assert "Forced down no reason given" in text


def test_the_largest_workloads_are_listed_and_the_rest_counted(parts):
    record = parts[0]
    guest = next(iter(record.guests.values()))
    guests = {str(n): replace(guest, uuid=str(n), name=f"vm-{n}", memory_mb=n, claim_uuid=None)
              for n in range(100, 152)}  # fmt: skip
    lines = draw(parts, Terminal(100), guests=guests, claims={})
    text = plain_text(lines)
    assert "… 42 more" in text
    assert text.count("unclaimed  ") >= MAX_WORKLOADS
    assert len(lines) <= 68


def test_gpus_that_claims_count_are_named_and_no_functions_of_the_host(parts):
    record = parts[0]
    counted = {"resource_class": "PGPU", "guests": []}
    gpus = [dict(gpu) | counted for gpu in record.values.gpus]
    gpus[1]["guests"] = [uuid_of("legacy-vm")]
    devices = {
        gpu["address"]: replace(record.devices[gpu["address"]], tags=None, claim_uuid=None)
        for gpu in gpus
    }
    values = replace(record.values, gpus=gpus)
    text = plain_text(draw(parts, Terminal(100), values=values, devices=devices))
    assert "NVIDIA H100 PCIe, cell 1: 2 counted as PGPU; used by legacy-vm" in text
    assert "other function" not in text


def test_a_node_of_which_nothing_is_known_is_described():
    record = NodeRecord(1, "0b9c", "host-1", "node-1", 1, 1, NodeValues())
    now = SqliteStore().now()
    described = describe_node(record, None, Liveness(now, DOWN_TIME))
    text = plain_text(draw_description(described, {}, Terminal(80)))
    assert "the host has no agent" in text


class TestMeasured:
    """Each measurement has its age, and what is unknown is unknown and never 0."""

    def list_texts(self, parts, service=True, **changes):
        record, found, now, *_ = parts
        node = replace(record, values=replace(record.values, **changes))
        found = list_measurements(node, found if service else None)
        return {item.label: item.render(now) for item in found}

    def test_what_was_never_measured(self, parts):
        found = self.list_texts(parts, service=False, mem_available=None, metrics={})
        assert found == dict.fromkeys(("Load", "Memory", "Disk", "Guests"), "unknown")

    @pytest.mark.parametrize(
        ("metrics", "text"),
        [
            (
                {"instances_cpu_used_milli": 3060, "instances_memory_used_mb": 5325},
                "3.1 CPUs and 5.2 GiB of memory in use, 4 s ago",
            ),
            (
                {
                    "instances_cpu_used_milli": 1000, "instances_memory_used_mb": 1024,
                    "containers_cpu_used_milli": 500, "containers_memory_used_mb": 512,
                },
                "1.5 CPUs and 1.5 GiB of memory in use, 4 s ago",
            ),
            ({"instances_memory_used_mb": 512}, "CPUs unknown, 512 MiB of memory in use, 4 s ago"),
            ({"containers_cpu_used_milli": 5, "containers_memory_used_mb": 1}, "unknown"),
        ],
        ids=["instances", "both kinds", "the first reading", "only containers are measured"],
    )  # fmt: skip
    def test_what_guests_use_is_that_of_all_kinds(self, parts, metrics, text):
        found = self.list_texts(parts, metrics=metrics, running_vms=3, total_containers=0)
        assert found["Guests"] == text

    def test_a_node_without_guests_has_no_line_of_their_use(self, parts):
        found = self.list_texts(parts, metrics={}, running_vms=0, total_containers=0)
        assert "Guests" not in found

    def test_what_was_not_measured_for_too_long(self, parts):
        facts = parts[0].values.facts
        lost = {"storage": replace(facts["storage"], state=FactState.UNKNOWN)}
        assert self.list_texts(parts, facts=facts | lost)["Disk"] == "unknown"

    def test_a_held_value_is_as_old_as_its_last_measurement(self, parts):
        assert self.list_texts(parts)["Disk"] == "811 GiB of 2 TiB in use, 4 min ago"

    @pytest.mark.parametrize(("minutes", "age"), [(4, 240.0), (6, 7.0)])
    def test_later_readings_confirm_what_they_do_not_write_again(self, parts, minutes, age):
        record, service, now, *_ = parts
        written = replace(record, updated_at=now - timedelta(minutes=minutes))
        found = {item.label: item.at for item in list_measurements(written, service)}
        assert (now - found["Memory"]).total_seconds() == pytest.approx(age, abs=1)

    def test_programs_get_the_load_as_numbers(self, parts):
        shown = render_description(describe(parts))
        assert shown["load_average"] == [0.2, 0.12, 0.14]
        assert shown["measured"][0]["text"] == "0.20 0.12 0.14 on 31 CPUs"


def test_amounts_for_programs_have_the_units_of_their_classes(parts):
    shown = render_description(describe(parts))
    assert shown["resources"]["MEMORY_MB"]["total"] == 131_072
    assert shown["resources"]["DISK_GB"]["total"] == 2000
    assert {use["name"] for use in shown["workloads"]} >= {"web-1", "db-1", "legacy-vm"}


def test_withheld_huge_pages_are_named(parts):
    values = parts[0].values
    column = values.numa_topology
    first, *others = column["cells"]
    pools = [pool | {"used": 40, "withheld": 30} for pool in first["mempages"]]
    cells = [first | {"mempages": pools}, *others]
    values = replace(values, numa_topology=column | {"cells": cells})
    text = plain_text(draw(parts, Terminal(120), values=values))
    assert re.search(r"2 MiB pages: \d+ of 8192 free, 30 withheld\n", text)
    assert text.count("withheld") == 1
