"""Options of the ``[metrics]`` group: where the agent serves its own /metrics and /health."""

from oslo_config import cfg

GROUP = "metrics"

OPTIONS = (
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Whether the agent serves /metrics (Prometheus, OpenMetrics) and /health.",
    ),
    cfg.HostAddressOpt(
        "listen",
        default="127.0.0.1",
        help="Address or name of this machine to serve them on; :: is every address of IPv6 and "
        "IPv4. Whoever reaches it may read them.",
    ),
    cfg.PortOpt(
        "port",
        default=9774,
        min=1,
        help="TCP port to serve them on. While it is taken, the agent works "
        "without it and tries again.",
    ),
)
