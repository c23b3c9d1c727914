"""Any number, and any length, in the files of captured machines: ``tox -e properties``."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetracker.accounting.audit.view import account
from nodetracker.model.settings import Policy
from tests.builders import NOW, make_record
from tests.hostile.limits import limited
from tests.hostile.values import ODD_TEXTS, TEXTS
from tests.hosts.captures import HERE, OWN_ARCHIVES, name_archive
from tests.hosts.test_spoiled import cost_of, list_columns
from tests.spoiler import Machine, Way

_NUMBER = re.compile(rb"[0-9]+")
WHOLE = (
    b"0-65535," * 2_000_000, b"9" * 1_000_000, b"\n" * 10**6, b":" * 10**6, b"\0" * 1000, b"a: b\n" * 10**6,
    b" " * 10**7, b"processor : 1\n" * 10**5, b"Node 0 MemTotal: 99999999999999999 kB\n" * 1000,
)  # fmt: skip
NUMBERS = [text.encode(errors="surrogatepass") for text in (*TEXTS, *ODD_TEXTS)]

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("archive", OWN_ARCHIVES, ids=map(name_archive, OWN_ARCHIVES))
def test_any_number_costs_what_its_file_describes(archive: Path, tmp_path: Path) -> None:
    assert archive.parent == HERE
    machine = Machine(archive, tmp_path)
    first = account(machine.read(), None, Policy(), NOW)
    good = account(machine.read(), make_record(first.values), Policy(), NOW)
    by_kind = {
        target.kind: target for target in machine.list_targets() if Way.FILE not in target.ways
    }
    targets = [target for target in by_kind.values() if (machine.root / target.name).is_file()]

    @settings(max_examples=800)
    @given(st.sampled_from(targets), st.sampled_from([*NUMBERS, *WHOLE]) | st.binary(), st.data())
    def check(target, text, data) -> None:
        content = (machine.root / target.name).read_bytes()
        found = list(_NUMBER.finditer(content))
        if found and text not in WHOLE:
            place = data.draw(st.sampled_from(found))
            text = content[: place.start()] + text + content[place.end() :]
        facts, columns = cost_of(target)
        with machine.rewritten(target.name, text), limited():
            view = account(machine.read(), make_record(good.values), Policy(), NOW)
        assert view.unread - good.unread <= facts
        before, after = list_columns(good), list_columns(view)
        # The kernel's total of memory may be any.
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= columns | (
            {"memory_mb", "free_ram_mb"} if "meminfo" in target.name else set()
        )

    check()
