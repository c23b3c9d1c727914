"""Options of the ``[host]`` group: where the host's files are."""

from oslo_config import cfg

from nodetracker.conf.default import ABSOLUTE_PATH

GROUP = "host"

OPTIONS = (
    cfg.StrOpt(
        "procfs",
        default="/proc",
        regex=ABSOLUTE_PATH,
        help="Path of the host's proc filesystem, e.g. its mount point inside a container.",
    ),
    cfg.StrOpt("sysfs", default="/sys", regex=ABSOLUTE_PATH, help="Path of the host's sysfs."),
    cfg.StrOpt(
        "rootfs", default="/", regex=ABSOLUTE_PATH, help="Path of the host's root filesystem."
    ),
)
