"""Options of the ``[DEFAULT]`` group: who the agent is and how it keeps time."""

import socket

from oslo_config import cfg

GROUP = "DEFAULT"

ABSOLUTE_PATH = r"^/"
"""Of paths that must not depend on where a program was started."""

LONGEST_SECONDS = 2**31 - 1
"""Beyond this, times that are reckoned with would leave the calendar."""

HOST_OPTION = cfg.StrOpt(
    "host",
    default=socket.gethostname(),
    sample_default="<this machine's hostname>",
    help="Name that this agent answers for. It is the host of its services row and of its "
    "nodes' rows; changing it makes another host of this one.",
)
"""Read as ``conf.DEFAULT.host``: ``conf.host`` is the group of that name."""


class _TransportUrl(cfg.StrOpt):
    """Stands for the messaging library's own option of the same name.

    So it can be read, and told to be unset, where that library is not imported.
    """

    def __ne__(self, other: object) -> bool:
        """Let the library register its own beside this one, which stays."""
        return getattr(other, "name", None) != self.name


TRANSPORT_URL = _TransportUrl(
    "transport_url",
    secret=True,
    help="Message broker of the agents, e.g. rabbit://USER:PASSWORD@HOST:5672/. Unset: agents "
    "serve no calls and send no notifications.",
)

OPTIONS = (
    cfg.StrOpt(
        "my_ip",
        sample_default="<address of the default route>",
        help="Address of this host that rows show. Unset: the address of the default route, "
        "127.0.0.1 without one.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/nodetracker",
        regex=ABSOLUTE_PATH,
        help="Directory of the agent's own files: its identity in compute_id and, unless "
        "[database] connection says otherwise, its SQLite database.",
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
        help="Seconds of silence after which a service is down. Less than three times "
        "report_interval is refused.",
    ),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        mutable=True,
        default=60,
        min=0,
        max=LONGEST_SECONDS,
        help="Seconds that a running audit gets to end after SIGTERM.",
    ),
)
