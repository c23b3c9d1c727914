"""Entry point of the ``libvirt`` driver and its options."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nodetracker.model.errors import ConfigError
from nodetracker.ports import Driver, StartReader
from nodetracker.virt.plugin import ADMISSION_OPTION, DriverEnvironment, DriverPlugin

OPTIONS = (
    ADMISSION_OPTION,
    cfg.ListOpt(
        "connection_uris",
        default=["qemu:///system"],
        help="Hypervisors to manage, each [name=]URI, e.g. qemu:///system or "
        "kvm-2=qemu+ssh://root@kvm-2/system. Each is a node with the given name, or else with "
        "the hypervisor's hostname.",
    ),
    cfg.IntOpt(
        "keepalive_interval",
        default=5,
        min=0,
        help="Seconds between keepalive messages, by which a connection detects that libvirtd "
        "does not answer any more. 0 disables them.",
    ),
    cfg.IntOpt(
        "keepalive_count",
        default=3,
        min=1,
        help="Number of consecutive keepalive messages without an answer after which the "
        "connection is closed.",
    ),
    cfg.IntOpt(
        "file_backed_memory",
        default=0,
        min=0,
        help="MiB of file-backed memory for guests. If greater than 0, it replaces the node's "
        "memory.",
    ),
    cfg.BoolOpt(
        "reserve_image_cache",
        default=True,
        help="Count the space that the image cache (_base below instances_path) uses as reserved, "
        "if guests' disks are files on this machine.",
    ),
    cfg.StrOpt(
        "images_type",
        choices=["default", "flat", "raw", "qcow2", "lvm", "rbd"],
        help="How guests' disks are stored. With lvm and rbd, the node's disk is libvirt's active "
        "storage pool of that type. With any other value they are files, and the node's disk is "
        "the filesystem of instances_path, or on a remote hypervisor the file pool with most of "
        "the guests' disks.",
    ),
    cfg.StrOpt(
        "images_rbd_ceph_conf",
        default="",
        help="Configuration file of the Ceph cluster. With images_type = rbd the size of the pool "
        "is then what 'ceph df' says that it can store. libvirt reports the raw size of the "
        "cluster, of which copies use a part.",
    ),
    cfg.StrOpt(
        "rbd_user",
        default="",
        help="User of the Ceph cluster for 'ceph df', such as nova; by default that of the file.",
    ),
    cfg.IntOpt(
        "rbd_replicas",
        default=0,
        min=0,
        help="Number of copies of each object of the pool with images_type = rbd. Without "
        "images_rbd_ceph_conf the raw size is divided by it. 0 means that it is not known: the "
        "raw size counts, with a warning.",
    ),
)


def _build(environment: DriverEnvironment, values: Mapping[str, Any]) -> Driver:
    from nodetracker.virt.libvirt.types import parse_endpoints

    try:
        endpoints = parse_endpoints(values["connection_uris"])
    except ValueError as error:
        raise ConfigError(f"[libvirt] connection_uris: {error}") from error
    try:
        from nodetracker.virt.libvirt.ceph import CephSettings
        from nodetracker.virt.libvirt.client import open_client
        from nodetracker.virt.libvirt.connection import ConnectionTimes
        from nodetracker.virt.libvirt.driver import LibvirtDriver
        from nodetracker.virt.libvirt.types import LibvirtSettings
    except ImportError as error:
        raise ConfigError(
            "[compute] compute_driver: libvirt needs the package libvirt-python "
            f"(pip install 'nodetracker[libvirt]'): {error}"
        ) from error
    return LibvirtDriver(
        endpoints,
        environment,
        LibvirtSettings(
            values["file_backed_memory"],
            values["images_type"],
            values["reserve_image_cache"],
            CephSettings(
                values["images_rbd_ceph_conf"], values["rbd_user"], values["rbd_replicas"]
            ),
        ),
        ConnectionTimes(
            environment.probes.timeout_seconds,
            values["keepalive_interval"],
            values["keepalive_count"],
        ),
        open_client,
    )


def _make_start_reader(
    driver: object, environment: DriverEnvironment, values: Mapping[str, Any]
) -> StartReader:
    from nodetracker.virt.libvirt.starts import DomainStartReader
    from nodetracker.virt.libvirt.types import parse_endpoints

    endpoints = parse_endpoints(values["connection_uris"])
    if len(endpoints) != 1 or not endpoints[0].is_local:
        raise ConfigError(
            "[libvirt] connection_uris: admission needs one hypervisor, that of this machine"
        )
    return DomainStartReader(environment.roots)


PLUGIN = DriverPlugin(
    group="libvirt", options=OPTIONS, build=_build, make_start_reader=_make_start_reader
)
