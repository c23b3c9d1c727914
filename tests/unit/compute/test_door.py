"""What engines are answered that ask whether a guest may start."""

import json
import logging
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from nodetracker.compute.door import Door, Engine
from nodetracker.model.audit import AuditReport
from nodetracker.model.change import ChangeKind, NodeChange
from nodetracker.model.errors import ClaimRefusedError, HostDataError, StoreUnavailableError
from nodetracker.model.fact import FactEntry, FactState
from nodetracker.model.guest import PowerState
from nodetracker.model.settings import AgentSettings, Policy
from nodetracker.model.start import AdmissionMode, StartOutcome
from nodetracker.rpc.door_socket import EARLIER_SECONDS, SOCKET_FILE, DoorSocket
from tests.builders import (
    ADMISSION_POLICY,
    SINCE,
    make_guest,
    make_node,
    make_record,
    node,
    register,
    update,
)
from tests.stores import SqliteStore
from tests.threads import no_threads

SETTINGS = AgentSettings(host="alpha", state_path="", policy=Policy())
GUEST = make_guest(vcpu_milli=2000, memory_mb=4096, disk_mb=0)


class Reader:
    """Reads a guest's memory from the question."""

    hears_ends = True

    def read(self, question, topology):
        if "memory_mb" not in question:
            raise HostDataError("hook", "the question has no document")
        return replace(GUEST, uuid=question["uuid"], memory_mb=question["memory_mb"])


FACTS = {"cpu": FactEntry(FactState.FRESH, "test", SINCE)}


@pytest.fixture
def store():
    store = SqliteStore()
    agent = make_node(store)
    store.apply_changes(agent, [update(node(store), facts=FACTS)], 60)
    return store


def ignore_end(nodename, uuid):
    pass


def ignore_request(nodename):
    pass


def make_door(store, mode=AdmissionMode.ENFORCE, note_end=ignore_end):
    engines = {"libvirt": Engine(mode, Reader())}
    return Door(engines, store, lambda: (SETTINGS, ADMISSION_POLICY), note_end, ignore_request)


class Silent(Reader):
    """Of an engine that does not report who has ended."""

    hears_ends = False


def make_silent_door(store, request_audit):
    engines = {"libvirt": Engine(AdmissionMode.ENFORCE, Silent())}
    policies = SETTINGS, ADMISSION_POLICY
    return Door(engines, store, lambda: policies, ignore_end, request_audit)


def ask(door, memory_mb, which=1, number=1, **question):
    uuid = make_guest(which).uuid
    question = {
        "driver": "libvirt",
        "ask": "start",
        "uuid": uuid,
        "memory_mb": memory_mb,
    } | question
    return door.answer(question, number, lambda: False)


def test_a_guest_that_fits_is_admitted_and_charged(store):
    assert ask(make_door(store), 4096) == {"outcome": "admitted", "reason": ""}
    assert node(store).values.memory_mb_used == 512 + 4096


def test_a_refusal_names_what_is_missing_and_what_there_is(store):
    answer = ask(make_door(store), 8192)
    assert answer["outcome"] == "refused"
    assert answer["reason"] == (
        "memory: 8192 MiB requested, 7680 MiB free on alpha (8192 total, 512 reserved, 0 used by "
        "0 guests)"
    )


def test_with_warn_it_starts_with_a_warning_until_it_is_gone(store):
    door = make_door(store, AdmissionMode.WARN)
    assert ask(door, 9000)["outcome"] == "warned"
    (warning,) = door.list_warnings()
    assert "was started though it does not fit: memory: 9000 MiB" in warning.message
    running = replace(GUEST, power_state=PowerState.RUNNING)
    record = make_record(node(store).values, guests={running.uuid: running})
    door.audited(AuditReport({"node-1": record}))
    assert door.list_warnings() == (warning,)
    door.audited(AuditReport({"node-1": replace(record, guests={})}))
    assert door.list_warnings() == ()


