"""Options of the ``[conductor]`` group: who does the database's work for the agents."""

from oslo_config import cfg

GROUP = "conductor"

OPTIONS = (
    cfg.BoolOpt(
        "use_local",
        default=True,
        help="Whether this program works with the database itself. False: it asks the conductors "
        "over the message broker, and needs no [database] connection.",
    ),
    cfg.IntOpt(
        "workers",
        default=16,
        min=1,
        max=256,
        help="Calls that one conductor carries out side by side, each on a connection of its own "
        "to the database.",
    ),
)
