"""A stranger and a thief with one host's credential stop no other host; see `runs.thief`."""

from pathlib import Path

from tests.functional.runs.thief import run

MAX_MEMORY_MIB = 1500
"""Of a conductor with its child; its unit limits both to 2 GiB."""


def test_a_stranger_and_a_thief_stop_no_healthy_host(tmp_path: Path, connection: str) -> None:
    outcome = run(tmp_path, connection, seconds=60, hosts=4)
    print(outcome)
    assert outcome.failures == []
    assert outcome.down == set()
    assert outcome.beats > 0 < outcome.reads
    assert outcome.memory_mib < MAX_MEMORY_MIB
    assert len(outcome.logged) == 2
