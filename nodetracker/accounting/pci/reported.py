"""Check device specs for contradictions that a report of devices to placement cannot express.

A card is one provider with one resource class and one set of traits, as in Nova. Devices with
a physical network are not reported, so they contradict nothing.
"""

from collections.abc import Iterable, Sequence

from nodetracker.model.errors import ConfigError
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
