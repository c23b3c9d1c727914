import pytest

from nodetracker.errors import RequestError
from nodetracker.model.service import ServiceChange


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("AUTO: mine", "disabled_reason: 'AUTO: mine' begins as agents' own reasons do"),
        ("\udcff", "disabled_reason: '\\udcff' has characters that no database holds"),
        ("a\0b", "disabled_reason: 'a\\x00b' has characters that no database holds"),
        ("x" * 16_001, "disabled_reason: is longer than 16000 characters"),
    ],
    ids=["of an agent", "no Unicode", "NUL", "long"],
)
def test_a_reason_that_cannot_stand_is_refused(reason: str, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        ServiceChange(disabled=True, disabled_reason=reason)
    assert str(caught.value) == told


def test_any_other_reason_stands() -> None:
    assert ServiceChange(True, "Müller: 新しい disk").disabled_reason == "Müller: 新しい disk"
