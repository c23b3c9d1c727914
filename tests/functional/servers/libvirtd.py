"""A private libvirtd with QEMU; its configuration, sockets and state are in one directory."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

from tests.functional.servers.process import (
    READY_SECONDS,
    ServerProcess,
    skip_or_fail,
    suspend,
)
from tests.functional.servers.tls import Authority

_BOUND = {
    "run": "/run/libvirt",
    "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
    "etc": "/etc/libvirt",
}
"""Our directories, and the paths compiled into libvirtd over which they are mounted."""

_QEMU_CONF = """\
user = "root"
group = "root"
stdio_handler = "file"
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
"""


_PUMP = """
import os, socket, threading

peer = socket.socket(socket.AF_UNIX)
peer.connect(SOCKET)

def send():
    while data := os.read(0, 65536):
        peer.sendall(data)
    os._exit(0)

threading.Thread(target=send, daemon=True).start()
while data := peer.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


_PROGRAMS = ("libvirtd", "virsh", "qemu-system-x86_64", "qemu-img", "tini", "unshare")


def find_missing() -> str:
    """Return what is missing for a private libvirtd, "" if nothing is."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}: see bindep.txt"
    if importlib.util.find_spec("libvirt") is None:
        return "needs libvirt-python: see bindep.txt"
    if os.geteuid() != 0:
        return "a libvirtd of its own needs root, for its mount namespace"
    return ""


def require_libvirt() -> None:
    """Skip, or fail where ``CI=true``, without the requirements of a private libvirtd."""
    reason = find_missing()
    if reason:
        skip_or_fail(reason)


class Libvirtd:
    """One daemon; domains in it are created with virsh.

    Args:
        authority: signs the certificate by which it listens for TLS, too.
        hostname: its own; libvirt does not migrate to a host of the same name.
    """

    def __init__(self, authority: Authority | None = None, hostname: str = "") -> None:
        require_libvirt()
        self.process = ServerProcess("virt")
        directory = self.process.directory
        for name, place in _BOUND.items():
            (directory / name).mkdir()
            Path(place).mkdir(parents=True, exist_ok=True)
        (directory / "sock").mkdir()
        (directory / "etc" / "qemu.conf").write_text(_QEMU_CONF)
        (directory / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{directory}/sock"\n'
            'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'
            f'log_outputs = "3:file:{directory}/libvirtd.log"\n'
            + ("" if authority is None else self._listen(authority))
            + (f'host_uuid = "{uuid.uuid4()}"\n' if hostname else "")
        )
        self._uts = f"hostname {hostname} && " if hostname else ""
        self._is_listening = authority is not None
        self.uri = f"qemu:///system?socket={directory}/sock/libvirt-sock"
        self.start()

    def _listen(self, authority: Authority) -> str:
        """Create certificates for both ends; return their lines of libvirtd's configuration."""
        certificate, key = authority.issue(self.process.directory, "127.0.0.1")
        for path, name in (
            (authority.certificate, "cacert.pem"),
            (certificate, "clientcert.pem"),
            (key, "clientkey.pem"),
        ):
            shutil.copy(path, self.process.directory / name)
        return (
            'listen_tls = 1\nlisten_addr = "127.0.0.1"\nauth_tls = "none"\n'
            f'tls_port = "{self.process.port}"\nkey_file = "{key}"\n'
            f'cert_file = "{certificate}"\nca_file = "{authority.certificate}"\n'
        )

    @property
    def tls_uri(self) -> str:
        """The same daemon by TLS, as from another machine."""
        return f"qemu+tls://127.0.0.1:{self.process.port}/system?pkipath={self.directory}"

    def ssh_uri(self) -> str:
        """Return the URI of the same daemon by a substitute for ssh that runs its command here."""
        stand_in = self.directory / "ssh"
        stand_in.write_text(
            f"#!{sys.executable}\nSOCKET = '{self.directory}/sock/libvirt-sock'\n" + _PUMP
        )
        stand_in.chmod(0o755)
        return f"qemu+ssh://127.0.0.1/system?command={stand_in}"

    @property
    def directory(self) -> Path:
        """The directory of all its files."""
        return self.process.directory

    @property
    def daemon_pid(self) -> int:
        """The process id of libvirtd itself, not of the init that reaps for it."""
        return int((self.directory / "libvirtd.pid").read_text())

    def start(self) -> None:
        """Start the daemon and wait until it answers; running domains are found again."""
        binds = " && ".join(
            f"mount --bind {self.directory / name} {place}" for name, place in _BOUND.items()
        )
        self.process.launch(
            [
                "unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c",
                f"{self._uts}{binds} && exec tini -s -- libvirtd -f {self.directory}/libvirtd.conf"
                f" -p {self.directory}/libvirtd.pid" + (" --listen" if self._is_listening else ""),
            ],
            self._is_ready,
        )  # fmt: skip

    def virsh(self, *arguments: str, check: bool = True) -> str:
        """Run one command of virsh."""
        done = subprocess.run(
            ["virsh", "-q", "-c", self.uri, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def define(self, xml: str) -> None:
        """Define a domain, as ``virsh define``."""
        path = self.directory / "domain.xml"
        path.write_text(xml)
        self.virsh("define", str(path))

    def create_disk(self, name: str, size: str = "64M", format_: str = "qcow2") -> Path:
        """Create an image for a domain."""
        path = self.directory / name
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", format_, path, size],
            check=True, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        return path

    def freeze(self) -> None:
        """Suspend the daemon; domains continue."""
        suspend(self.daemon_pid)

    def thaw(self) -> None:
        """Resume the daemon; start it again, as systemd would, if it crashes then.

        libvirtd 9.0 may crash over connections that its clients have closed meanwhile.
        """
        pid = self.daemon_pid
        os.kill(pid, signal.SIGCONT)
        while not self._is_ready():
            if not psutil.pid_exists(pid):
                self.process.kill()
                self.start()
            time.sleep(0.05)

    def kill_daemon(self) -> None:
        """Kill the daemon, as a crash would, and the init that reaps for it; domains continue."""
        os.kill(self.daemon_pid, signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """Stop the daemon normally; domains continue."""
        pid = self.daemon_pid  # its file is deleted with it
        os.kill(pid, signal.SIGTERM)
        self._wait_gone(pid)
        self.process.kill()

    def clear(self) -> None:
        """Remove every domain."""
        for name in self.virsh("list", "--all", "--uuid").split():
            self.virsh("destroy", name, check=False)
            self.virsh("undefine", name, check=False)

    def remove(self) -> None:
        """Kill the daemon and all its domains, and delete the directory."""
        for pid in (*self._qemu_pids(), *self._own_pid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self._wait_gone(pid)
        self.process.remove()

    def _own_pid(self) -> list[int]:
        try:
            pid = self.daemon_pid
            return [pid] if psutil.Process(pid).name() == "libvirtd" else []
        except (OSError, ValueError, psutil.Error):
            return []

    def _qemu_pids(self) -> list[int]:
        found = []
        for path in (self.directory / "run" / "qemu").glob("*.pid"):
            pid = int(path.read_text())
            try:
                command = " ".join(psutil.Process(pid).cmdline())
            except psutil.Error:
                continue
            if str(self.directory) in command or "guest=" in command:
                found.append(pid)
        return found

    def _wait_gone(self, pid: int) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while psutil.pid_exists(pid) and time.monotonic() < deadline:
            try:
                if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                    return
            except psutil.NoSuchProcess:
                return
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        command = ["virsh", "-q", "-c", self.uri, "version"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def domain_xml(
    name: str,
    uuid: str,
    vcpus: int = 1,
    vcpus_max: int | None = None,
    memory_mb: int = 64,
    disk: Path | None = None,
    more: str = "",
    devices: str = "",
) -> str:
    """Build a small domain that runs without hardware help."""
    disk_xml = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{disk}'/><target dev='vda' bus='virtio'/></disk>"
        if disk
        else ""
    )
    return f"""
<domain type='qemu'>
  <name>{name}</name><uuid>{uuid}</uuid>
  <memory unit='MiB'>{memory_mb}</memory>
  <vcpu current='{vcpus}'>{vcpus_max or vcpus}</vcpu>
  {more}
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{disk_xml}{devices}</devices>
</domain>
"""
