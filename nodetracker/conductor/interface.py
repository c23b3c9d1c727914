"""What conductors serve: the store port, and which of its methods may be asked again."""

from nodetracker.ports import Store
from nodetracker.rpc.interface import Interface

CONDUCTOR = Interface(Store, topic="conductor", version="1.0", local=frozenset({"close"}))

REPEATABLE = frozenset(
    {
        # Nothing is written.
        "load_versions", "load_nodes", "load_ledger_versions", "load_ledger_nodes", "list_claims",
        "list_history", "list_migrations", "list_nodes", "list_services", "list_split_brains",
        "list_warnings", "now",
        "try_claim",
        # Asked again, each finds its own result and answers that.
        "abort_claim", "confirm_claim", "confirm_migration", "create_claim", "create_migration",
        "mark_service",
        "renew_claim", "revert_migration", "set_service", "sync_warnings",
    }
)  # fmt: skip
"""Methods that are sent again when an answer is lost, as when a conductor dies with a call.

The others are an agent's writes, which compare epoch, generation and count: the
next audit or heartbeat finds out whether they were done. Or they delete or
rename, and say to whoever asks again that it is done.
"""
