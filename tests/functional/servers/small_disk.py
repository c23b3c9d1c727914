"""A filesystem of a few megabytes that a test fills and frees again."""

import subprocess
from pathlib import Path

from tests.functional.servers.process import require, require_root

_CHUNK = bytes(4096)


class SmallDisk:
    """A tmpfs at a path, in its own mount namespace, which ends with its holder.

    Only what runs with `prefix` or in `mount_namespace` sees it there; the test reaches it
    at `path`.
    """

    def __init__(self, mount_point: Path, size_mb: int, user: str | None = None) -> None:
        require_root("mount a small disk")
        require("unshare", "nsenter")
        mount_point.mkdir(exist_ok=True)
        options = f"size={size_mb}m,mode=700" + (f",uid={user},gid={user}" if user else "")
        script = 'mount -t tmpfs -o "$1" none "$2" && echo mounted && exec sleep infinity'
        self._holder = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *("sh", "-c", script, "sh", options, mount_point),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        with self._holder.stdout as output:
            assert output.readline() == b"mounted\n", f"no disk at {mount_point}"
        self.mount_namespace = f"/proc/{self._holder.pid}/ns/mnt"
        root = f"/proc/{self._holder.pid}/root"  # that of the tests, which may run in a chroot
        self.prefix = [
            "nsenter",
            f"--mount={self.mount_namespace}",
            f"--root={root}",
            f"--wd={root}",
        ]
        self.path = Path(f"{root}{mount_point}")

    def fill(self) -> None:
        """Use all free space."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(_CHUNK):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Free the space that `fill` used."""
        (self.path / "ballast").unlink()

    def remove(self) -> None:
        """End the holder; the filesystem is removed when it is no longer used."""
        self._holder.kill()
        self._holder.wait()
