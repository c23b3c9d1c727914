"""Options of the ``[scheduler]`` group: how claims without a host choose a node."""

from oslo_config import cfg, types

GROUP = "scheduler"

_MULTIPLIER = types.Float(min=-1000.0, max=1000.0)

OPTIONS = (
    cfg.Opt(
        "ram_weight_multiplier",
        type=_MULTIPLIER,
        default=1.0,
        help="How much free memory counts when candidates are ordered. Positive values prefer "
        "the node with the most, which spreads workloads; negative ones prefer the node with the "
        "least, which fills one node after the other; 0 ignores it.",
    ),
    cfg.Opt(
        "cpu_weight_multiplier",
        type=_MULTIPLIER,
        default=1.0,
        help="How much free shared CPUs (VCPU) count, like ram_weight_multiplier.",
    ),
    cfg.Opt(
        "disk_weight_multiplier",
        type=_MULTIPLIER,
        default=1.0,
        help="How much free disk counts, like ram_weight_multiplier.",
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        max=1000,
        help="Number of best candidates among which a claim without a host chooses by its uuid. "
        "Larger values distribute concurrent claims over more nodes, at the expense of the order "
        "by weight.",
    ),
)
