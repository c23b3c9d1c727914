"""Any value, and any number of elements, in libvirt's documents: ``tox -e properties``."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.hostile.libvirt import (
    CAPABILITIES,
    DEVICES,
    FULL_DOMAIN,
    PLAIN_NUMBER,
    LibvirtNode,
    list_values,
    with_count,
    with_value,
)
from tests.hostile.limits import limited
from tests.hostile.values import DOCTYPES, WHOLE_TEXTS, XML_TEXTS, list_elements

Check = Callable[[str], Iterator[str]]
NODE = LibvirtNode()
KINDS: list[tuple[str, str, Check]] = [
    ("domain", FULL_DOMAIN, NODE.find_faults_of_domain),
    ("device", DEVICES["pci_0000_81_00_1"], NODE.find_faults_of_device),
    ("capabilities", CAPABILITIES, NODE.find_faults_of_host),
]
each_kind = pytest.mark.parametrize(
    ("root", "document", "find_faults"), KINDS, ids=[kind[0] for kind in KINDS]
)
xml_texts = st.sampled_from(XML_TEXTS) | st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=40
)

pytestmark = pytest.mark.timeout(3600)


@each_kind
def test_any_value_is_named_and_counts_as_nothing_nowhere(
    root: str, document: str, find_faults: Check
) -> None:
    @settings(max_examples=3000)
    @given(st.sampled_from(list_values(document)), xml_texts)
    def check(place: tuple[int, str | None], value: str) -> None:
        assume(not PLAIN_NUMBER.fullmatch(value.strip()))  # may be true
        with limited():
            assert list(find_faults(with_value(document, place, value))) == []

    check()


@each_kind
@pytest.mark.parametrize("count", [0, 2, 3_000])
def test_any_number_of_elements_is_read_or_named(
    root: str, document: str, find_faults: Check, count: int
) -> None:
    if root == "domain" and count == 0:
        return  # a domain may be without most of them
    for number in range(1, len(list_elements(document))):
        text = with_count(document, number, count)
        with limited(seconds=20):
            assert list(find_faults(text)) == []


@each_kind
def test_what_is_no_document_costs_what_it_describes(
    root: str, document: str, find_faults: Check
) -> None:
    for text in (*WHOLE_TEXTS, *(declaration + document for declaration in DOCTYPES)):
        with limited(seconds=10):
            assert (
                list(find_faults(text.replace("{root}", document[1:].split()[0].strip(">")))) == []
            )
