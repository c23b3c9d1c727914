"""``/health`` of a service under a foreign WSGI server, built from its configuration."""

import falcon.testing
import pytest
from oslo_config import cfg

from nodetracker.bootstrap.api import build_wsgi_application
from nodetracker.conf.opts import register_options
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store


@pytest.fixture
def build(tmp_path):
    """Return a function that builds a client, by options of [api]."""

    def build(**options):
        lines = [f"{name} = {value}" for name, value in options.items()]
        path = tmp_path / "nodetracker.conf"
        path.write_text(
            f"[database]\nconnection = sqlite:///{tmp_path}/missing/db.sqlite\n"
            + "\n".join(["[api]", *lines])
        )
        conf = cfg.ConfigOpts()
        register_options(conf)
        conf([f"--config-file={path}"], project="nodetracker", default_config_dirs=[])
        application = build_wsgi_application(conf)
        return falcon.testing.TestClient(lambda environ, start: application(environ, start))

    return build


def get(client, path):
    return client.simulate_get(path, host="localhost")


def test_its_last_request_decides_on_the_database(build, tmp_path):
    client = build(auth_strategy="noauth")
    first = get(client, "/health")
    assert (first.status_code, first.json["status"]) == (200, "pass")
    assert first.json["checks"]["heartbeat"]["output"] == "not reported by this process"
    assert get(client, "/v1/nodes").status_code == 503
    found = get(client, "/health")
    assert found.status_code == 503
    assert "missing/db.sqlite" in found.json["checks"]["database"]["output"]
    assert get(client, "/v1/about").status_code == 200  # which uses no database
    assert get(client, "/health").status_code == 503
    (tmp_path / "missing").mkdir()
    store = open_store(DatabaseSettings(f"sqlite:///{tmp_path}/missing/db.sqlite"))
    revisions.sync(store.engine)
    store.close()
    assert get(client, "/v1/nodes").status_code == 200
    assert get(client, "/health").json["status"] == "pass"
    assert 'code="5xx",family="own",method="GET"} 1.0' in get(client, "/metrics").text


def test_a_user_file_without_users_is_a_warning_whose_text_is_not_for_everybody(build, tmp_path):
    client = build(http_basic_auth_user_file=tmp_path / "htpasswd")
    found = get(client, "/health")
    assert (found.status_code, found.json["status"]) == (200, "warn")
    assert found.json["checks"]["user_file"] == {"status": "warn"}
