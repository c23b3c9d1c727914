"""Options of the ``[host]`` group: where the host's own files are read."""

from oslo_config import cfg

from nodetracker.conf.default import ABSOLUTE_PATH

GROUP = "host"

OPTIONS = (
    cfg.StrOpt(
        "procfs",
        default="/proc",
        regex=ABSOLUTE_PATH,
        help="Where the host's proc filesystem is, e.g. its mount point inside a container.",
    ),
    cfg.StrOpt("sysfs", default="/sys", regex=ABSOLUTE_PATH, help="Where the host's sysfs is."),
    cfg.StrOpt(
        "rootfs", default="/", regex=ABSOLUTE_PATH, help="Where the host's root filesystem is."
    ),
)