def test_a_listing_that_lacks_a_guest_as_yet_ends_no_warning(store, monkeypatch):
    """It may have begun before the start."""
    door = make_door(store, AdmissionMode.WARN)
    ask(door, 9000)
    record = node(store)
    door.audited(AuditReport({"node-1": record}))
    assert len(door.list_warnings()) == 1
    monkeypatch.setattr("nodetracker.compute.door.ASKED_SECONDS", -1.0)
    door.audited(AuditReport({"node-1": record}))
    assert door.list_warnings() == ()


def test_a_start_that_fails_ends_its_warning(store):
    door = make_door(store, AdmissionMode.WARN)
    ask(door, 9000, number=2)
    ask(door, 9000, ask="gone", number=1)  # of its last life
    assert len(door.list_warnings()) == 1
    ask(door, 9000, ask="gone", number=3)
    assert door.list_warnings() == ()


def test_a_start_that_fails_gives_back_what_it_was_granted(store):
    door = make_door(store)
    ask(door, 4096)
    assert ask(door, 4096, ask="gone", number=2) is None
    assert node(store).values.memory_mb_used == 512


def test_an_end_that_is_older_than_the_last_start_gives_nothing_back(store):
    door = make_door(store)
    ask(door, 4096, number=3)
    ask(door, 4096, ask="gone", number=2)
    assert node(store).values.memory_mb_used == 512 + 4096


def test_a_guest_that_is_gone_makes_room_for_the_next_question(store):
    door = make_door(store)
    ask(door, 5000)

    def hear_that_it_is_gone():
        ask(door, 5000, ask="gone", number=2)
        return True

    question = {"driver": "libvirt", "ask": "start", "uuid": make_guest(2).uuid, "memory_mb": 5000}
    assert door.answer(question, 3, hear_that_it_is_gone)["outcome"] == "admitted"


def test_where_ends_are_not_reported_a_listing_is_waited_for_before_a_refusal(store):
    def audit(nodename):
        store.end_start(make_guest(1).uuid, "alpha", nodename)  # its engine lists it no more
        door.audited(AuditReport({nodename: node(store)}))

    door = make_silent_door(store, audit)
    door.audited(AuditReport({"node-1": node(store)}))
    assert ask(door, 5000)["outcome"] == "admitted"
    assert ask(door, 5000, which=2)["outcome"] == "admitted"


def test_an_audit_that_began_before_the_question_is_no_answer(store, monkeypatch):
    monkeypatch.setattr("nodetracker.compute.door.LISTING_SECONDS", 0.2)

    def audit(nodename):
        store.end_start(make_guest(1).uuid, "alpha", nodename)
        door.audited(AuditReport({nodename: node(store)}, duration_seconds=60))

    door = make_silent_door(store, audit)
    door.audited(AuditReport({"node-1": node(store)}))
    ask(door, 5000)
    assert ask(door, 5000, which=2)["outcome"] == "refused"


def test_a_guest_that_is_not_known_yet_is_asked_about_after_a_listing(store):
    known = {}

    class Listing(Silent):
        def read(self, question, topology):
            return super().read(question | known, topology)

    def audit(nodename):
        known["memory_mb"] = 5000
        door.audited(AuditReport({nodename: node(store)}))

    engines = {"libvirt": Engine(AdmissionMode.ENFORCE, Listing())}
    door = Door(engines, store, lambda: (SETTINGS, ADMISSION_POLICY), ignore_end, audit)
    door.audited(AuditReport({"node-1": node(store)}))
    question = {"driver": "libvirt", "ask": "start", "uuid": make_guest(1).uuid}
    assert door.answer(question, 1, lambda: False)["outcome"] == "admitted"


def test_few_questions_wait_for_a_listing_at_a_time(store, monkeypatch):
    """All places are never taken by those that wait."""
    monkeypatch.setattr("nodetracker.compute.door.MAX_WAITING", 1)
    answers = []
    requested = []

    def audit(nodename):
        requested.append(nodename)
        answers.append(ask(door, 9000, which=2)["outcome"])

    door = make_silent_door(store, audit)
    monkeypatch.setattr("nodetracker.compute.door.LISTING_SECONDS", 0.05)
    door.audited(AuditReport({"node-1": node(store)}))
    assert ask(door, 9000)["outcome"] == "refused"
    assert (answers, requested) == (["refused"], ["node-1"])


