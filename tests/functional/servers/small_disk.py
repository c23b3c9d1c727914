"""A filesystem of a few megabytes that a test fills and frees again."""

import subprocess
from pathlib import Path

from tests.functional.servers.process import require, require_root

_CHUNK = bytes(4096)


class SmallDisk:
    """A tmpfs at a path, in a mount namespace of its own that ends with its holder.

    Only what runs with `prefix` sees it there; the test reaches it at `path`.
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
        with self._holder.stdout as said:
            assert said.readline() == b"mounted\n", f"no disk at {mount_point}"
        self.prefix = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]
        self.path = Path(f"/proc/{self._holder.pid}/root{mount_point}")

    def fill(self) -> None:
        """Leave not a byte free."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(_CHUNK):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.path / "ballast").unlink()

    def remove(self) -> None:
        """Let go of it; it is gone when nothing uses it any more."""
        self._holder.kill()
        self._holder.wait()
