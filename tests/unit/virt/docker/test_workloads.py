"""A container's workload, project and orchestrator."""

import dataclasses

import pytest

from nodetracker.virt.docker.containers import Container, ContainerError
from nodetracker.virt.docker.guests import (
    WORKLOAD_LABEL,
    assign_uuids,
    parse_orchestrator,
    parse_project,
    parse_workload_uuid,
)

UUID = "6a0e1f0e-5a43-4a6e-9d1c-0f6f5f6e2c11"
FIRST = Container("a1", "web-1", "2026-01-01", "running")


def test_the_label_takes_precedence_over_the_name():
    other = "7" + UUID[1:]
    assert parse_workload_uuid("a1", f"zun-{other}", {WORKLOAD_LABEL: UUID.upper()}) == UUID
    assert parse_workload_uuid("a1", f"zun-{other}", {}) == other


def test_an_untrusted_label_is_ignored():
    labels = {WORKLOAD_LABEL: UUID}
    assert parse_workload_uuid("a1", "web", labels, trusts_labels=False) == parse_workload_uuid(
        "a1", "web", {}
    )


def test_without_label_and_zun_name_the_uuid_derives_from_the_id():
    assert parse_workload_uuid("a1", "web", {}) == "73465915-5ea3-50f5-bf74-a8823b1b82a6"
    assert parse_workload_uuid("a1", "renamed", {}) == parse_workload_uuid("a1", "web", {})
    assert parse_workload_uuid("a2", "web", {}) != parse_workload_uuid("a1", "web", {})


@pytest.mark.parametrize("name", [f"zun-sandbox-{UUID}", f"my-zun-{UUID}", f"zun-{UUID[:-1]}"])
def test_a_name_not_in_zun_s_form_is_ignored(name):
    assert parse_workload_uuid("a1", name, {}) == parse_workload_uuid("a1", "", {})


def test_a_label_with_an_invalid_uuid_is_an_error():
    with pytest.raises(ContainerError, match="is not a valid UUID"):
        parse_workload_uuid("a1", "web", {WORKLOAD_LABEL: "web"})


def test_of_two_containers_with_one_label_the_older_keeps_the_uuid():
    labels = {WORKLOAD_LABEL: UUID}
    older = dataclasses.replace(FIRST, labels=labels)
    newer = dataclasses.replace(FIRST, id="b2", name="web-2", created="2026-02", labels=labels)
    uuids, wrong = assign_uuids([newer, older])
    assert uuids == {"a1": UUID, "b2": parse_workload_uuid("b2", "", {})}
    assert wrong == {"b2": "duplicate workload uuid of container web-1, which is older"}


def test_a_container_with_an_invalid_label_still_has_a_uuid():
    uuids, wrong = assign_uuids([dataclasses.replace(FIRST, labels={WORKLOAD_LABEL: "web"})])
    assert uuids == {"a1": parse_workload_uuid("a1", "", {})}
    assert list(wrong) == ["a1"]


KUBERNETES = {"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "db-0"}
PAUSE = KUBERNETES | {"io.kubernetes.docker.type": "podsandbox"}
COMPOSE = {"com.docker.compose.project": "blog", "com.docker.compose.service": "web"}
SWARM = {"com.docker.stack.namespace": "wiki", "com.docker.swarm.service.name": "wiki_web"}


@pytest.mark.parametrize(
    ("labels", "project"),
    [
        ({}, ""),
        ({"nodetracker.project": "p1"} | KUBERNETES, "p1"),
        (KUBERNETES, "shop"),
        (COMPOSE, "blog"),
        (SWARM, "wiki"),
        ({WORKLOAD_LABEL: UUID} | COMPOSE, ""),
        ({WORKLOAD_LABEL: UUID, "nodetracker.project": "p1"} | COMPOSE, "p1"),
    ],
)
def test_the_project_comes_from_labels(labels, project):
    assert parse_project(labels) == project


@pytest.mark.parametrize(
    ("labels", "name", "expected"),
    [
        ({}, "web", {}),
        (KUBERNETES, "k8s_db", {"orchestrator": "kubernetes", "pod": "db-0"}),
        (PAUSE, "k8s_POD_db", {"orchestrator": "kubernetes", "pod": "db-0"}),
        (SWARM, "wiki_web.1.x", {"orchestrator": "swarm", "service": "wiki_web"}),
        (COMPOSE, "blog-web-1", {"orchestrator": "compose", "service": "web"}),
        ({}, f"zun-{UUID}", {"orchestrator": "zun"}),
    ],
)
def test_the_orchestrator_comes_from_labels(labels, name, expected):
    assert parse_orchestrator(labels, name) == expected
