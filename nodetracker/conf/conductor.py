"""Options of the ``[conductor]`` group: how programs access the database."""

from oslo_config import cfg

GROUP = "conductor"

OPTIONS = (
    cfg.BoolOpt(
        "use_local",
        default=True,
        help="Whether this program accesses the database directly. If false, it calls the "
        "conductors over the message broker and needs no [database] connection.",
    ),
    cfg.IntOpt(
        "workers",
        default=16,
        min=1,
        max=256,
        help="Number of calls that a conductor processes in parallel, each on a separate database "
        "connection.",
    ),
)
