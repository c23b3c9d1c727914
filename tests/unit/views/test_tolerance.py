"""Which losses of hosts are survived, in words, in the health and in the metrics."""

from datetime import timedelta

import pytest

from nodetracker.metrics.fleet import render_page
from nodetracker.model.tolerance import HostTolerance, LostGuest, Verdict
from nodetracker.views.fleet_health import HealthLevel, summarize_health
from nodetracker.views.tolerance import describe_lost, summarize_tolerance
from tests.builders import NOW
from tests.unit.views.overview import NODE, build

OLD = NOW - timedelta(minutes=25)


def answer(host, verdict=Verdict.SURVIVED, lost="", **given):
    times = {"computed_at": NOW, "checked_at": NOW, "expires_at": NOW + timedelta(minutes=20)}
    return HostTolerance(host, verdict, lost, **{**times, **given})


FINE = (answer("h1"), answer("h2"))
BAD = (
    answer("h1"),
    answer("h12", Verdict.NOT_SURVIVED, "3 guests of 64 GiB with 2 cells"),
    answer("h4", Verdict.NOT_SURVIVED, "1 guest of 2 GiB"),
    answer("h5", Verdict.UNKNOWN, "1 guest with unknown requirements"),
)
STALE = tuple(answer(host, checked_at=OLD, expires_at=OLD) for host in ("h1", "h2"))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((), "Not computed yet"),
        (FINE, "Survives the loss of any one host"),
        (
            BAD,
            "Does not survive the loss of h4 (1 guest of 2 GiB), "
            "h12 (3 guests of 64 GiB with 2 cells)",
        ),
        (
            (BAD[0], BAD[3]),
            "Not known whether it survives the loss of h5 (1 guest with unknown requirements)",
        ),
        (
            [answer(f"h{n}", Verdict.NOT_SURVIVED, "x") for n in range(1, 6)],
            "Does not survive the loss of h1 (x), h2 (x), h3 (x), 2 more",
        ),
        (STALE, "Survives the loss of any one host, as of 25 min ago"),
    ],
)
def test_the_answer_is_a_sentence(hosts, expected):
    assert summarize_tolerance(hosts, NOW).text == expected


def test_guests_without_a_place_are_named_by_size_the_largest_first():
    sizes = [(512, 0), (65536, 2), (65536, 2), (1024, 0), (2048, 1), (256, 0), (128, 0)]
    lost = [LostGuest("u", "n", memory, cells, "") for memory, cells in sizes]
    assert describe_lost(lost) == (
        "2 guests of 64 GiB with 2 cells, 1 guest of 2 GiB with 1 cell, 1 guest of 1 GiB, 3 more"
    )


def notes_of(tolerances):
    health = summarize_health(build(NODE, tolerances=tolerances))
    return health.level, [note.text for note in health.notes]


def test_the_health_notes_it_unless_there_is_one_host_or_no_answer():
    assert notes_of(FINE) == (HealthLevel.GOOD, ["survives the loss of any one host"])
    level, (note,) = notes_of(BAD)
    assert (level, note.startswith("does not survive the loss of h4")) == (HealthLevel.GOOD, True)
    assert notes_of(FINE[:1]) == (HealthLevel.GOOD, [])
    assert notes_of(()) == (HealthLevel.GOOD, [])


@pytest.mark.parametrize(
    ("tolerances", "tolerated", "hosts"),
    [
        (FINE, ["1.0"], {'host="h1"': "1.0", 'host="h2"': "1.0"}),
        (BAD, ["0.0"], {'host="h1"': "1.0", 'host="h12"': "0.0", 'host="h4"': "0.0"}),
        ((BAD[0], BAD[3]), [], {'host="h1"': "1.0"}),
        (STALE, [], {}),
        ((), [], {}),
    ],
)
def test_metrics_have_what_is_known_and_not_too_old(tolerances, tolerated, hosts):
    page = render_page(build(NODE, tolerances=tolerances), max_nodes=0).decode()
    lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
    values = {name: value for name, _, value in lines}
    found = [values[name] for name in values if name.endswith("fleet_host_failures_tolerated")]
    prefix = "nodetracker_host_evacuable{"
    assert found == tolerated
    assert {
        name.removeprefix(prefix)[:-1]: value
        for name, value in values.items()
        if name.startswith(prefix)
    } == hosts
