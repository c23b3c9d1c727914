"""Options of the ``[compute]`` group: what is audited, how often, and what is kept back."""

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
        "fake (the nodes of [fake] inventory_file). Of "
        "several the first gives the facts of its one node and all give its guests.",
    ),
    cfg.IntOpt(
        "update_resources_interval",
        mutable=True,
        default=0,
        max=LONGEST_SECONDS,
        help="Seconds between audits. 0 is the default of 60 s, negative audits only on demand.",
    ),
    cfg.IntOpt(
        "probe_timeout",
        mutable=True,
        default=20,
        min=1,
        max=LONGEST_SECONDS,
        help="Seconds after which a probe counts as hung. Its fact is then held, and it is not "
        "started again until it returns.",
    ),
    cfg.IntOpt(
        "held_fact_expiry",
        mutable=True,
        default=600,
        min=0,
        max=LONGEST_SECONDS,
        help="Seconds after which a held fact is unknown. Its column keeps its value.",
    ),
    cfg.IntOpt(
        "claim_timeout",
        default=600,
        min=1,
        max=LONGEST_SECONDS,
        help="Seconds after which a claim whose guest never came may be given up.",
    ),
    cfg.IntOpt(
        "max_concurrent_audits",
        default=8,
        min=1,
        max=64,
        help="Nodes that are read side by side.",
    ),
    cfg.IntOpt(
        "reserved_host_cpus",
        mutable=True,
        default=0,
        min=0,
        max=_LARGEST_AMOUNT,
        help="CPUs kept for the host; they count as used.",
    ),
    cfg.IntOpt(
        "reserved_host_memory_mb",
        mutable=True,
        default=512,
        min=0,
        max=_LARGEST_AMOUNT,
        help="MiB of memory kept for the host; they count as used.",
    ),
    cfg.IntOpt(
        "reserved_host_disk_mb",
        mutable=True,
        default=0,
        min=0,
        max=_LARGEST_AMOUNT,
        help="MiB of disk kept for the host; they count as used.",
    ),
    cfg.MultiOpt(
        "reserved_huge_pages",
        mutable=True,
        item_type=types.Dict(value_type=types.String()),
        help="Pages of one NUMA cell that are kept for the host, e.g. "
        "node:0,size:2048,count:64 (size in KiB, or with a suffix: 2MB, 1GB). May be given "
        "several times.",
    ),
    cfg.MultiStrOpt(
        "numa_network",
        mutable=True,
        help="The NUMA cells at which the interfaces of a network are, NAME=CELLS, e.g. "
        "physnet0=0 or tunnel=0-1. A claim that names the network in numa.networks gets cells "
        "with one of them. May be given several times.",
    ),
    cfg.Opt(
        "cpu_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="How many virtual CPUs may be promised for each CPU. Unset: what the row has.",
    ),
    cfg.Opt(
        "ram_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="How much memory may be promised for each MiB. Unset: what the row has.",
    ),
    cfg.Opt(
        "disk_allocation_ratio",
        mutable=True,
        type=_RATIO,
        help="How much disk may be promised for each GiB. Unset: what the row has.",
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
        help="CPUs that guests share, e.g. 2-15,^8. Unset: all that are online, or none when "
        "cpu_dedicated_set is set. CPUs that are not online are left out with a warning.",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        mutable=True,
        help="CPUs that guests may be pinned to, e.g. 16-31.",
    ),
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help="Fill NUMA cells one after the other instead of evenly.",
    ),
    cfg.BoolOpt(
        "allow_power_actions",
        default=False,
        help="Whether 'host action' may reboot and shut down this host by systemctl; the agent's "
        "user must be allowed to.",
    ),
    cfg.StrOpt(
        "instances_path",
        default="$state_path/instances",
        regex=ABSOLUTE_PATH,
        help="Where guests' disks are kept: the filesystem of this directory, or of its nearest "
        "existing parent, is the node's disk.",
    ),
)
