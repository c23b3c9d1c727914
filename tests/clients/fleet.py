"""A fleet with three hosts, and the REST service in front of it in three ways."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import WORKLOAD
from tests.clients.commands import Done, Environment
from tests.clients.keystone import PASSWORD, REGION, Keystone
from tests.functional.servers.process import find_free_port
from tests.functional.servers.tls import Authority
from tests.programs import Programs, Running

_CONNECT = """
import json, openstack
cloud = openstack.connect(cloud="envvars")
compute = cloud.compute
"""
BASIC_PASSWORD = "s3cret-of-basic"
INSTANCE = {
    "uuid": WORKLOAD, "name": "vm-1", "vcpus": 2,
    "memory_mb": 2048, "disk_gb": 20, "project_id": "p1",
}  # fmt: skip


def make_node(name: str, *guests: dict) -> dict:
    """Return a node of the fake driver."""
    return {"nodename": name, "vcpus": 8, "memory_mb": 16384, "disk_gb": 100, "guests": guests}


NODES = {
    "alpha": [make_node("alpha-1", INSTANCE)],
    "beta": [make_node("beta-1"), make_node("beta-2")],
    "gamma": [make_node("gamma-1")],
}
"""Host -> its nodes; gamma is down."""


class Fleet:
    """Agents with the fake driver on one database and broker."""

    def __init__(self, directory: Path, connection: str, transport_url: str) -> None:
        self.directory = directory
        self._connection = connection
        # Longer than any pause of a busy machine: an agent that ends is down immediately.
        self._extra = f"service_down_time = 300\nmy_ip = 192.0.2.1\ntransport_url = {transport_url}"
        self.programs = self.make_programs("ctl")
        self.programs.make_schema()

    def make_programs(self, host: str, extra: str = "") -> Programs:
        """Return the programs of a host, with its nodes in their inventory."""
        programs = Programs(
            self.directory / host, self._connection, host, extra=f"{self._extra}\n{extra}"
        )
        nodes = NODES.get(host, [make_node(f"{host}-1")])
        programs.inventory.write_text(json.dumps({"nodes": nodes}))
        return programs

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the agents; the last host's has ended."""
        *hosts, down = NODES
        with contextlib.ExitStack() as stack:
            for host in hosts:  # one after the other: nodes have their ids in this order
                stack.enter_context(self.start_agent(host))
            self.add_ended(down)
            yield

    def start_agent(self, host: str) -> Running:
        """Start a host's agent and wait until it has reported its nodes and serves calls."""
        agent = self.make_programs(host).start()
        agent.wait_for("RPC is served")
        agent.wait_for("is ready")
        return agent

    def add_ended(self, host: str) -> None:
        """Let a host have an agent that has ended."""
        with self.start_agent(host) as agent:
            assert agent.stop() == 0

    def show_service(self, host: str) -> dict:
        """Return the agent's service as the command line shows it."""
        return self.programs.ask("service", "show", host, "nodetracker-compute")

    def serve(self, host: str, **options: object) -> Running:
        """Start the REST service."""
        lines = [f"{name} = {value}" for name, value in options.items() if name != "extra"]
        text = "\n".join([str(options.get("extra", "")), "[api]", *lines])
        return self.make_programs(host, text).start("nodetracker-api")


@dataclass(frozen=True)
class Cloud:
    """The REST service in one way, and how its clients authenticate.

    Attributes:
        url: of the service, without a path.
        options: of ``openstack``, without those that name an endpoint.
        has_catalogue: the endpoints are in Keystone's catalogue.
    """

    fleet: Fleet
    clients: Environment
    url: str
    options: tuple[str, ...]
    has_catalogue: bool = False

    def openstack(self, *arguments: object, version: str = "", path: str = "/v2.1") -> Done:
        """Run a command of the client ``openstack``.

        Args:
            version: the microversion of compute; "" leaves it to the client.
            path: of the endpoint.
        """
        endpoint = () if self.has_catalogue else ("--os-endpoint", self.url + path)
        wanted = ("--os-compute-api-version", version) if version else ()
        return self.clients.run("openstack", *self.options, *endpoint, *wanted, *arguments)

    def container(self, *arguments: object) -> Done:
        """Run ``openstack appcontainer``."""
        return self.openstack("appcontainer", *arguments, path="/container/v1")

    def execute(self, script: str) -> Any:
        """Run a script with the SDK's connection ``cloud``; return what it prints as JSON."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        environ = {name.lstrip("-").replace("-", "_").upper(): value for name, value in pairs}
        if not self.has_catalogue:
            environ["OS_ENDPOINT"] = f"{self.url}/v2.1"
        return self.clients.run("python", _CONNECT + script, **environ).json


def keystone_options(keystone: Keystone, user: str = "admin", project: str = "admin") -> tuple:
    """Return the options by which the clients authenticate at Keystone."""
    scope = ("--os-project-name", project, "--os-project-domain-id", "default")
    return (
        "--os-auth-url", keystone.url, "--os-username", user, "--os-password", PASSWORD,
        "--os-user-domain-id", "default", "--os-region-name", REGION,
        *(scope if project else ("--os-system-scope", "all")),
    )  # fmt: skip


@contextlib.contextmanager
def without_authentication(fleet: Fleet, clients: Environment) -> Iterator[Cloud]:
    """Serve every process of this machine."""
    port = find_free_port()
    with fleet.serve("api-1", port=port, auth_strategy="noauth") as served:
        served.wait_for("Serving on")
        yield Cloud(fleet, clients, f"http://127.0.0.1:{port}", ("--os-auth-type", "none"))


@contextlib.contextmanager
def with_passwords(fleet: Fleet, clients: Environment) -> Iterator[Cloud]:
    """Serve users of a file, over TLS."""
    port, directory = find_free_port(), fleet.directory / "tls"
    directory.mkdir()
    authority = Authority(directory)
    certificate, key = authority.issue(directory, "127.0.0.1")
    users = directory / "htpasswd"
    with fleet.serve(
        "api-2", port=port, cert_file=certificate, key_file=key, http_basic_auth_user_file=users
    ) as served:
        for name in ("admin", "eve"):
            subprocess.run(
                [
                    sys.executable, "-m", "nodetracker.cmd.manage",
                    f"--config-file={fleet.directory}/api-2/nodetracker.conf", "user", "set", name,
                ],
                input=BASIC_PASSWORD, text=True, check=True,
            )  # fmt: skip
        served.wait_for("Serving on")
        options = ("--os-auth-type", "http_basic", "--os-cacert", str(authority.certificate))
        user = ("--os-username", "admin", "--os-password", BASIC_PASSWORD)
        yield Cloud(fleet, clients, f"https://127.0.0.1:{port}", (*options, *user))


@contextlib.contextmanager
def with_keystone(
    fleet: Fleet, clients: Environment, port: int, keystone: Keystone
) -> Iterator[Cloud]:
    """Serve users of Keystone, which has the service's endpoints in its catalogue."""
    options = {
        "auth_type": "password", "auth_url": keystone.url, "username": "admin",
        "password": PASSWORD, "project_name": "admin", "user_domain_id": "default",
        "project_domain_id": "default", "www_authenticate_uri": keystone.url,
        "region_name": REGION,
    }  # fmt: skip
    lines = ["[keystone_authtoken]", *(f"{name} = {value}" for name, value in options.items())]
    with fleet.serve(
        "api-3", extra="\n".join(lines), port=port, auth_strategy="keystone"
    ) as served:
        served.wait_for("Serving on")
        yield Cloud(fleet, clients, f"http://127.0.0.1:{port}", keystone_options(keystone), True)
