"""Options of the ``[pci]`` group: which devices guests may have, and by which names."""

from oslo_config import cfg

GROUP = "pci"

OPTIONS = (
    cfg.MultiStrOpt(
        "device_spec",
        mutable=True,
        default=[],
        help="PCI devices that guests may have, as a JSON object or a list of them; the first "
        "that names a device wins. Keys: vendor_id and product_id (hex, or *), address (e.g. "
        "0000:81:*.*, or an object of regular expressions for domain, bus, slot and function) or "
        "devname (a network interface); any other key is a tag, e.g. physical_network, trusted, "
        "managed, live_migratable. The full address of a physical function names its virtual "
        "functions too. May be given several times.",
        sample_default=['{"vendor_id": "8086", "product_id": "10ed", "address": "0000:81:*.*"}'],
    ),
    cfg.MultiStrOpt(
        "alias",
        mutable=True,
        default=[],
        help="Name by which claims ask for devices, as a JSON object. Keys: name, vendor_id, "
        "product_id, device_type (type-PCI, type-VF or type-PF; physical functions must be asked "
        "for), numa_policy (required, legacy, preferred or socket; legacy if none is given) and "
        "live_migratable. Entries of one name are alternatives.",
        sample_default=['{"name": "nic", "vendor_id": "8086", "product_id": "10ed"}'],
    ),
    cfg.BoolOpt(
        "report_in_placement",
        default=False,
        help="Whether placement gets a provider for each PCI device.",
    ),
)
