"""Calls of one connection, where libvirt answers other than at ease."""

import pytest

from nodetracker.errors import HostDataError
from nodetracker.virt.libvirt.answers import Hooks
from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint
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
    """Makes a client with some of libvirt's calls replaced, and gives libvirt's connection too."""
    require_binding()
    from nodetracker.virt.libvirt.client import LibvirtClient, open_client

    clients = []

    def made(**replaced):
        connection = open_client(ENDPOINT)._connection
        clients.append(LibvirtClient(ENDPOINT, Connection(connection, **replaced)))
        return clients[-1], connection

    yield made
    for client in clients:
        client.close()


def refusing(code, message):
    """Build a call that libvirt refuses."""
    import libvirt

    def refuse(*_arguments):
        error = libvirt.libvirtError(message)
        error.err = (code, 7, message, 2, message, "", "", 0, 0)
        raise error

    return refuse


def hooks(**more):
    return Hooks(
        **{"closed": lambda _: None, "guest": lambda _k, _u: None, "devices": lambda: None} | more
    )


def test_without_the_daemon_of_devices_domains_are_watched_all_the_same(make, caplog):
    message = "Failed to connect socket to '/run/libvirt/virtnodedevd-sock'"
    client, connection = make(nodeDeviceEventRegisterAny=refusing(38, message))
    told = []
    client.watch(hooks(guest=lambda kind, uuid: told.append(uuid)))
    connection.lookupByName("test").suspend()
    wait_until(lambda: told)
    assert told == [connection.lookupByName("test").UUIDString()]
    assert [record.getMessage() for record in caplog.records] == [
        f"test:///default: no events of devices: {message}"
    ]


def test_without_events_of_domains_there_is_no_session(make):
    client, _ = make(domainEventRegisterAny=refusing(38, "no virtqemud"))
    with pytest.raises(HostDataError, match="no virtqemud"):
        client.watch(hooks())


POOL = """<pool type='dir'><name>{}</name><target><path>/{}</path></target></pool>"""


def test_pools_that_go_while_they_are_read_are_left_out(make):
    def list_and_lose(flags):
        pools = connection.listAllStoragePools(flags)
        connection.storagePoolLookupByName("gone").destroy()
        stopped = connection.storagePoolLookupByName("stopped")
        stopped.destroy()
        return pools

    client, connection = make(listAllStoragePools=list_and_lose)
    connection.storagePoolCreateXML(POOL.format("gone", "gone"))
    connection.storagePoolDefineXML(POOL.format("stopped", "stopped")).create()
    assert [pool.name for pool in client.storage_pools()] == ["default-pool"]
