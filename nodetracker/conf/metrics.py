"""Options of the ``[metrics]`` group: where the agent serves /metrics and /health."""

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
