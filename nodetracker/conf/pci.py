"""Options of the ``[pci]`` group: devices available to guests, and their aliases."""

from oslo_config import cfg

GROUP = "pci"

OPTIONS = (
    cfg.MultiStrOpt(
        "device_spec",
        mutable=True,
        default=[],
        help="PCI devices available to guests, as a JSON object or a list of objects; the first "
        "object that matches a device wins. Keys: vendor_id and product_id (hex, or *), address "
        "(e.g. 0000:81:*.*, or an object of regular expressions for domain, bus, slot and "
        "function) or devname (a network interface); any other key is a tag, e.g. "
        "physical_network, trusted, managed, live_migratable. The full address of a physical "
        "function matches its virtual functions, too, also as an object. May be repeated.",
        sample_default=['{"vendor_id": "8086", "product_id": "10ed", "address": "0000:81:*.*"}'],
    ),
    cfg.MultiStrOpt(
        "alias",
        mutable=True,
        default=[],
        help="Alias by which claims request devices, as a JSON object. Keys: name, vendor_id, "
        "product_id, resource_class (matches the tag of this name, or CUSTOM_PCI_8086_10FB made "
        "of a device's ids; with it, vendor_id and product_id may be absent), traits (separated "
        "by commas; all must be in the tag of this name), device_type (type-PCI, type-VF or "
        "type-PF; physical functions are matched only by type-PF), numa_policy (required, legacy, "
        "preferred or socket; the default is legacy), live_migratable and capability_type (pci). "
        "Entries with the same name are alternatives.",
        sample_default=['{"name": "nic", "vendor_id": "8086", "product_id": "10ed"}'],
    ),
    cfg.BoolOpt(
        "report_in_placement",
        default=False,
        help="Whether placement gets a provider for each PCI device.",
    ),
)
