import pytest

from nodetracker.model.errors import RequestError
from nodetracker.model.service import ServiceChange


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("", "disabled_reason: '' is not a reason"),
        (" \u3000", "disabled_reason: ' \\u3000' is not a reason"),
        ("AUTO: mine", "disabled_reason: 'AUTO: mine' has the prefix of agents' reasons"),
        ("\udcff", "disabled_reason: '\\udcff' has control characters or lone surrogates"),
        ("a\0b", "disabled_reason: 'a\\x00b' has control characters or lone surrogates"),
        ("a\nb", "disabled_reason: 'a\\nb' has control characters or lone surrogates"),
        ("\x1b[2J", "disabled_reason: '\\x1b[2J' has control characters or lone surrogates"),
        ("a\x9bb", "disabled_reason: 'a\\x9bb' has control characters or lone surrogates"),
        ("\u202ea", "disabled_reason: '\\u202ea' has control characters or lone surrogates"),
        ("x" * 16_001, "disabled_reason: is longer than 16000 characters"),
    ],
    ids=[
        "empty",
        "blank",
        "of an agent",
        "no Unicode",
        "NUL",
        "lines",
        "escape",
        "C1",
        "direction",
        "long",
    ],
)
def test_a_reason_that_cannot_be_stored_is_refused(reason: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        ServiceChange(disabled=True, disabled_reason=reason)
    assert str(caught.value) == message


def test_any_other_reason_is_accepted() -> None:
    assert ServiceChange(True, "Müller: 新しい disk").disabled_reason == "Müller: 新しい disk"