def test_an_end_is_noted_for_audits_before_it_is_written(store, monkeypatch):
    noted = []
    door = make_door(store, note_end=lambda *end: noted.append(end))
    ask(door, 4096)
    end_start = store.end_start
    monkeypatch.setattr(store, "end_start", lambda *end: noted and end_start(*end))
    ask(door, 4096, ask="gone", number=2)
    assert noted == [("node-1", make_guest(1).uuid)]
    assert node(store).values.memory_mb_used == 512


def test_the_end_of_a_guest_that_started_before_the_agent_gives_back_its_claim(store):
    ask(make_door(store), 4096)
    door = make_door(store)
    door.audited(AuditReport({"node-1": node(store)}))
    ask(door, 4096, ask="gone", number=1)
    assert node(store).values.memory_mb_used == 512


def test_a_question_about_what_would_be_created_holds_nothing(store):
    door = make_door(store)
    assert ask(door, 4096, ask="create")["outcome"] == "admitted"
    assert ask(door, 9000, ask="create")["outcome"] == "refused"
    assert node(store).claims == {}


@pytest.mark.parametrize("driver", ["libvirt", "docker", None])
def test_an_engine_that_is_not_to_ask_is_told_so(store, driver):
    door = make_door(store, AdmissionMode.OFF)
    assert ask(door, 9000, driver=driver)["outcome"] == "off"


def test_while_the_database_is_away_nobody_knows(store, monkeypatch):
    def fail(*_, **__):
        raise StoreUnavailableError("connection refused")

    monkeypatch.setattr(store, "admit_start", fail)
    answer = ask(make_door(store), 4096)
    assert answer["outcome"] == "unavailable"
    assert "connection refused" in answer["reason"]


def test_a_node_that_the_host_no_longer_has_is_not_asked(store):
    gone = replace(
        node(store),
        nodename="old",
        values=replace(
            node(store).values, facts={"cpu": FactEntry(FactState.UNKNOWN, "test", SINCE, "gone")}
        ),
    )
    door = make_door(store)
    door.audited(AuditReport({"old": gone, "node-1": node(store)}))
    assert ask(door, 4096)["outcome"] == "admitted"


def test_before_the_host_has_a_node_nobody_knows():
    store = SqliteStore()
    register(store)
    answer = ask(make_door(store), 4096)
    assert answer["outcome"] == "unavailable"
    assert "the node of this host is not known yet" in answer["reason"]


def test_a_question_that_cannot_be_read_has_no_answer(store):
    door = make_door(store)
    answer = door.answer({"driver": "libvirt", "ask": "start"}, 1, lambda: False)
    assert answer == {"outcome": "unavailable", "reason": "hook: the question has no document"}


def test_a_fault_is_logged_and_has_no_answer(store, monkeypatch, caplog):
    monkeypatch.setattr(store, "admit_start", lambda *_, **__: 1 / 0)
    assert ask(make_door(store), 4096)["outcome"] == "unavailable"
    assert "cannot be answered" in caplog.text


def test_the_last_questions_are_listed_and_counted(store):
    door = make_door(store)
    ask(door, 4096)
    ask(door, 8192, which=2, operation="migrate")
    found = door.answer({"ask": "list"}, 1, lambda: False)["questions"]
    assert [item["outcome"] for item in found] == ["admitted", "refused"]
    assert found[1]["operation"] == "migrate"
    outcomes, seconds = door.count()
    assert outcomes["libvirt", StartOutcome.REFUSED] == 1
    assert outcomes["libvirt", StartOutcome.WARNED] == 0
    assert seconds["libvirt"] > 0


