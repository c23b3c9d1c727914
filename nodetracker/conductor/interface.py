"""The interface of the conductors: the store port."""

from nodetracker.ports import Store
from nodetracker.rpc.interface import Interface

CONDUCTOR = Interface(
    Store,
    topic="conductor",
    version="4.0",
    local=frozenset({"close"}),
)
