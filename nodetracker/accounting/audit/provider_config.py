"""What operators configure for nodes' providers: provider.yaml files, and device specs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nodetracker.accounting.pci.columns import GPU_RESOURCE_CLASS
from nodetracker.model.errors import ConfigError
from nodetracker.model.node import NodeRecord
from nodetracker.model.pci import (
    DeviceSpec,
    PciDeviceType,
    TrackedDevice,
    find_spec,
    has_physical_network,
    list_traits_of,
    resource_class_of,
    track_device,
)
from nodetracker.model.provider import ProviderConfig
from nodetracker.model.warning import WARNING_ITEM_LENGTH, WHOLE_HOST, HostWarning, WarningKind


def find_config(
    configs: Iterable[ProviderConfig], uuid: str | None, nodename: str
) -> ProviderConfig | None:
    """Return the entry of a node: by its uuid, else by its name, else that of every node.

    Args:
        uuid: None when it is not known yet.
    """
    every_node = None
    by_name = None
    for config in configs:
        if config.is_empty:
            continue
        if uuid is not None and config.uuid == uuid:
            return config
        if config.name == nodename:
            by_name = config
        elif config.is_for_every_node:
            every_node = config
    return by_name or every_node


def inventory_column(before: Mapping[str, Any], config: ProviderConfig | None) -> dict[str, Any]:
    """Build the column ``inventory``: the driver's classes, as stored, and those of the files.

    Args:
        before: the stored column.
    """
    own = {name: entry for name, entry in before.items() if name == GPU_RESOURCE_CLASS}
    added = {} if config is None else config.inventories
    return own | {name: entry.as_entry() for name, entry in sorted(added.items())}


def traits_column(traits: Collection[str], config: ProviderConfig | None) -> list[str]:
    """Build the column ``traits``: the driver's and those of the files."""
    return sorted({*traits, *(() if config is None else config.traits)})


def check_configs(configs: Sequence[ProviderConfig], nodes: Iterable[NodeRecord]) -> None:
    """Check that no node has two entries of its own.

    Raises:
        ConfigError: one has; the message names the node, both files and both entries.
    """
    for node in nodes:
        own = [
            config
            for config in configs
            if not config.is_empty and (node.uuid == config.uuid or node.nodename == config.name)
        ]
        if len(own) > 1:
            first, second = own[:2]
            raise ConfigError(
                f"{second.source}: provider {second.identification}: node {node.nodename} "
                f"(uuid {node.uuid}) has another entry, {first.identification} in {first.source}"
            )


def list_unused_configs(
    configs: Iterable[ProviderConfig], nodes: Collection[NodeRecord]
) -> list[HostWarning]:
    """Return a warning of each entry that adds nothing, or identifies no node of the host."""
    known = {node.uuid for node in nodes} | {node.nodename for node in nodes}
    reasons: dict[str, str] = {}
    for config in configs:
        name = config.identification
        if config.is_empty:
            reasons[name] = explain_empty(config)
        elif not config.is_for_every_node and name not in known:
            kind = "name" if config.uuid is None else "uuid"
            reasons[name] = (
                f"{config.source}: provider {name}: no node of this host has this {kind}; "
                "the entry is ignored"
            )
    return [
        HostWarning(WarningKind.PROVIDER_CONFIG, WHOLE_HOST, name[:WARNING_ITEM_LENGTH], reason)
        for name, reason in reasons.items()
    ]


def explain_empty(config: ProviderConfig) -> str:
    """Return why an entry that adds nothing is ignored."""
    return (
        f"{config.source}: provider {config.identification}: adds neither a resource class nor a "
        "trait; the entry is ignored"
    )


_OPTION = "[pci] device_spec"


def check_reported_specs(specs: Sequence[DeviceSpec], devices: Iterable[TrackedDevice]) -> None:
    """Check specs against the devices of one node.

    Raises:
        ConfigError: a spec cannot be reported, or two contradict each other; the
            message names them.
    """
    for named in specs:
        if named.devname is not None:
            raise ConfigError(
                f"{_OPTION}: {named}: devname cannot be used with report_in_placement"
            )
    first: dict[str, tuple[DeviceSpec, TrackedDevice]] = {}
    for device in sorted(devices, key=lambda found: found.address):
        spec = find_spec(device, specs, {})
        if spec is None:
            continue
        tagged = track_device(device, tags=spec.tags)
        if has_physical_network(tagged):
            continue
        if device.dev_type is PciDeviceType.VF and spec.tags.get("one_time_use") == "true":
            raise ConfigError(
                f"{_OPTION}: {spec}: one_time_use is not supported for the virtual function "
                f"{device.address}"
            )
        card = device.parent_addr or device.address
        other, known = first.setdefault(card, (spec, tagged))
        problem = _find_contradiction(known, tagged)
        if problem is not None:
            raise ConfigError(f"{_OPTION}: {other} and {spec}: card {card}: {problem}")


def _find_contradiction(first: TrackedDevice, second: TrackedDevice) -> str | None:
    if first.address == second.address:
        return None
    if (first.parent_addr is None) != (second.parent_addr is None):
        return "both the function and its virtual functions are matched"
    if resource_class_of(first) != resource_class_of(second):
        classes = f"{resource_class_of(first)} and {resource_class_of(second)}"
        return f"its virtual functions have different resource classes, {classes}"
    if set(list_traits_of(first)) != set(list_traits_of(second)):
        return "its virtual functions have different traits"
    return None
