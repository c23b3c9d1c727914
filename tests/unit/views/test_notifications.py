"""Test that each notification's payload equals the one in tests/golden/notifications.json.

``GOLDEN=write`` in the environment renews the file.
"""

import dataclasses
import json
import os
from pathlib import Path

from nodetracker.accounting.audit.planner import plan, plan_delete
from nodetracker.accounting.audit.view import account
from nodetracker.model.amounts import Amounts
from nodetracker.model.change import ClaimRefusal, NodeChange, Notification
from nodetracker.model.claim import ClaimState, MigrationStatus, MigrationType, Workload
from nodetracker.model.fact import fresh
from nodetracker.model.host import MemoryInfo
from nodetracker.model.settings import Policy
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.views import notifications
from tests.builders import (
    NOW,
    WORKLOAD,
    ask,
    later,
    make_claim,
    make_guest,
    make_migration,
    make_record,
    make_service,
    make_snapshot,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "notifications.json"
CLAIM = make_claim(
    "c1c1c1c1-0000-4000-8000-000000000001",
    workload=Workload(WORKLOAD, project_id="p1"),
    state=ClaimState.HELD,
    amounts=Amounts(2000, 0, 4096, 20480, {"CUSTOM_FPGA": 1}),
    expires_at=later(600),
    devices=("0000:81:10.0",),
)
MIGRATION = make_migration(
    "d1d1d1d1-0000-4000-8000-000000000001",
    migration_type=MigrationType.LIVE_MIGRATION,
    status=MigrationStatus.ACCEPTED,
    source_claim=CLAIM.uuid,
    dest_claim="c1c1c1c1-0000-4000-8000-000000000002",
)
WARNING = HostWarning(WarningKind.CLOCK_SKEW, "", "", "this host's clock is about 9 s ahead")


def change_of(snapshot, record=None) -> NodeChange:
    view = account(snapshot, record, Policy(), NOW)
    records = {} if record is None else {record.nodename: record}
    uuids = {snapshot.nodename: "11111111-1111-4111-8111-111111111111"}
    (change,) = plan("host-1", [view], records, uuids, later(600))
    return change


def stored():
    view = account(make_snapshot(), None, Policy(), NOW)
    return make_record(view.values)


def list_examples() -> list[Notification]:
    """Return one notification of each type."""
    confirmed = dataclasses.replace(CLAIM, state=ClaimState.CONFIRMED, expires_at=None)
    released = dataclasses.replace(CLAIM, state=ClaimState.RELEASED, reason="aborted")
    request = ask(WORKLOAD, CLAIM.uuid, VCPU=99)
    service = make_service()
    disabled = dataclasses.replace(
        service, disabled=True, disabled_reason="disk", disabled_at=NOW, disabled_by="alice"
    )
    grown = make_snapshot("node-1", make_guest(), memory=fresh("test", MemoryInfo(131072, 60000)))
    measured = make_snapshot(memory=fresh("test", MemoryInfo(65536, 30000)))
    return [
        *notifications.build_change_notifications(change_of(make_snapshot()))[:1],
        *notifications.build_change_notifications(change_of(grown, stored()))[:1],
        *notifications.build_change_notifications(plan_delete(stored())),
        *notifications.build_change_notifications(change_of(measured, stored())),
        *map(notifications.build_claim_notification, (CLAIM, confirmed, released)),
        notifications.build_refusal_notification(
            ClaimRefusal(request, "host-1", "node-1", ("Free vcpu 0.00 VCPU < …",))
        ),
        notifications.build_migration_notification(MIGRATION),
        notifications.build_service_notification(None, service),
        notifications.build_service_notification(service, disabled),
        notifications.build_service_notification(service, None),
        notifications.build_warning_notification("warning.raise", "host-1", WARNING),
        notifications.build_warning_notification("warning.resolve", "host-1", WARNING),
    ]


def test_each_payload_equals_the_documented_one():
    payloads = {item.event_type: dict(item.payload) for item in list_examples()}
    text = json.dumps(payloads, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_every_type_is_documented():
    documented = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text()
    used = {name for item in list_examples() for name in (item.event_type, *item.payload)}
    missing = [name for name in sorted(used) if f"`{name}`" not in documented]
    assert missing == [], "describe these in docs/notifications.md"


def test_claims_and_moves_of_an_audit_are_notified_with_its_nodes():
    change = dataclasses.replace(change_of(make_snapshot()), claims=(CLAIM,))
    assert [item.event_type for item in notifications.build_change_notifications(change)][
        -1
    ] == "claim.create"


def test_notifications_share_a_subject_only_for_the_same_object():
    by_subject: dict[str, set[str]] = {}
    for item in list_examples():
        by_subject.setdefault(item.subject, set()).add(item.event_type.partition(".")[0])
    assert all(len(families) == 1 for families in by_subject.values())
    assert len(by_subject) == 6


def test_a_warning_is_raised_once():
    other = HostWarning(WarningKind.STATE_PATH, "", "", "full")
    same = dataclasses.replace(WARNING, message="this host's clock is about 12 s ahead")
    raised = notifications.build_raised_notifications("host-1", [WARNING], [same, other])
    assert [(item.event_type, item.payload["kind"]) for item in raised] == [
        ("warning.raise", "state_path")
    ]


def test_the_update_of_a_service_has_why_since_when_and_by_whom_it_is_in_maintenance():
    before = make_service()
    after = dataclasses.replace(
        before,
        maintenance=True,
        maintenance_reason="fan",
        maintenance_at=NOW,
        maintenance_by="alice",
    )
    new = notifications.build_service_notification(before, after).payload["new"]
    assert (new["maintenance_reason"], new["maintenance_by"]) == ("fan", "alice")
    assert new["maintenance_at"] == NOW.isoformat()
