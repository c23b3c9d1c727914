"""A service under a foreign WSGI server, built from its configuration: health, agents."""

from concurrent.futures import ThreadPoolExecutor

import falcon.testing
import pytest
from oslo_config import cfg

from nodetracker.bootstrap.api import build_wsgi_application
from nodetracker.bootstrap.options.opts import register_options
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.schema import revisions
from nodetracker.db.store import open_store
from nodetracker.model.service import SCHEMA_REVISION, AuditState
from tests.builders import register, take_news
from tests.programs import wait_until


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


def test_an_agent_is_called_without_a_broker_unless_it_is_of_the_release_before(build, tmp_path):
    store = open_store(DatabaseSettings(f"sqlite:///{tmp_path}/db.sqlite"))
    revisions.sync(store.engine)
    agent = register(store)
    store.report_state(agent, 1, AuditState())
    (tmp_path / "missing").symlink_to(tmp_path)
    client = build(auth_strategy="noauth")

    def reboot():
        return client.simulate_post(
            "/v1/hosts/alpha/actions", host="localhost", json={"action": "reboot"}
        )

    refused = reboot()
    assert refused.status_code == 409
    assert "upgrade nodetracker-compute on alpha first" in refused.text
    store.report_state(agent, 2, AuditState(schema_revision=SCHEMA_REVISION))
    taken = []

    def take():
        taken.extend(take_news(store, "alpha").calls)
        return taken

    with ThreadPoolExecutor(1) as pool:
        rebooted = pool.submit(reboot)
        wait_until(take)
        assert (taken[0].method, taken[0].arguments) == ("host_power_action", {"action": "reboot"})
        store.answer_call("alpha", taken[0].id, {"value": None})
        assert rebooted.result().status_code == 202
    store.close()
