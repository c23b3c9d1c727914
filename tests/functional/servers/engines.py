"""Container engines for tests: a dockerd and a podman service, each with its own files."""

import contextlib
import json
import os
import shutil
import signal
import tarfile
from pathlib import Path
from typing import Any

import psutil

from tests.functional.servers.process import (
    READY_SECONDS,
    ServerProcess,
    removed_on_failure,
    require,
    suspend,
)

IMAGE = "localhost/bb:latest"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep .1; done"]
_NAMESPACE = ["unshare", "--mount", "--propagation", "private", "tini", "-s", "--"]
# tini reaps orphans, which the first process of some machines is slow to reap. The engine's mounts
# end with their namespace.


class Engine:
    """One container engine on a unix socket; `start` and `stop` may be called repeatedly."""

    name: str

    def __init__(self, name: str) -> None:
        require("unshare", "tini", "busybox")
        self.name = name
        self.process = ServerProcess(name)
        self.directory = self.process.directory
        self.socket = self.directory / "e.sock"
        self.url = f"unix://{self.socket}"

    def command(self) -> list[str]:
        """Return the daemon's own command line."""
        raise NotImplementedError

    def daemon_pid(self) -> int:
        """Return the process id of the daemon itself."""
        return next(
            child.pid
            for child in psutil.Process(self.process.pid).children()
            if child.name() == self.name
        )

    def start(self, **env: str) -> None:
        """Start the daemon and wait until it answers."""
        before = dict(os.environ)
        os.environ.update(env)
        try:
            self.process.launch([*_NAMESPACE, *self.command()], self._is_ready)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def client(self, timeout: float = 60) -> Any:
        """Return a client of the engine, to be closed by the caller."""
        import docker

        return docker.APIClient(base_url=self.url, version="auto", timeout=timeout)

    def import_image(self) -> None:
        """Load an image of one static busybox into the engine."""
        archive = self.directory / "image.tar"
        busybox = shutil.which("busybox")
        assert busybox is not None
        tree = self.directory / "image"
        (tree / "bin").mkdir(parents=True)
        (tree / "etc").mkdir()
        shutil.copy(busybox, tree / "bin/busybox")
        (tree / "bin/sh").symlink_to("busybox")
        (tree / "bin/sleep").symlink_to("busybox")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        with tarfile.open(archive, "w") as tar:
            tar.add(tree, arcname=".")
        client = self.client()
        try:
            client.import_image_from_file(str(archive), repository="localhost/bb", tag="latest")
        finally:
            client.close()

    def freeze(self) -> None:
        """Suspend only the daemon."""
        suspend(self.daemon_pid())

    def thaw(self) -> None:
        """Resume it."""
        os.kill(self.daemon_pid(), signal.SIGCONT)

    def stop(self) -> None:
        """Stop the daemon normally."""
        if self.process.is_running:
            self.process.stop()
        self.socket.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all containers, stop the daemon and delete its files."""
        if self.process.is_running:
            self.thaw()
            client = self.client()
            try:
                for item in client.containers(all=True):
                    client.remove_container(item["Id"], force=True)
            finally:
                client.close()
        self.stop()
        self.process.remove()

    def _is_ready(self) -> bool:
        if not self.socket.exists():
            return False
        import docker

        try:
            client = docker.APIClient(base_url=self.url, version="auto", timeout=5)
        except docker.errors.DockerException:
            return False
        client.close()
        return True


class Dockerd(Engine):
    """A Docker engine with its own containerd, data and socket.

    Args:
        config: what its configuration file holds.
        further_url: where it listens in addition to its socket.
    """

    def __init__(
        self, config: dict[str, Any] | None = None, further_url: str | None = None
    ) -> None:
        self._further_url = further_url
        require("dockerd", "containerd", "runc")
        super().__init__("dockerd")
        self.config = self.directory / "daemon.json"
        self.config.write_text(json.dumps(config or {}))
        with removed_on_failure(self):
            self.start()
            self.import_image()

    def command(self) -> list[str]:
        """Return the command line of a dockerd that shares nothing with others."""
        directory = self.directory
        return [
            "dockerd", f"--config-file={directory}/daemon.json", f"--data-root={directory}/data",
            f"--exec-root={directory}/exec", f"--host={self.url}",
            f"--pidfile={directory}/docker.pid", "--iptables=false", "--ip6tables=false",
            "--bridge=none", *([f"--host={self._further_url}"] if self._further_url else []),
        ]  # fmt: skip

    def kill(self) -> None:
        """Kill the daemon and its containerd, as a crash would; containers continue."""
        containerd = psutil.Process(self._containerd_pid())
        daemon = psutil.Process(self.daemon_pid())
        for process in (daemon, containerd):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the daemon
                process.kill()
        # A restart would still find them: the first process may be slow to reap them.
        psutil.wait_procs([daemon, containerd], READY_SECONDS)
        self.process.stop()
        for path in (self.directory / "docker.pid", self._containerd_pid_file()):
            path.unlink(missing_ok=True)

    def _containerd_pid_file(self) -> Path:
        return self.directory / "exec/containerd/containerd.pid"

    def _containerd_pid(self) -> int:
        return int(self._containerd_pid_file().read_text())

    def reload(self) -> None:
        """Reload the daemon's configuration."""
        os.kill(self.daemon_pid(), signal.SIGHUP)


class Podman(Engine):
    """Podman's service of Docker's API."""

    def __init__(self) -> None:
        require("podman", "runc")
        super().__init__("podman")
        self.config = self.directory / "containers.conf"
        self.config.write_text(
            "[containers]\ndefault_ulimits = []\n"
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        )
        with removed_on_failure(self):
            self.start()
            self.import_image()

    def start(self, **env: str) -> None:
        """Start the service with its own configuration."""
        super().start(CONTAINERS_CONF=str(self.config), **env)

    def command(self) -> list[str]:
        """Return the command line of a service that shares nothing with others."""
        directory = self.directory
        return [
            "podman", f"--root={directory}/root", f"--runroot={directory}/run",
            f"--tmpdir={directory}/tmp", "--storage-driver=vfs", "system", "service",
            "--time=0", self.url,
        ]  # fmt: skip
