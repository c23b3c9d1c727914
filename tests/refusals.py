"""Expect that claims are refused, by the amounts that the rule compared."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodetracker.accounting.ledger.admission import Admission
from nodetracker.model.amounts import ResourceVerdict
from nodetracker.model.errors import ClaimRefusedError


def list_short(refused: Admission | ClaimRefusedError) -> dict[str, tuple[float | None, float]]:
    """Return resource -> what is free and what is requested, of each reason with amounts."""
    verdicts = (part for parts in refused.parts for part in parts)
    return {
        part.resource: (part.free, part.refused)
        for part in verdicts
        if isinstance(part, ResourceVerdict)
    }


@contextmanager
def refusing(**free: float) -> Iterator["pytest.ExceptionInfo[ClaimRefusedError]"]:
    """Expect a refusal for these resources alone, of which so much is free."""
    with pytest.raises(ClaimRefusedError) as caught:
        yield caught
    assert {name: amounts[0] for name, amounts in list_short(caught.value).items()} == free
