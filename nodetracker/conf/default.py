"""Options of the ``[DEFAULT]`` group: host name, addresses, directories and intervals."""

import socket

from oslo_config import cfg

GROUP = "DEFAULT"

ABSOLUTE_PATH = r"^/"
"""Pattern of paths that must not depend on the working directory."""

LONGEST_SECONDS = 2**31 - 1
"""Limit of intervals, so that computed times stay within the range of `datetime`."""

HOST_OPTION = cfg.StrOpt(
    "host",
    default=socket.gethostname(),
    sample_default="<this machine's hostname>",
    help="Name of the host that this agent manages, stored in its services row and in the rows "
    "of its nodes. Changing it creates another host.",
)
"""Read as ``conf.DEFAULT.host``: ``conf.host`` is the group of that name."""


class _TransportUrl(cfg.StrOpt):
    """Replaces the messaging library's option of the same name.

    With it, programs can check whether the option is set without importing
    that library.
    """

    def __ne__(self, other: object) -> bool:
        """Accept the library's registration of its own option; this one remains registered."""
        return getattr(other, "name", None) != self.name


TRANSPORT_URL = _TransportUrl(
    "transport_url",
    secret=True,
    help="URL of the message broker, e.g. rabbit://USER:PASSWORD@HOST:5672/. Unset: agents "
    "serve no calls and send no notifications.",
)

OPTIONS = (
    cfg.StrOpt(
        "my_ip",
        sample_default="<address of the default route>",
        help="Address of this host, as stored in its rows. Unset: the address of the default "
        "route, or 127.0.0.1 without one.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/nodetracker",
        regex=ABSOLUTE_PATH,
        help="Directory of the agent's files: its identity in compute_id and, unless [database] "
        "connection is set, its SQLite database.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=1,
        max=LONGEST_SECONDS,
        help="Seconds between heartbeats.",
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        max=LONGEST_SECONDS,
        help="Seconds without a heartbeat after which a service is down. It must be at least "
        "three times report_interval.",
    ),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        mutable=True,
        default=60,
        min=0,
        max=LONGEST_SECONDS,
        help="Seconds that a running audit may take to finish after SIGTERM.",
    ),
)
