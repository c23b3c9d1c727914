"""LibvirtClient when libvirt reports errors and missing features."""

import pytest

from nodetracker.model.audit import EventKind
from nodetracker.model.errors import DriverUnavailableError, HostDataError
from nodetracker.virt.libvirt.storage import DiskSizes
from nodetracker.virt.libvirt.types import EventHandlers, HypervisorEndpoint
from tests.libvirt_nodes import require_binding
from tests.programs import wait_until

ENDPOINT = HypervisorEndpoint("test:///default")


class Connection:
    """A connection to libvirt's test driver of which some calls are replaced."""

    def __init__(self, connection, **replaced):
        self._connection = connection
        self._replaced = replaced

    def __getattr__(self, name):
        return self._replaced.get(name) or getattr(self._connection, name)


@pytest.fixture
def make():
    """Build a client some of whose libvirt calls are replaced; return libvirt's connection too."""
    require_binding()
    from nodetracker.virt.libvirt.client import LibvirtClient, open_client

    clients = []

    def build(**replaced):
        connection = open_client(ENDPOINT)._connection
        clients.append(LibvirtClient(ENDPOINT, Connection(connection, **replaced)))
        return clients[-1], connection

    yield build
    for client in clients:
        client.close()


def failing(code, message):
    """Return a call that raises a libvirtError."""
    import libvirt

    def fail(*_arguments):
        error = libvirt.libvirtError(message)
        error.err = (code, 7, message, 2, message, "", "", 0, 0)
        raise error

    return fail


def handlers(on_guest_event=lambda _kind, _uuid: None):
    return EventHandlers(lambda _reason: None, on_guest_event, lambda: None)


def test_domain_events_arrive_without_the_device_daemon(make, caplog):
    message = "Failed to connect socket to '/run/libvirt/virtnodedevd-sock'"
    client, connection = make(nodeDeviceEventRegisterAny=failing(38, message))
    uuids = []
    client.register_events(handlers(lambda _kind, uuid: uuids.append(uuid)))
    connection.lookupByName("test").suspend()
    wait_until(lambda: uuids)
    assert uuids == [connection.lookupByName("test").UUIDString()]
    assert [record.getMessage() for record in caplog.records] == [
        f"test:///default: device events are not available: {message}"
    ]


def test_missing_domain_events_are_an_error(make):
    client, _ = make(domainEventRegisterAny=failing(38, "no virtqemud"))
    with pytest.raises(HostDataError, match="no virtqemud"):
        client.register_events(handlers())


def test_a_call_that_fails_for_one_domain_names_it(make):
    class Domain:
        def XMLDesc(self, _flags):  # noqa: N802
            return bytes([0xFF]).decode()

    calls = {
        "state change lock": failing(68, "cannot acquire state change lock"),
        "not UTF-8": lambda _uuid: Domain(),
    }
    for reason, call in calls.items():
        client, _ = make(lookupByUUIDString=call)
        with pytest.raises(HostDataError, match=reason) as caught:
            client.get_domain_xml("u1")
        assert caught.value.source == "domain u1"


def test_a_call_fails_for_all_domains_when_the_connection_is_broken(make):
    client, _ = make(
        lookupByUUIDString=failing(38, "end of file while reading data"), isAlive=lambda: 0
    )
    with pytest.raises(DriverUnavailableError, match="end of file"):
        client.get_domain_xml("u1")


POOL = """<pool type='dir'><name>{}</name><target><path>/{}</path></target></pool>"""


def test_pools_that_disappear_while_they_are_read_are_skipped(make):
    def list_then_stop(flags):
        pools = connection.listAllStoragePools(flags)
        connection.storagePoolLookupByName("gone").destroy()
        stopped = connection.storagePoolLookupByName("stopped")
        stopped.destroy()
        return pools

    client, connection = make(listAllStoragePools=list_then_stop)
    connection.storagePoolCreateXML(POOL.format("gone", "gone"))
    connection.storagePoolDefineXML(POOL.format("stopped", "stopped")).create()
    assert [pool.name for pool in client.list_storage_pools()] == ["default-pool"]


VOLUME = "<volume><name>web</name><capacity unit='GiB'>6</capacity></volume>"


def test_a_volume_has_the_size_that_its_pool_reports(make):
    client, connection = make()
    connection.storagePoolLookupByName("default-pool").createXML(VOLUME)
    assert client.get_volume_sizes("default-pool", "web").capacity == 6 * 2**30
    for pool, volume in (("default-pool", "lost"), ("lost", "web")):
        with pytest.raises(HostDataError, match="no storage .* matching name 'lost'"):
            client.get_volume_sizes(pool, volume)


def test_sizes_of_one_domain_are_left_out_if_it_is_gone_or_reports_none(make):
    class Disks:
        def blockInfo(self, target):  # noqa: N802
            if target == "vdb":
                failing(3, "this function is not supported")()
            return [5 * 2**30, 200704, 0]

    client, _ = make(lookupByUUIDString=lambda _uuid: Disks())
    assert client.get_disk_sizes("uuid", ["vda", "vdb"]) == {"vda": DiskSizes(5 * 2**30, 200704)}
    client, _ = make(lookupByUUIDString=failing(42, "Domain not found"))
    assert client.get_disk_sizes("uuid", ["vda"]) == {}
    client, _ = make(lookupByUUIDString=failing(68, "cannot acquire state change lock"))
    with pytest.raises(HostDataError, match="state change lock"):
        client.get_disk_sizes("uuid", ["vda"])


@pytest.mark.parametrize(
    ("event", "detail", "kind"),
    [
        ("STOPPED", "STOPPED_MIGRATED", EventKind.GONE),
        ("STOPPED", "STOPPED_DESTROYED", EventKind.GONE),
        ("STOPPED", "STOPPED_SAVED", EventKind.STOPPED),
        ("UNDEFINED", "UNDEFINED_REMOVED", EventKind.GONE),
        ("SHUTDOWN", "SHUTDOWN_FINISHED", EventKind.STOPPED),
        ("STARTED", "STARTED_MIGRATED", EventKind.CHANGED),
    ],
)
def test_a_domain_that_stopped_or_migrated_away_may_be_gone(event, detail, kind):
    """A move that the ledger knows keeps its source's claim, whatever events say."""
    require_binding()
    import libvirt

    from nodetracker.virt.libvirt.client import EventRegistration

    event, detail = (getattr(libvirt, f"VIR_DOMAIN_EVENT_{name}") for name in (event, detail))
    assert EventRegistration._classify_lifecycle_event(event, detail) is kind
