"""Options of the ``[placement]`` group, except those of keystoneauth, which its sessions add."""

from oslo_config import cfg

GROUP = "placement"

OPTIONS = (
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
        help="Seconds between checks whether somebody else has changed the nodes' providers; "
        "0 means never.",
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
)
