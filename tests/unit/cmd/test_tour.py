"""The commands of docs/tour.md answer its questions, on the fleet of its pictures."""

import json
import shlex

import pytest

from nodetracker.model.service import COMPUTE_BINARY
from tests.documents import DOCS, read_blocks, read_section
from tests.picture_fleet import make_picture_fleet
from tests.unit.cmd.commands import Commands

ANSWERS = {
    "Which node has room for 8 CPUs, 32 GiB and a GPU?": ("h9", "h12"),
    "Why not on h3?": ("28 GiB free, 32 GiB requested", "2 allocated"),
    "What changed on h7 last night?": ("6.1.0-21-amd64", "192 GiB instead of", "memory fault"),
    "Which hosts are lost, and since when?": ("h4", "h11", "3 h"),
    "When is the fleet full?": ("full in about 11 days", "76 %"),
    "Take h5 out": ("web-",),
    "Where is a guest?": ("train-1", "train-big", "h3"),
}
"""Heading -> texts that its commands print."""


@pytest.fixture(scope="module")
def store():
    return make_picture_fleet()


@pytest.fixture
def conf(conf):
    alias = {"name": "h100", "vendor_id": "10de", "product_id": "2331", "device_type": "type-PCI"}
    conf.set_override("alias", [json.dumps(alias)], "pci")
    return conf


def run_section(store, conf, heading):
    """Run the commands below a heading, and return what they print."""
    lines = "".join(read_blocks(read_section("tour.md", heading))).splitlines()
    assert lines
    printed = []
    for line in lines:
        done = Commands(store, conf).manage(*shlex.split(line)[1:])
        assert done.returncode == ("--why" in line), done.stderr  # 1: it would be refused
        printed.append(done.stdout)
    return "".join(printed)


@pytest.mark.parametrize("heading", ANSWERS)
def test_the_commands_answer_the_question(store, conf, heading, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    printed = run_section(store, conf, heading)
    assert [text for text in ANSWERS[heading] if text not in printed] == [], printed


def test_each_question_has_an_answer():
    headings = [
        line[3:] for line in (DOCS / "tour.md").read_text().splitlines() if line[:3] == "## "
    ]
    assert headings == list(ANSWERS)


def test_h5_is_out_of_service_then(store, conf):
    run_section(store, conf, "Take h5 out")
    (service,) = store.list_services("h5", COMPUTE_BINARY)
    assert (service.disabled, service.disabled_reason, service.maintenance) == (
        True,
        "new disk",
        True,
    )
