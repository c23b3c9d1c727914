"""The interface of the conductors: the store port."""

from nodetracker.model.warning import WarningKind
from nodetracker.ports import Store
from nodetracker.rpc.interface import Interface

CONDUCTOR = Interface(
    Store,
    topic="conductor",
    version="3.16",
    local=frozenset({"close"}),
    since={WarningKind.CLAIM_UNUSED: "3.15", WarningKind.CLAIM_MISMATCH: "3.15"},
)
