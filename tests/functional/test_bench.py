"""The bench runs: the subjects that start no program, at the smallest sizes."""

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import ROOT, SUBJECTS, _divide, main

SMALLEST = {
    "audits": "--database sqlite --sizes 2x1 --repeats 1",
    "bodies": "--share 2",
    "candidates": "--database sqlite --nodes 3 --workloads 1 --repeats 5",
    "claims": "--database sqlite --nodes 3 --workloads 1 --clients 2 --bulk 2 --seconds 0.2"
    " --guests 1 --repeats 1",
    "fleet": "--mode light --agents 4 --processes 2 --guests 1 --settle 0 --seconds 3"
    " --start-at-once",
    "plans": "--database sqlite --nodes 3 --workloads 2 --hosts 1 --repeats 1",
    "samples": "--nodes 30 --samples 3 0",
    "tolerance": "--database sqlite --nodes 3 --workloads 1 --changed 1",
    "trends": "--database sqlite --nodes 3",
}


def run(tmp_path: Path, subject: str, *options: str) -> dict[str, list[dict[str, float | str]]]:
    path = tmp_path / "figures.json"
    tables = main([subject, *SMALLEST[subject].split(), *options, f"--json={path}"])
    document = json.loads(path.read_text())
    assert document["tables"] == tables
    assert document["machine"]["cores"] >= 1
    return tables


@pytest.mark.parametrize("subject", SMALLEST)
def test_a_subject_is_measured(tmp_path: Path, subject: str) -> None:
    tables = run(tmp_path, subject)
    assert all(tables.values())
    if subject == "fleet":
        (idle,) = tables["Light agents and claims"]
        assert (idle["down at most"], idle["failures"]) == (0, 0)


def test_a_profile_of_claims_says_where_their_time_goes(tmp_path: Path) -> None:
    tables = run(tmp_path, "claims", "--profile")
    statements, functions = tables["Time by statement"], tables["Time by function"]
    inserted = [row for row in statements if str(row["statement"]).startswith("INSERT INTO claims")]
    assert [(row["claims of a request"], row["of a request"]) for row in inserted] == [
        (1, 1),
        (2, 1),
    ]
    assert {row["claims of a request"] for row in functions} == {1, 2}


def test_another_checkout_is_measured_in_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rows,) = run(tmp_path, "samples", f"--compare={ROOT}", "--rounds=1").values()
    own, other, ratio = (
        [row for row in rows if row["code"] == code] for code in ("this", ROOT.name, "ratio")
    )
    assert [row | {"code": ""} for row in own] == [row | {"code": ""} for row in other]
    assert len(ratio) == len(own)
    assert "| ratio | spread | 3 |" in capsys.readouterr().out


def test_a_column_that_the_other_checkout_lacks_has_no_ratio() -> None:
    these, others = [{"ms": 2.0, "new": 1.0}], [{"ms": 4.0}]
    assert [_divide(name, these, others) for name in these[0]] == [0.5, ""]


def test_every_subject_says_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    for subject in SUBJECTS:
        with pytest.raises(SystemExit):
            main([subject, "--help"])
        assert "--compare CHECKOUT" in capsys.readouterr().out