def test_guests_that_were_started_without_a_question_are_named_once(store, caplog):
    door = make_door(store)
    ask(door, 1024)
    before = make_record(node(store).values)
    guests = {
        item.uuid: replace(item, power_state=PowerState.RUNNING, name=f"vm-{number}")
        for number in (1, 2)
        for item in [make_guest(number)]
    }
    change = NodeChange(
        ChangeKind.UPDATE, "alpha", "node-1", before.uuid, values=before.values, record=before
    )
    with caplog.at_level(logging.WARNING):
        door.audited(AuditReport({"node-1": replace(before, guests=guests)}, changes=(change,)))
        door.audited(AuditReport({"node-1": replace(before, guests=guests)}))
    assert [record.message for record in caplog.records] == [
        "1 guest started without a question: vm-2"
    ]


class TestSocket:
    @pytest.fixture
    def path(self, store, tmp_path):
        path = tmp_path / SOCKET_FILE
        server = DoorSocket(path, make_door(store).answer)
        server.start()
        yield path
        assert server.stop(5)

    @staticmethod
    def ask(path, data):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(path))
            connection.sendall(data)
            return connection.makefile().readline()

    def test_only_its_user_may_use_it(self, path):
        assert stat.filemode(path.stat().st_mode) == "srw-------"

    def test_answers_a_line_with_a_line(self, path):
        question = {"driver": "libvirt", "ask": "start", "uuid": GUEST.uuid, "memory_mb": 1}
        answer = json.loads(self.ask(path, json.dumps(question).encode() + b"\n"))
        assert answer == {"outcome": "admitted", "reason": ""}

    def test_waits_for_none_that_waits_itself(self, tmp_path):
        """Else those that do not fit would wait for each other."""
        waited = []
        all_ask = threading.Barrier(3)

        def answer(question, number, wait_for_earlier):
            all_ask.wait(30)
            began = time.monotonic()
            wait_for_earlier()
            waited.append(time.monotonic() - began)
            all_ask.wait(30)

        server = DoorSocket(tmp_path / SOCKET_FILE, answer)
        server.start()
        with ThreadPoolExecutor(3) as pool:
            for _ in range(3):
                pool.submit(self.ask, tmp_path / SOCKET_FILE, b"{}\n")
        assert server.stop(5)
        assert max(waited) < EARLIER_SECONDS

    @pytest.mark.parametrize("data", [b"\n", b"[]\n", b"{\n", b"[" * 100_000 + b"\n"])
    def test_closes_what_is_no_question(self, path, data):
        assert self.ask(path, data) == ""

    def test_answers_even_where_no_further_thread_can_be_started(self, path, monkeypatch):
        with no_threads(monkeypatch):
            question = {"driver": "libvirt", "ask": "start", "uuid": GUEST.uuid, "memory_mb": 1}
            for _ in range(2):
                answer = json.loads(self.ask(path, json.dumps(question).encode() + b"\n"))
                assert answer["outcome"]


class Refusing:
    hears_ends = True

    def read(self, question, topology):
        raise ClaimRefusedError(["no limit of memory is set"])


@pytest.mark.parametrize(
    ("mode", "outcome"), [(AdmissionMode.ENFORCE, "refused"), (AdmissionMode.WARN, "warned")]
)
def test_a_guest_that_may_start_nowhere_is_refused(store, mode, outcome):
    door = Door(
        {"docker": Engine(mode, Refusing())},
        store,
        lambda: (SETTINGS, ADMISSION_POLICY),
        ignore_end,
        ignore_request,
    )
    answer = door.answer({"driver": "docker", "ask": "start"}, 1, lambda: False)
    assert answer == {"outcome": outcome, "reason": "no limit of memory is set"}


def test_a_question_by_which_nothing_starts_is_not_listed(store):
    class Idle:
        hears_ends = True

        def read(self, question, topology):
            return None

    engines = {"docker": Engine(AdmissionMode.ENFORCE, Idle())}
    door = Door(engines, store, lambda: (SETTINGS, ADMISSION_POLICY), ignore_end, ignore_request)
    answer = door.answer({"driver": "docker", "ask": "created"}, 1, lambda: False)
    assert answer["outcome"] == "admitted"
    assert door.list_starts() == ()
