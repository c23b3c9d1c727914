"""A new operator's first day on two bare machines with systemd, typed from docs/install.md."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.documents import read_blocks, read_section
from tests.functional.servers.process import require, require_root
from tests.packages.root import BUILT_WITH, Root

APT = "apt-get -y -q"
CONTROL, COMPUTE, CLAIM = read_blocks(read_section("install.md", "Debian packages"))[1:]
ADDRESSES = {"control-1": "10.214.0.1", "compute-1": "10.214.0.2"}
TYPED = """
export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive; cd /packages
exec bash --norc --noediting -iv < /typed
"""
CONNECT = """
for name in control-1 compute-1; do ip netns add nt-$name; ip -n nt-$name link set lo up; done
ip -n nt-control-1 link add eth0 type veth peer name eth0 netns nt-compute-1
"""
MOST_SECONDS = 600


class Machine:
    """A booted root with a shell, to which the test types.

    Args:
        name: of the host, at the end of a cable between the two.
    """

    def __init__(self, name: str, root: Root) -> None:
        self.name, self.root = name, root
        self._prompt = f"root@{name}:~# "
        self._count = 0
        hosts = "".join(f"{address} {host}\n" for host, address in ADDRESSES.items())
        (root.path / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        (root.path / "etc/hostname").write_text(f"{name}\n")
        os.mkfifo(root.path / "typed")
        script = TYPED.replace("exec", f"PS1='{self._prompt}' PS2= exec")
        options = f"--hostname={name}", f"--network-namespace-path=/run/netns/nt-{name}"
        self._pool = ThreadPoolExecutor(1)
        self._booted: Future[str] = self._pool.submit(root.boot, script, options)
        self._keyboard = os.open(root.path / "typed", os.O_RDWR)  # waits for no reader

    @property
    def screen(self) -> str:
        """What the terminal has shown so far."""
        log = self.root.path / "check.log"
        text = log.read_text() if log.exists() else ""
        return re.sub(rf"{re.escape(self._prompt)}# \d+\n", "", text)

    def type(self, block: str) -> str:
        """Type commands; return what the terminal shows until the last one has ended."""
        before = len(self.screen)
        self._count += 1
        os.write(self._keyboard, f"{block}# {self._count}\n".encode())
        deadline = time.monotonic() + MOST_SECONDS
        log = self.root.path / "check.log"
        while not log.exists() or f"# {self._count}\n" not in log.read_text():
            assert time.monotonic() < deadline, self.screen
            assert not self._booted.done(), self._booted.result()
            time.sleep(0.5)
        return self.screen[before:]

    def end(self) -> None:
        """Type the end of the input, and wait until the machine is off."""
        os.close(self._keyboard)
        self._booted.result(MOST_SECONDS)
        self._pool.shutdown()


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """A control host and a compute host with the packages, as Debian installs them."""
    require_root("make a root")
    require("mmdebstrap", "unshare", "ip", "systemd-nspawn")
    directory = Path(tempfile.mkdtemp(prefix="nodetracker-first-day-"))
    try:
        bare = Root(directory / "bare", "bookworm")
        bare.run("apt-get update -q")
        tools = bare.copy(directory / "tools")
        tools.run(f"{APT} install --no-install-recommends git {' '.join(BUILT_WITH)}")
        tools.run("python3 -m venv /tools && /tools/bin/pip install -q tox")
        built = tools.build("/one")
        bare.run("mkdir /packages")
        for package in built.glob("*.deb"):
            (bare.path / "packages" / package.name).write_bytes(package.read_bytes())
        yield from connect(bare, directory)
    finally:
        subprocess.run(["rm", "-r", "--one-file-system", str(directory)], check=True)


def connect(bare: Root, directory: Path) -> Iterator[tuple[Machine, Machine]]:
    """Boot two copies of a root with a cable between them; the mirror is what was fetched before."""
    roots = []
    for name, block in zip(ADDRESSES, (CONTROL, COMPUTE), strict=True):
        root = bare.copy(directory / name)
        install = block.splitlines()[0].replace("install -y", "install -y --download-only")
        root.run(f"cd /packages && {install}")
        (root.path / "etc/resolv.conf").unlink()
        (root.path / "etc/apt/apt.conf.d/docker-clean").unlink(missing_ok=True)
        roots.append(root)
    try:
        subprocess.run(["sh", "-ec", CONNECT], check=True)
        for name, address in ADDRESSES.items():
            link = (
                f"ip -n nt-{name} addr add {address}/24 dev eth0; ip -n nt-{name} link set eth0 up"
            )
            subprocess.run(["sh", "-ec", link], check=True)
        control, compute = (
            Machine(name, root) for name, root in zip(ADDRESSES, roots, strict=True)
        )
        yield control, compute
        control.end()
        compute.end()
    finally:
        for name in ADDRESSES:
            subprocess.run(["ip", "netns", "delete", f"nt-{name}"], check=False)


def list_files(machine: Machine) -> list[str]:
    return sorted(path.name for path in (machine.root.path / "var/lib/nodetracker").iterdir())


def test_from_the_packages_to_the_first_claim(machines: tuple[Machine, Machine]) -> None:
    control, compute = machines
    token = re.findall(r"^[0-9a-f]{64}$", control.type(CONTROL), re.MULTILINE)[-1]
    certificate = "etc/nodetracker/conductor.pem"
    install, rest = COMPUTE.split("\n", 1)
    compute.type(f"{install}\n")
    (compute.root.path / certificate).write_bytes((control.root.path / certificate).read_bytes())
    checks, start = rest.replace("TOKEN", token).split("systemctl", 1)
    shown = compute.type(checks)
    assert "not joined yet; the agent joins at its first start" in shown
    assert "Failure" not in shown
    assert list_files(compute) == []
    shown = compute.type("nodetracker-manage node list; echo ended with $?\n")
    assert "not joined yet; the agent joins at its first start" in shown
    assert "ended with 1\n" in shown
    assert list_files(compute) == []
    assert re.search(r"compute-1 .* up ", compute.type(f"systemctl{start}"))
    shown = control.type(CLAIM)
    assert re.search(r"held .*6a0e1f6c-5a34", shown)
    # Root replaces the credential, and the agent and its user go on with it.
    for command in (
        "nodetracker-manage agent rotate",
        "runuser -u nodetracker -- nodetracker-manage node list",
        "runuser -u nodetracker -- nodetracker-manage agent rotate",
        "nodetracker-status upgrade check",
        "systemctl restart nodetracker-compute",
        "nodetracker-manage claim list",
    ):
        assert "ended with 0\n" in compute.type(f"{command}; echo ended with $?\n")
    owners = compute.type("stat -c '%n %U %G %a' /var/lib/nodetracker/c*\n")
    for name in ("compute_id", "credential"):
        assert f"/{name} nodetracker nodetracker 600\n" in owners
    shown = control.type("manage agent revoke compute-1; manage node list\n" + CLAIM)
    assert re.search(r"compute-1 .* down ", shown)
    path = os.environ.get("NODETRACKER_TRANSCRIPT")
    if path:
        Path(path).write_text(f"{control.screen}\n{compute.screen}")
