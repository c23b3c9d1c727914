"""Keep warnings whose cause an audit could not evaluate, because its source did not answer."""

from collections.abc import Collection, Iterable, Mapping

from nodetracker.model.node import FACT_NAMES
from nodetracker.model.warning import WHOLE_HOST, HostWarning, WarningKind

LISTING = "listing"
"""In `list_unseen`, the list of nodes, which is not a fact of any node."""

_ANY = frozenset(FACT_NAMES)
_EVALUATED_FROM: Mapping[WarningKind, frozenset[str]] = {
    WarningKind.GUEST_UNREADABLE: frozenset({"guests"}),
    WarningKind.GUEST_LISTED_TWICE: frozenset({"guests"}),
    WarningKind.GUEST_VANISHED: frozenset({"guests"}),
    WarningKind.CLAIM_LOST: frozenset({"guests"}),
    WarningKind.CLAIM_MISMATCH: frozenset({"guests"}),
    WarningKind.CLAIM_UNUSED: frozenset({"guests"}),
    WarningKind.DISK_UNREADABLE: frozenset({"guests", "storage"}),
    WarningKind.HOST_DATA: frozenset({"cpu", "memory", "numa", "storage", "pci", "system"}),
    WarningKind.MEMORY_MISMATCH: frozenset({"memory", "numa", "cpu"}),
    WarningKind.CPU_SET_OFFLINE: frozenset({"cpu"}),
    WarningKind.ENGINE_DATA: frozenset({"guests", "engine"}),
    WarningKind.ENGINE_NAME: frozenset({"engine"}),
    WarningKind.NODE_UUID_REFUSED: _ANY,
    WarningKind.ROW_REFUSED: _ANY,
    WarningKind.ORPHAN_NODE_KEPT: frozenset({LISTING}),
}
"""Facts without which a warning can be neither raised nor resolved.

Kinds that are missing are evaluated from stored rows, claims or the host itself.
"""


def list_unseen(
    active: Iterable[HostWarning],
    found: Iterable[HostWarning],
    unread: Mapping[str, Collection[str]],
    is_listing_complete: bool,
) -> list[HostWarning]:
    """Return the warnings that remain active although an audit did not find them.

    Args:
        active: the host's warnings before the audit.
        found: the warnings that the audit found.
        unread: nodename -> the facts that the audit could not read, of each node that it read.
        is_listing_complete: whether every source listed its nodes.
    """
    known = {warning.key for warning in found}
    kept = []
    for warning in active:
        if warning.nodename == WHOLE_HOST or warning.key in known:
            continue
        if warning.nodename not in unread:
            is_unseen = not is_listing_complete
        else:
            sources = _EVALUATED_FROM.get(warning.kind, frozenset())
            is_unseen = not sources.isdisjoint(unread[warning.nodename])
        if is_unseen:
            kept.append(warning)
    return kept
