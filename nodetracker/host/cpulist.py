"""Parse sets of CPUs as the kernel writes them: lists and masks."""

import re

from nodetracker.model.cpuset import MAX_CPU_ID, CpuSet, parse_cpu_set
from nodetracker.model.errors import HostDataError

_WORD = re.compile(r"[0-9a-fA-F]{1,8}")
_WORD_DIGITS = 8


def parse_cpu_list(text: str, source: str) -> CpuSet:
    r"""Parse a list such as ``"0-7,16\n"``; blank text is the empty set.

    Raises:
        HostDataError: a part is not an id or a range.
    """
    if "^" in text:
        raise HostDataError(source, "is not a list of CPUs")
    try:
        return parse_cpu_set(text)
    except ValueError as error:
        raise HostDataError(source, "is not a list of CPUs") from error


def parse_cpu_mask(text: str, source: str) -> CpuSet:
    r"""Parse a mask of 32-bit words in hex, the highest word first.

    Kernels before 2.6.26 have no lists; their masks have the width that the
    kernel was built for.

    Raises:
        HostDataError: a word is not hexadecimal, or a word after the first
            does not have eight digits.

    >>> sorted(parse_cpu_mask("00000001,00000003\n", "thread_siblings"))
    [0, 1, 32]
    """
    words = text.strip().split(",")
    for position, word in enumerate(words):
        if not _WORD.fullmatch(word) or (position and len(word) != _WORD_DIGITS):
            raise HostDataError(source, "is not a mask of CPUs")
    bits = bin(int("".join(words), 16))[:1:-1] if len(words) <= MAX_CPU_ID // 32 + 1 else ""
    if not bits:
        raise HostDataError(source, "is not a mask of CPUs")
    return frozenset(index for index, bit in enumerate(bits) if bit == "1")
