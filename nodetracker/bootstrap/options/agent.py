"""Options of agents: ``[compute]``, ``[host]``, ``[pci]``, ``[metrics]`` and ``[placement]``."""

from oslo_config import cfg, types

from nodetracker.bootstrap.options.default import ABSOLUTE_PATH, MAX_SECONDS, option_group
from nodetracker.model.start import AdmissionMode

_MAX_AMOUNT = 2**40
"""An EiB in MiB; sums of it fit any column."""

_RATIO = types.Float(min=0.0, max=1000.0)

COMPUTE = option_group(
    "compute",
    cfg.ListOpt(
        "compute_driver",
        default=["local"],
        help="Drivers that read the host's nodes and guests: local (this machine, no guests), "
        "docker (this machine and its containers), libvirt (hypervisors and their domains) or "
        "fake (the nodes of [fake] inventory_file). With several drivers, the first provides the "
        "facts of the host's only node, and all provide its guests.",
    ),
    cfg.ListOpt(
        "compute_monitors",
        default=[],
        help="Monitors that measure this machine for the column metrics of its nodes: "
        "cpu.virt_driver (CPU time, shares of it since the last audit, and frequency). Not used "
        "for nodes that are other machines.",
    ),
    cfg.IntOpt(
        "update_resources_interval",
        mutable=True,
        default=0,
        max=MAX_SECONDS,
        help="Seconds between audits. 0 means the default of 60 s. With a negative value audits "
        "run only on demand and on events.",
    ),
    cfg.IntOpt(
        "probe_timeout",
        mutable=True,
        default=20,
        min=1,
        max=MAX_SECONDS,
        help="Seconds after which a probe counts as hung. Its fact is then held, and the probe is "
        "not called again until it returns.",
    ),
    cfg.IntOpt(
        "held_fact_expiry",
        mutable=True,
        default=600,
        min=0,
        max=MAX_SECONDS,
        help="Seconds after which a held fact becomes unknown. Its columns keep their values.",
    ),
    cfg.StrOpt(
        "unresolved",
        mutable=True,
        default="withhold",
        choices=[
            (
                "withhold",
                "withhold everything that it may be from claims, candidates and placement",
            ),
            ("warn", "only warn of it"),
        ],
        help="What happens where a guest uses a resource of the host by a name that nothing "
        "explains, e.g. a GPU by a uuid that no library knows.",
    ),
    cfg.StrOpt(
        "admission",
        default="off",
        choices=[mode.value for mode in AdmissionMode],
        help="What the engines of this host are answered that ask whether a guest may start, see "
        "nodetracker-manage admission install. warn and enforce need inactive_guests = ignored.",
    ),
    cfg.StrOpt(
        "inactive_guests",
        mutable=True,
        default="counted",
        choices=[
            ("counted", "they take as much as when they run, so each can be started at any time"),
            ("ignored", "they take only their disk until they are started"),
        ],
        help="What instances take that are switched off or saved to a file and have no claim. "
        "Hosts whose instances are defined and started by hand often define more than fit.",
    ),
    cfg.IntOpt(
        "claim_timeout",
        default=600,
        min=1,
        max=MAX_SECONDS,
        help="Seconds after which a held claim whose guest has not appeared may expire. It is that "
        "of the process that grants or renews the claim: set the same for agents, REST services "
        "and commands.",
    ),
    cfg.IntOpt(
        "max_concurrent_audits",
        default=8,
        min=1,
        max=64,
        help="Number of nodes that are read in parallel.",
    ),
    cfg.IntOpt(
        "reserved_host_cpus",
        mutable=True,
        default=0,
        min=0,
        max=_MAX_AMOUNT,
        help="CPUs reserved for the host. They count as used.",
    ),
    cfg.IntOpt(
        "reserved_host_memory_mb",
        mutable=True,
        default=512,
        min=0,
        max=_MAX_AMOUNT,
        help="Memory in MiB reserved for the host. It counts as used.",
    ),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        mutable=True,
        default=0,
        min=0,
        max=_MAX_AMOUNT,
        help="Disk space in MiB reserved for the host. It counts as used.",
    ),
    cfg.MultiOpt(
        "reserved_huge_pages",
        mutable=True,
        item_type=types.Dict(value_type=types.String()),
        help="Memory pages of one NUMA cell that are reserved for the host, e.g. "
        "node:0,size:2048,count:64 (size in KiB, or with a suffix: 2MB, 1GB). May be repeated.",
    ),
    cfg.MultiStrOpt(
        "numa_network",
        mutable=True,
        help="NUMA cells of the interfaces of a network, as NAME=CELLS, e.g. physnet0=0 or "
        "tunnel=0-1. A claim that lists the network in numa.networks is placed on at least one "
        "of these cells. May be repeated.",
    ),
    cfg.Opt(
        "cpu_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="Virtual CPUs that may be claimed for each CPU. Unset: the ratio of the node's row.",
    ),
    cfg.Opt(
        "ram_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="MiB that may be claimed for each MiB of memory. Unset: the ratio of the node's row.",
    ),
    cfg.Opt(
        "disk_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="GiB that may be claimed for each GiB of disk. Unset: the ratio of the node's row.",
    ),
    cfg.Opt(
        "initial_cpu_allocation_ratio",
        mutable=True,
        type=_RATIO,
        default=4.0,
        help="cpu_allocation_ratio of a new node's row.",
    ),
    cfg.Opt(
        "initial_ram_allocation_ratio",
        mutable=True,
        type=_RATIO,
        default=1.0,
        help="ram_allocation_ratio of a new node's row.",
    ),
    cfg.Opt(
        "initial_disk_allocation_ratio",
        mutable=True,
        type=_RATIO,
        default=1.0,
        help="disk_allocation_ratio of a new node's row.",
    ),
    cfg.StrOpt(
        "cpu_shared_set",
        mutable=True,
        help="CPUs shared by guests, e.g. 2-15,^8. Unset: all online CPUs, or none when "
        "cpu_dedicated_set is set. CPUs that are offline are ignored with a warning.",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        mutable=True,
        help="CPUs to which guests may be pinned, e.g. 16-31.",
    ),
    cfg.StrOpt(
        "provider_config_location",
        mutable=True,
        default="/etc/nodetracker/provider_config",
        regex=ABSOLUTE_PATH,
        help="Directory of provider.yaml files in Nova's format. They add custom resource classes "
        "and traits to nodes' rows, by which claims are admitted. All files whose name ends in "
        ".yaml are read, at the start and at a reload.",
    ),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help="Fill NUMA cells one after the other instead of spreading guests evenly.",
    ),
    cfg.BoolOpt(
        "limit_numa_cells",
        mutable=True,
        default=True,
        help="Limit each NUMA cell as the node is: its shared CPUs by cpu_allocation_ratio and "
        "its memory outside huge pages by ram_allocation_ratio. limits.numa of a claim replaces "
        "these limits.",
    ),
    cfg.BoolOpt(
        "allow_power_actions",
        default=False,
        help="Whether 'host action' may reboot and shut down this host with systemctl. The "
        "agent's user needs the permission.",
    ),
    cfg.StrOpt(
        "instances_path",
        default="$state_path/instances",
        regex=ABSOLUTE_PATH,
        help="Directory of guests' disks. The filesystem of this directory, or of its nearest "
        "existing parent, is reported as the node's disk.",
    ),
)

