"""Read small files of the state directory, in which another user than root may put anything."""

import errno
import os
import stat
from pathlib import Path


def read_state_file(path: Path, max_bytes: int) -> bytes:
    """Return the beginning of a file, without waiting for whoever writes to a FIFO.

    Root follows no link in a directory of another user, who could name any file of the machine.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if os.geteuid() == 0 and path.parent.stat().st_uid != 0:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "a link that root does not follow", str(path)) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.read(descriptor, max_bytes)
    finally:
        os.close(descriptor)
