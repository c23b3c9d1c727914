"""A bare Debian, in a directory that programs see as /."""

import hashlib
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent
BUILT_WITH = [
    line.split()[0] for line in (SOURCE / "bindep.txt").read_text().splitlines() if "dist]" in line
]
KEPT = ("PIP_", "SSL_", "REQUESTS_CA")
"""Starts of the names of environment variables by which registries are reached."""
ENTER = """
mount --bind "$1" "$1"; mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"; mount --rbind /dev "$1/dev"
exec chroot "$1" bash -c "$2"
"""


BOOT = """
mount -t tmpfs tmpfs /run/systemd
root=$1; shift
exec systemd-nspawn --quiet --boot --register=no --keep-unit -D "$root" "$@" systemd.unit=check.service
"""
CHECK = """
[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/bash -e /check
StandardOutput=truncate:/check.log
StandardError=inherit
TimeoutStartSec=900
"""


class Root:
    """The root directory of a release of Debian; nothing of it runs between two calls of `run`."""

    def __init__(self, path: Path, suite: str) -> None:
        self.path = path
        subprocess.run(
            ["mmdebstrap", "--mode=root", "--variant=apt", "--dpkgopt=force-unsafe-io",
             "--include=ca-certificates,curl,systemd", suite, str(path)],
            check=True, capture_output=True,
        )  # fmt: skip
        # How this machine reaches its mirrors.
        for name in ("resolv.conf", "hosts", "apt/apt.conf.d/.", "ssl/certs/."):
            subprocess.run(["cp", "-a", f"/etc/{name}", str(path / "etc" / name)], check=True)

    def copy(self, path: Path) -> "Root":
        """Return a second root with the same files."""
        subprocess.run(["cp", "-a", str(self.path), str(path)], check=True)
        again = object.__new__(Root)
        again.path = path
        return again

    def run(self, script: str, code: int = 0, network: bool = True) -> str:
        """Return what a script prints, which ends with `code`; its processes and mounts end with it."""
        kept = {n: v for n, v in os.environ.items() if "proxy" in n.lower() or n.startswith(KEPT)}
        own_network = [] if network else ["--net"]
        enter = ENTER if network else "ip link set lo up" + ENTER
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child",
             *own_network, "sh", "-ec", enter, "sh", str(self.path), script],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                 "DEBIAN_FRONTEND": "noninteractive"} | kept,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == code, done.stdout
        return done.stdout

    def boot(self, script: str, options: Sequence[str] = ("--private-network",)) -> str:
        """Return what a script prints that a booted systemd runs, as `run`.

        Args:
            options: of systemd-nspawn; by default there is no network.
        """
        (self.path / "check").write_text(script)
        (self.path / "etc/systemd/system/check.service").write_text(CHECK)
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-ec", BOOT, "sh", str(self.path),
             *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        printed = (self.path / "check.log").read_text()
        print(done.stdout, printed)
        assert done.returncode == 0, printed
        return printed

    def build(self, directory: str, source: Path = SOURCE) -> Path:
        """Run "tox -e dist" in a clone of a commit; returns the directory of what it built."""
        clone = f"{self.path}{directory}"
        subprocess.run(["git", "clone", "--quiet", str(source), clone], check=True)
        self.run(f"cd {directory} && /tools/bin/tox -q run -e dist")
        return Path(clone, "dist")


def list_members(path: Path) -> set[str]:
    """Return a line for each file in a package, a wheel or a source distribution, with all that it has."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {
                f"{m} {hashlib.sha256(archive.read(m)).hexdigest()}" for m in archive.infolist()
            }
    if path.suffix != ".deb":
        return {*_list_tar(path.name, path.read_bytes())}
    parts = ("--ctrl-tarfile", "--fsys-tarfile")
    return {
        line
        for part in parts
        for line in _list_tar(part, subprocess.check_output(["dpkg-deb", part, str(path)]))
    }


def _list_tar(name: str, data: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            digest = hashlib.sha256(file.read()).hexdigest() if file else member.linkname
            yield f"{name} {member.name} {member.mode:o} {member.mtime} {member.uid} {digest}"
