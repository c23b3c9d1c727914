"""Options that every program has: ``[DEFAULT]``, ``[database]`` and ``[conductor]``."""

import socket
from typing import NamedTuple

from oslo_config import cfg, types


class OptionGroup(NamedTuple):
    """The options of one group of the configuration."""

    name: str
    options: tuple[cfg.Opt, ...]


def option_group(name: str, *options: cfg.Opt) -> OptionGroup:
    """Return a group of options."""
    return OptionGroup(name, options)


ABSOLUTE_PATH = r"^/"
"""Pattern of paths that must not depend on the working directory."""

MAX_SECONDS = 2**31 - 1
"""Limit of intervals, so that computed times stay within the range of `datetime`."""

HOST_OPTION = cfg.StrOpt(
    "host",
    default=socket.gethostname(),
    sample_default="<this machine's hostname>",
    help="Name of the host that this agent manages, stored in its services row and in the rows "
    "of its nodes. Changing it creates another host.",
)
"""Read as ``conf.DEFAULT.host``: ``conf.host`` is the group of that name."""


class LibraryOption(cfg.Opt):
    """Replaces a library's option of the same name.

    With it, programs can read the option without importing that library.
    """

    def __ne__(self, other: object) -> bool:
        """Accept the library's registration of its own option; this one remains registered."""
        return getattr(other, "name", None) != self.name


TRANSPORT_URL = LibraryOption(
    "transport_url",
    secret=True,
    help="URL of the message broker, e.g. rabbit://USER:PASSWORD@HOST:5672/. Unset: agents "
    "take calls with their heartbeats and send no notifications.",
)

DEFAULT = option_group(
    "DEFAULT",
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
        max=MAX_SECONDS,
        help="Seconds between heartbeats.",
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        max=MAX_SECONDS,
        help="Seconds without a heartbeat after which a service is down. It must be at least "
        "three times report_interval.",
    ),
    LibraryOption(
        "graceful_shutdown_timeout",
        type=types.Integer(min=0, max=MAX_SECONDS),
        mutable=True,
        default=60,
        help="Seconds that a running audit may take to finish after SIGTERM.",
    ),
)

_MAX_DAYS = 36500

DATABASE = option_group(
    "database",
    cfg.IntOpt(
        "released_claims_days",
        default=0,
        min=0,
        max=_MAX_DAYS,
        help="Days after which released claims, migrations that ended and the history of both are "
        "deleted; 0 = never. "
        "The first by name of the conductors and API services that are up deletes them, so all "
        "of these need the same value. A claim that a migration still refers to is kept.",
    ),
    cfg.IntOpt(
        "history_days",
        default=0,
        min=0,
        max=_MAX_DAYS,
        help="Days after which other history, resolved warnings and removals of providers that "
        "nobody attempted are deleted, by the same service; 0 = never.",
    ),
)

CONDUCTOR = option_group(
    "conductor",
    cfg.BoolOpt(
        "use_local",
        default=True,
        help="Whether this program accesses the database directly. If false, it calls "
        "conductors and needs no [database] connection.",
    ),
    cfg.ListOpt(
        "endpoint",
        default=[],
        help="URLs of the conductors that an agent without a database calls, such as "
        "https://control-1:8775, https://control-2:8775. It keeps one that answers and tries the "
        "others in order. Required with use_local = false.",
    ),
    cfg.StrOpt(
        "cafile",
        help="File with the authorities that sign the conductors' certificates. Unset: those of "
        "the system.",
    ),
    cfg.StrOpt(
        "join_token",
        secret=True,
        help="Token by which this host joins the conductors once, from nodetracker-manage agent "
        "token create. join_token_file keeps it out of this file.",
    ),
    cfg.StrOpt(
        "join_token_file",
        help="File with the join token, such as a credential of systemd. It is read when this "
        "host has no valid credential.",
    ),
    cfg.BoolOpt(
        "allow_http",
        default=False,
        help="Accept HTTP without TLS between machines, which shows credentials to the network.",
    ),
    cfg.StrOpt(
        "listen",
        default="127.0.0.1",
        help="Address on which a conductor serves agents.",
    ),
    cfg.PortOpt("port", default=8775, min=1, help="Port on which a conductor serves agents."),
    cfg.StrOpt(
        "cert_file",
        help="Certificate of a conductor, with those of its authorities, in PEM. It turns TLS on; "
        "SIGHUP reads it again.",
    ),
    cfg.StrOpt("key_file", help="Private key of cert_file, unless that has it."),
    cfg.IntOpt(
        "workers",
        default=16,
        min=1,
        max=256,
        help="Number of calls that a conductor processes in parallel, each on a separate database "
        "connection.",
    ),
    cfg.IntOpt(
        "max_nodes_per_host",
        default=1000,
        min=0,
        help="Nodes that a conductor stores of one host; 0 = any number. Of what exceeds this or "
        "max_guests_per_node nothing is stored, and a stored node gets no claims meanwhile.",
    ),
    cfg.IntOpt(
        "max_guests_per_node",
        default=10_000,
        min=0,
        help="Guests that a conductor stores of one node; 0 = any number.",
    ),
    cfg.IntOpt(
        "max_warnings_per_host",
        default=1000,
        min=0,
        help="Unresolved warnings that a conductor stores of one host's agent, the last of which "
        "counts all others; 0 = any number.",
    ),
    cfg.BoolOpt(
        "hold_jumps",
        default=False,
        help="Give a node whose memory, CPUs or disk grew fourfold, or beyond 64 TiB, 8192 CPUs or "
        "100 PiB, no claims until nodetracker-manage node accept.",
    ),
)

AUDIT = option_group(
    "audit",
    cfg.StrOpt(
        "log_file",
        mutable=True,
        regex=ABSOLUTE_PATH,
        help="File to which who changed what, failed logins and refused callers are appended, a "
        "line each, besides the log. One that was moved away is opened again. Unset: none.",
    ),
    cfg.StrOpt(
        "log_format",
        default="text",
        mutable=True,
        choices=("text", "json"),
        help="Form of a line of that file: text, or a JSON object with at, request_id, who, what, "
        "target, address and outcome.",
    ),
)
