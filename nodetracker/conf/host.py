"""Options of the ``[host]`` group: where the host's own files are read."""

from oslo_config import cfg

GROUP = "host"

OPTIONS = (
    cfg.StrOpt(
        "procfs",
        default="/proc",
        help="Where the host's proc filesystem is, e.g. its mount point inside a container.",
    ),
    cfg.StrOpt("sysfs", default="/sys", help="Where the host's sysfs is."),
    cfg.StrOpt("rootfs", default="/", help="Where the host's root filesystem is."),
)
