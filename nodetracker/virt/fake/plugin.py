"""The driver of nodes in an inventory file, for tests, demonstrations and sizing.

Its nodes can fail and hang on demand.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nodetracker.model.audit import NodeEvent
from nodetracker.model.errors import (
    ConfigError,
    DriverFeatureError,
    DriverUnavailableError,
    HostDataError,
)
from nodetracker.model.node import HostSnapshot, KnownNode, NodeListing, failed_snapshot
from nodetracker.ports import Driver, DriverCapability
from nodetracker.virt.fake.inventory import HANG, FakeInventory, parse_inventory
from nodetracker.virt.plugin import DriverEnvironment, DriverPlugin
from nodetracker.virt.probes import ProbeKey, ProbeRunner

OPTIONS = (
    cfg.StrOpt(
        "inventory_file",
        help="YAML file with the nodes and guests of the fake driver. It is read again at every "
        "audit.",
    ),
)
_POLL_SECONDS = 0.1
LOG = logging.getLogger(__name__)


class FakeDriver:
    """The nodes of an inventory file, which is read again at every audit."""

    capabilities = frozenset({DriverCapability.REMOTE_NODES})

    def __init__(self, inventory_file: str, probes: ProbeRunner) -> None:
        self._path = Path(inventory_file)
        self._source = f"fake:{inventory_file}"
        self._probes = probes
        self._lock = threading.Lock()
        self._loaded: tuple[FakeInventory, str | None] = FakeInventory(), None

    def init_host(self) -> None:
        """Do nothing: a file that is missing now may be created later."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def keep_names(self, known: Sequence[KnownNode]) -> None:
        """Do nothing: the names are those of the file."""

    def get_available_nodes(self) -> NodeListing:
        """Read the file again and return the nodes that it names."""
        fact = self._probes.run(ProbeKey(self._source, "", "nodes"), self._load)
        if fact.value is None:
            raise DriverUnavailableError(self._source, fact.error or "is not ready")
        if not fact.value.is_ready:
            raise DriverUnavailableError(self._source, "is not ready")
        return NodeListing(fact.value.nodenames, fact.value.unnamed)

    def get_available_resource(self, nodename: str) -> HostSnapshot:
        """Return the node's entry as of the last listing.

        Only a node that hangs on demand takes a thread that can be left behind: the others
        are in memory, and a file may have thousands.
        """
        key = ProbeKey(self._source, nodename, "inventory")
        inventory, text = self._loaded
        if inventory.get_failure(nodename) == HANG:
            fact = self._probes.run(key, lambda: self._hang(inventory, text, nodename))
        else:
            fact = self._probes.run_here(key, lambda: self._find(inventory, nodename))
        if fact.value is None:
            return failed_snapshot(nodename, self._source, fact.error or "")
        return fact.value

    def refresh(self) -> None:
        """Do nothing: the file is read at every listing."""

    def events(self, callback: Callable[[NodeEvent], None]) -> None:
        raise DriverFeatureError("the fake driver does not support events")

    def host_power_action(self, action: str) -> None:
        raise DriverFeatureError(f"the fake driver does not support the power action {action}")

    def _load(self) -> FakeInventory:
        text = self._read_text()
        with self._lock:
            inventory, known = self._loaded
            if text != known:
                inventory = parse_inventory(text, self._source)
                self._loaded = inventory, text
            return inventory

    def _read_text(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise HostDataError(self._source, error.strerror or type(error).__name__) from error
        except UnicodeDecodeError as error:
            raise HostDataError(self._source, "not valid UTF-8") from error

    def _find(self, inventory: FakeInventory, nodename: str) -> HostSnapshot:
        failure = inventory.get_failure(nodename)
        if failure not in (None, HANG):
            raise HostDataError(self._source, failure)
        if nodename in inventory.errors:
            raise HostDataError(self._source, inventory.errors[nodename])
        if nodename not in inventory.snapshots:
            raise HostDataError(self._source, f"no such node: {nodename}")
        return inventory.snapshots[nodename]

    def _hang(self, inventory: FakeInventory, text: str | None, nodename: str) -> HostSnapshot:
        """Block until the file changes, as a hung source would; return the node as it was."""
        pause = threading.Event()
        while self._is_unchanged(text):
            pause.wait(_POLL_SECONDS)
        return self._find(inventory, nodename)

    def _is_unchanged(self, text: str | None) -> bool:
        try:
            return self._read_text() == text
        except HostDataError:
            return False


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    if not values["inventory_file"]:
        raise ConfigError("[fake] inventory_file: is required by the fake driver")
    path = Path(values["inventory_file"])
    if not path.is_file():  # it may be created later
        LOG.warning("[fake] inventory_file: %s is not a file; no node is listed until it is", path)
    return FakeDriver(values["inventory_file"], environment.probes)


PLUGIN = DriverPlugin(group="fake", options=OPTIONS, build=_build)