HOST = option_group(
    "host",
    cfg.StrOpt(
        "procfs",
        default="/proc",
        regex=ABSOLUTE_PATH,
        help="Path of the host's proc filesystem, e.g. its mount point inside a container.",
    ),
    cfg.StrOpt("sysfs", default="/sys", regex=ABSOLUTE_PATH, help="Path of the host's sysfs."),
    cfg.StrOpt(
        "rootfs", default="/", regex=ABSOLUTE_PATH, help="Path of the host's root filesystem."
    ),
)

PCI = option_group(
    "pci",
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

METRICS = option_group(
    "metrics",
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Whether the agent serves /metrics (Prometheus, OpenMetrics) and /health.",
    ),
    cfg.HostAddressOpt(
        "listen",
        default="127.0.0.1",
        help="Address or name of this machine on which they are served; :: means all IPv6 and "
        "IPv4 addresses. Access is not authenticated.",
    ),
    cfg.PortOpt(
        "port",
        default=9774,
        min=1,
        help="TCP port on which they are served. While it is in use, the agent runs without it "
        "and retries.",
    ),
)

PLACEMENT = option_group(
    "placement",
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether the agent keeps resource providers, inventories, traits and allocations of "
        "its nodes in placement. Requires auth_type.",
    ),
    cfg.IntOpt(
        "workers",
        default=4,
        min=1,
        max=64,
        help="Number of threads that send requests, each for one node at a time.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=10,
        min=0.1,
        max=600,
        help="Seconds without a byte of an answer after which a request fails.",
    ),
    cfg.FloatOpt(
        "resource_provider_association_refresh",
        default=300,
        min=0,
        help="Seconds between checks whether somebody else has changed the nodes' providers or "
        "deleted allocations on them; 0 means never.",
    ),
    cfg.FloatOpt(
        "leak_grace",
        default=3600,
        min=0,
        help="Seconds for which a consumer of nodetracker that the ledger does not know may have "
        "allocations before it is reported as leaked.",
    ),
    cfg.BoolOpt(
        "heal_leaks",
        default=False,
        help="Whether allocations of leaked consumers are deleted.",
    ),
    cfg.BoolOpt(
        "withhold_huge_pages",
        mutable=True,
        default=False,
        help="Reserve unused huge pages in the inventory of MEMORY_MB, so that placement offers "
        "only memory that claims without a page size can get. Set it where no workload that is "
        "scheduled by placement requests huge pages.",
    ),
)
"""Without those of keystoneauth, which its sessions add."""
