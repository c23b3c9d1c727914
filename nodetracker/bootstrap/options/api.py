"""Options of the REST service: ``[api]`` and, for claims without a host, ``[scheduler]``."""

from oslo_config import cfg, types

from nodetracker.bootstrap.options.default import ABSOLUTE_PATH, LibraryOption, option_group

API = option_group(
    "api",
    cfg.HostAddressOpt(
        "listen",
        default="127.0.0.1",
        help="Address or name of this machine on which nodetracker-api serves; :: means all IPv6 "
        "and IPv4 addresses.",
    ),
    cfg.PortOpt("port", default=8774, min=1, help="TCP port on which it serves."),
    cfg.IntOpt(
        "threads",
        default=8,
        min=1,
        max=256,
        help="Number of requests that are carried out in parallel, each on a separate database "
        "connection.",
    ),
    cfg.IntOpt(
        "database_timeout",
        default=15,
        min=1,
        max=120,
        help="Seconds that the database may take in one request, repetitions included, unless its "
        "header Prefer says wait=N. Then the connection is closed and the answer is 503. Waiting "
        "for agents does not count.",
    ),
    cfg.URIOpt(
        "public_url",
        schemes=["http", "https"],
        help="URL by which clients and browsers reach the API, without a path, e.g. "
        "https://api.example.org:8774. Links are made from it. Unset: from the URL of each "
        "request.",
    ),
    cfg.URIOpt(
        "grafana_url",
        schemes=["http", "https"],
        help="URL of the Grafana dashboard of nodetracker, to which the page links; a host's page "
        "sets the dashboard's variable host. Unset: no link.",
    ),
    cfg.StrOpt(
        "auth_strategy",
        default="http_basic",
        choices=[
            ("http_basic", "users and passwords of http_basic_auth_user_file"),
            ("keystone", "tokens of Keystone; see [keystone_authtoken]"),
            ("noauth", "every process of this machine administers; over loopback only"),
        ],
        help="How users authenticate.",
    ),
    cfg.StrOpt(
        "http_basic_auth_user_file",
        default="/etc/nodetracker/htpasswd",
        regex=ABSOLUTE_PATH,
        help="Users with bcrypt hashes of their passwords, a line NAME:HASH for each; "
        "nodetracker-manage user set NAME makes one. It is read again when it changes.",
    ),
    cfg.ListOpt(
        "http_basic_admins",
        default=["admin"],
        help="Users of that file who administer; the others read.",
    ),
    cfg.BoolOpt(
        "allow_insecure_power_actions",
        default=False,
        help="Whether users of http_basic may use Nova's GET /os-hosts/HOST/reboot, shutdown and "
        "startup without TLS. Browsers remember passwords, and over plain HTTP they do not say "
        "which site's link they follow: any page can reboot a host.",
    ),
    cfg.StrOpt(
        "cert_file",
        regex=ABSOLUTE_PATH,
        help="Certificate of the server for TLS, in PEM, with those of intermediate authorities "
        "after it; requires key_file. Unset: without TLS.",
    ),
    cfg.StrOpt("key_file", regex=ABSOLUTE_PATH, help="Private key of cert_file, in PEM."),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        max=100000,
        help="Longest page of a list, and the length of one for which a request sets no limit.",
    ),
    cfg.IntOpt(
        "max_body_bytes",
        default=1024 * 1024,
        min=1024,
        max=2**30,
        help="Longest body of a request, in bytes.",
    ),
    cfg.FloatOpt(
        "overview_max_age",
        default=2,
        min=0,
        max=3600,
        help="Seconds for which one overview of the fleet is kept for all callers, unless a change "
        "is made through this process. It is kept for ten times as long as it took to make, if "
        "that is longer.",
    ),
    cfg.IntOpt(
        "overview_max_nodes",
        default=10000,
        min=0,
        max=1000000,
        help="Number of nodes that an overview lists; its totals are those of all nodes.",
    ),
    cfg.BoolOpt(
        "metrics_per_node",
        default=True,
        help="Whether /metrics has series for each node.",
    ),
    cfg.BoolOpt(
        "open_metrics",
        default=False,
        help="Whether /metrics needs no credentials.",
    ),
)

PROXY_GROUP = "oslo_middleware"
PROXY_HEADERS = LibraryOption("enable_proxy_headers_parsing", type=types.Boolean(), default=False)
"""Whether proxies say what clients sent; read before the library of that group is imported."""

_MULTIPLIER = types.Float(min=-1000.0, max=1000.0)

SCHEDULER = option_group(
    "scheduler",
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
    cfg.IntOpt(
        "nodes_to_weigh",
        default=100,
        min=0,
        max=100_000,
        help="Number of nodes with room that a claim without a host weighs, to take the best of "
        "them; at least host_subset_size. They are others for each claim, and its cost does not "
        "depend on the size of the fleet. 0 weighs all nodes.",
    ),
    cfg.IntOpt(
        "tolerance_interval",
        default=600,
        min=0,
        max=10**6,
        help="Seconds after which it is found out again which losses of hosts the fleet survives, "
        "by the first of the conductors and REST services that are up, in a child process. "
        "0 = never.",
    ),
)
