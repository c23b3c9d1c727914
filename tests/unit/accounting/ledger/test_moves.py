"""Transitions of migrations, and requests for moves."""

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.model.claim import OPEN, RUNNING, MigrationStatus, MigrationType, can_transition
from nodetracker.model.errors import RequestError
from tests.builders import WORKLOAD

SOURCE = "0b9c2f6c-5a34-4a64-9d3a-0f4f5c9a7b12"


def parse(migration):
    return parse_claim_request({"workload": {"uuid": WORKLOAD}, "migration": migration})


@pytest.mark.parametrize("after", MigrationStatus)
@pytest.mark.parametrize("before", MigrationStatus)
def test_steps_go_forward_and_end_once(before, after):
    order = list(MigrationStatus)
    if before not in OPEN:
        assert not can_transition(before, after)
    elif after in RUNNING:
        is_forward = order.index(before) < order.index(after)
        assert can_transition(before, after) == (before in RUNNING and is_forward)
    else:
        assert can_transition(before, after) == (before is not after)


@pytest.mark.parametrize("kind", [item.value for item in MigrationType])
def test_a_request_for_a_move_names_its_type_and_its_source(kind):
    wanted = parse({"type": kind, "source_claim": SOURCE.upper()}).migration
    assert (wanted.migration_type.value, wanted.source_claim) == (kind, SOURCE)


def test_every_parse_of_a_request_has_the_same_hash():
    first, second = (parse({"type": "resize", "source_claim": SOURCE}) for _ in range(2))
    assert first.migration.uuid != second.migration.uuid
    assert first.request_hash == second.request_hash


@pytest.mark.parametrize(
    ("migration", "message"),
    [
        ("resize", "migration: expected an object, got 'resize'"),
        ({"type": "resize"}, "migration.source_claim: is missing"),
        ({"source_claim": SOURCE}, "migration.type: is missing"),
        (
            {"type": "teleport", "source_claim": SOURCE},
            "migration.type: expected one of resize, migration, live-migration, evacuation, rebuild, got 'teleport'",
        ),
        (
            {"type": "resize", "source_claim": "x"},
            "migration.source_claim: 'x' is not a valid UUID",
        ),
        ({"type": ["resize"], "source_claim": SOURCE}, "migration.type: "),
        (
            {"type": "resize", "source_claim": SOURCE, "to": 1},
            "migration: unknown key 'to': expected one of type, source_claim",
        ),
    ],
)
def test_an_invalid_move_is_refused_with_its_path(migration, message):
    with pytest.raises(RequestError) as caught:
        parse(migration)
    assert str(caught.value).startswith(message)
