"""Warnings about placement that were active when the agent started."""

from nodetracker.model.errors import StoreUnavailableError
from nodetracker.model.warning import HostWarning, WarningKind
from nodetracker.placement.reporter import EarlierWarnings
from tests.stores import SqliteStore

REFUSED = HostWarning(WarningKind.PLACEMENT_REFUSED, "node-1", "c", "placement refuses it")


def test_active_warnings_of_placement_are_read_once() -> None:
    store = SqliteStore()
    removal = HostWarning(WarningKind.PLACEMENT_REMOVAL, "node-2", "", "it stays")
    other = HostWarning(WarningKind.CLOCK_SKEW, "", "", "off")
    foreign = HostWarning(WarningKind.PLACEMENT_FOREIGN, "node-1", "", "others")
    for warning in (REFUSED, removal, other, foreign):
        store.raise_warning("host-1", warning)
    store.resolve_warnings(WarningKind.PLACEMENT_FOREIGN, ["host-1"])
    earlier = EarlierWarnings("host-1", store)
    assert set(earlier.list()) == {REFUSED, removal}
    store.resolve_warnings(WarningKind.PLACEMENT_REFUSED, ["host-1"])
    assert set(earlier.list()) == {REFUSED, removal}


def test_without_a_database_they_are_read_later() -> None:
    class Store(SqliteStore):
        is_out = True

        def list_warnings(self, host=None):
            if self.is_out:
                raise StoreUnavailableError("no database")
            return super().list_warnings(host)

    store = Store()
    store.raise_warning("host-1", REFUSED)
    earlier = EarlierWarnings("host-1", store)
    assert list(earlier.list()) == []
    store.is_out = False
    assert list(earlier.list()) == [REFUSED]
