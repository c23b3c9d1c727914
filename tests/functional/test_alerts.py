"""The alert rules that ship, judged by Prometheus's own tool."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from nodetracker.model.warning import WarningKind
from tests.functional.servers.process import require

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "etc" / "prometheus" / "nodetracker.rules.yml"
DESCRIPTIONS = HERE.parents[1] / "docs" / "run.md"
TESTS = (HERE / "nodetracker.rules.test.yml", HERE / "nodetracker.rules.week.test.yml")


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ("check", RULES),
        *(("test", path) for path in TESTS),
    ],
    ids=["syntax", "alerts", "a week"],
)
def test_the_alert_rules_are_valid_and_fire(action, path):
    require("promtool")
    done = subprocess.run(
        ["promtool", action, "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


SHOWN_BY_OTHER_ALERTS = {
    WarningKind.FACT_HELD: "NodetrackerFactsHeld",
    WarningKind.DRIVER_NOT_READY: "NodetrackerDriverDown",
    WarningKind.CLOCK_SKEW: "NodetrackerClockSkew",
    # Raised by others; the agent that is refused or cut off has no metric of them.
    WarningKind.DUPLICATE_REFUSED: "NodetrackerDuplicateHost",
    WarningKind.AGENT_UNREACHABLE: "NodetrackerDatabaseAway",
    WarningKind.HOST_DOWN: "NodetrackerAgentDown",
}
CAN_WAIT = {
    WarningKind.MEMORY_MISMATCH,  # the row has the right value
    WarningKind.HOST_DATA,  # the row is right without what the file describes
    WarningKind.ENGINE_DATA,
    WarningKind.ENGINE_NAME,
    WarningKind.GUEST_LISTED_TWICE,  # counted once
    WarningKind.CLAIM_EXPIRED,  # ends by itself
    WarningKind.CLAIMED_TWICE,  # charged in full
    WarningKind.CLAIM_MISMATCH,  # both are charged in full
    WarningKind.CPU_SET_MOVED,  # nothing is sold twice
    WarningKind.IOMMU_GROUP_SHARED,  # guests that run are not affected
    WarningKind.PLACEMENT_FOREIGN,  # others' own affair
    WarningKind.PLACEMENT_LOST,  # put back
    WarningKind.PROVIDER_CONFIG,  # the entry is for no node
    WarningKind.CREDENTIAL_REUSED,  # it was refused
    WarningKind.CAPACITY_JUMP,  # held where the operator wants that
}


def test_every_kind_of_warning_has_an_alert_or_can_wait():
    text = RULES.read_text()
    alerts = set(re.findall(r"alert: (\w+)", text))
    selectors = re.findall(r'kind=~?"([\w|]+)"', text)
    with_alert = {WarningKind(name) for names in selectors for name in names.split("|")}
    assert set(SHOWN_BY_OTHER_ALERTS.values()) <= alerts
    undecided = set(WarningKind) - with_alert - set(SHOWN_BY_OTHER_ALERTS) - CAN_WAIT
    assert undecided == set()
    assert with_alert & CAN_WAIT == set()


def test_every_alert_is_described():
    """And nothing else is."""
    described = re.findall(r"^### (.*)", DESCRIPTIONS.read_text(), re.MULTILINE)
    assert {*described} == {*re.findall(r"alert: (\w+)", RULES.read_text())}


def test_every_alert_has_a_case_that_fires_and_one_that_does_not():
    fires, is_quiet = set(), set()
    for path in TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for asked in case.get("promql_expr_test", ()):
                for sample in asked.get("exp_samples", ()):
                    fires.update(re.findall(r'alertname="(\w+)"', sample["labels"]))
            for alert in case.get("alert_rule_test", ()):
                (fires if alert.get("exp_alerts") else is_quiet).add(alert["alertname"])
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert alerts - fires == alerts - is_quiet == set()
