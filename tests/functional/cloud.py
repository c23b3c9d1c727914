"""An agent that reports to placement."""

import contextlib
import json
import uuid

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import open_store
from tests.programs import Programs

NODE = {"vcpus": 16, "memory_mb": 65536, "disk_gb": 500}


class Cloud:
    """Programs with a placement, and hosts whose nodes have names of their own."""

    def __init__(self, directory, placement):
        self.placement = placement
        self.name = f"n-{uuid.uuid4()}"
        self.programs = Programs(directory)
        self.programs.make_schema()
        self.write(self.name)
        self.configure()

    def configure(self):
        self.programs.configure(self.placement.configuration())

    def write(self, *names, **more):
        nodes = [NODE | more | {"nodename": name} for name in names]
        self.programs.inventory.write_text(json.dumps({"nodes": nodes}))

    def audit_once(self):
        """Let an agent store the nodes, without reporting them."""
        done = self.programs.run("nodetracker-compute", "--once", OS_PLACEMENT__ENABLED="false")
        assert done.returncode == 0, done.stderr

    def manage(self, *arguments, code=0):
        done = self.programs.manage("placement", *arguments, "-f", "json")
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout) if done.stdout.strip() else done.stderr

    @contextlib.contextmanager
    def open_store(self):
        """Open the programs' database, which is quicker than to run a command."""
        store = open_store(DatabaseSettings(self.programs.connection))
        yield store
        store.close()

    @property
    def uuid(self):
        with self.open_store() as store:
            return next(n.uuid for n in store.load_nodes("host-1") if n.nodename == self.name)

    def create_rival(self, *traits):
        """Create a provider of another uuid with the node's name."""
        other = str(uuid.uuid4())
        body = {"uuid": other, "name": self.name}
        assert self.placement.request("POST", "/resource_providers", body)[0] in (200, 201)
        if traits:
            body = {"resource_provider_generation": 0, "traits": list(traits)}
            path = f"/resource_providers/{other}/traits"
            assert self.placement.request("PUT", path, body)[0] == 200
        return other

    def allocate(self, consumer, kind):
        """Let a consumer of some type have a CPU of the node."""
        body = {
            "allocations": {self.uuid: {"resources": {"VCPU": 1}}},
            "project_id": "p", "user_id": "u", "consumer_type": kind,
            "consumer_generation": None,
        }  # fmt: skip
        assert self.placement.request("PUT", f"/allocations/{consumer}", body)[0] == 204

    def read_consumer(self, consumer):
        """Return a consumer without the generations of providers, which all writers raise."""
        document = self.placement.get(f"/allocations/{consumer}")
        for entry in document["allocations"].values():
            del entry["generation"]
        return document

    def read(self, provider):
        """Return all that placement has of a provider, None without it."""
        path = f"/resource_providers/{provider}"
        if self.placement.request("GET", path)[0] == 404:
            return None
        parts = ("", "/inventories", "/traits", "/aggregates", "/allocations")
        return [self.placement.get(path + part) for part in parts]
