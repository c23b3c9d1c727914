"""Test when a stored warning expires."""

from datetime import UTC, datetime, timedelta

import pytest

from nodetracker.model.warning import WarningKind, is_warning_expired

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "age", "is_expired"),
    [
        (WarningKind.FACT_HELD, 0, True),
        (WarningKind.DUPLICATE_REFUSED, 3599, False),
        (WarningKind.DUPLICATE_REFUSED, 3600, True),
    ],
)
def test_what_others_report_is_expired_an_hour_after_its_last_sighting(
    kind: WarningKind, age: int, is_expired: bool
) -> None:
    assert is_warning_expired(kind.value, NOW, NOW + timedelta(seconds=age)) is is_expired
