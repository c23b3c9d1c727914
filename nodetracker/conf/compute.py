"""Options of the ``[compute]`` group: drivers, audits, reservations and allocation ratios."""

from oslo_config import cfg, types

from nodetracker.conf.default import ABSOLUTE_PATH, LONGEST_SECONDS

GROUP = "compute"

_LARGEST_AMOUNT = 2**40
"""An EiB in MiB; sums of it fit any column."""

_RATIO = types.Float(min=0.0, max=1000.0)

OPTIONS = (
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
        max=LONGEST_SECONDS,
        help="Seconds between audits. 0 means the default of 60 s. With a negative value audits "
        "run only on demand and on events.",
    ),
    cfg.IntOpt(
        "probe_timeout",
        mutable=True,
        default=20,
        min=1,
        max=LONGEST_SECONDS,
        help="Seconds after which a probe counts as hung. Its fact is then held, and the probe is "
        "not called again until it returns.",
    ),
    cfg.IntOpt(
        "held_fact_expiry",
        mutable=True,
        default=600,
        min=0,
        max=LONGEST_SECONDS,
        help="Seconds after which a held fact becomes unknown. Its columns keep their values.",
    ),
    cfg.IntOpt(
        "claim_timeout",
        default=600,
        min=1,
        max=LONGEST_SECONDS,
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
        max=_LARGEST_AMOUNT,
        help="CPUs reserved for the host. They count as used.",
    ),
    cfg.IntOpt(
        "reserved_host_memory_mb",
        mutable=True,
        default=512,
        min=0,
        max=_LARGEST_AMOUNT,
        help="Memory in MiB reserved for the host. It counts as used.",
    ),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        mutable=True,
        default=0,
        min=0,
        max=_LARGEST_AMOUNT,
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
