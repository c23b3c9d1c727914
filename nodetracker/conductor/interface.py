"""The interface of the conductors: the store port."""

from nodetracker.accounting.ledger.admission import AdmissionCheck
from nodetracker.model.warning import WarningKind
from nodetracker.ports import Store
from nodetracker.rpc.interface import Interface

COMPRESSED_FROM_BYTES = 4096
"""Bodies and answers of at least as many bytes are compressed."""

PLAIN_BYTES = 4 * 1024 * 1024
"""Of a body before it is compressed; only agents of the release before send larger ones."""

CHANGES_BYTES = PLAIN_BYTES - 64 * 1024
"""Of the changes in a body."""

CONDUCTOR = Interface(
    Store,
    topic="conductor",
    version="4.8",
    local=frozenset({"close", "rehearse"}),
    since={
        AdmissionCheck.SPARE: "4.7",
        WarningKind.CAPACITY_JUMP: "4.6",
        WarningKind.CPU_SET_MOVED: "4.6",
        WarningKind.GUEST_UNRESOLVED: "4.6",
        WarningKind.IOMMU_GROUP_SHARED: "4.6",
        WarningKind.PLACEMENT_LOST: "4.6",
        WarningKind.ROW_DAMAGED: "4.6",
        WarningKind.START_UNFIT: "4.8",
    },
)
