"""When a stored warning is over."""

from datetime import UTC, datetime, timedelta

import pytest

from nodetracker.model.warning import WarningKind, is_warning_over

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "age", "is_over"),
    [
        (WarningKind.FACT_HELD, 0, True),
        (WarningKind.DUPLICATE_REFUSED, 3599, False),
        (WarningKind.DUPLICATE_REFUSED, 3600, True),
    ],
)
def test_what_others_report_is_over_an_hour_after_its_last_sighting(
    kind: WarningKind, age: int, is_over: bool
) -> None:
    assert is_warning_over(kind.value, NOW, NOW + timedelta(seconds=age)) is is_over
