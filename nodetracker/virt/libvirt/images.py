"""Read the capacity of a disk image on this machine from its header, without its guest."""

import os
import stat
from pathlib import Path

from nodetracker.host.roots import describe_os_error
from nodetracker.model.errors import HostDataError

_QCOW2_MAGIC = b"QFI\xfb"
_QCOW2_SIZE = slice(24, 32)


def read_image_capacity(path: Path, image_format: str) -> int | None:
    """Return the size in bytes that a guest sees, None for a format that is not known.

    The format is that of the guest's document: a guest may write any header
    into a raw image.

    Raises:
        HostDataError: the image cannot be read, or has no valid header.

    Source: QEMU's docs/interop/qcow2.txt.
    """
    if image_format not in {"raw", "qcow2"}:
        return None
    try:
        with path.open("rb", buffering=0) as file:
            if image_format == "qcow2":
                return _parse_qcow2(file.read(_QCOW2_SIZE.stop), path)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.seek(0, os.SEEK_END)  # a block device
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise HostDataError(str(path), describe_os_error(error)) from error


def _parse_qcow2(header: bytes, path: Path) -> int:
    if not header.startswith(_QCOW2_MAGIC) or len(header) < _QCOW2_SIZE.stop:
        raise HostDataError(str(path), "has no qcow2 header")
    return int.from_bytes(header[_QCOW2_SIZE], "big")
