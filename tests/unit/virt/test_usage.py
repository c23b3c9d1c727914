"""What the guests of a node use together."""

from nodetracker.virt.usage import UsageMeter

SECOND = 10**9


def cpus(meter, now, counters):
    return meter.observe(counters, 0, now)["vms_cpu_used_milli"]


def test_cpu_usage_is_the_cpu_time_between_two_readings():
    meter = UsageMeter("vms")
    assert cpus(meter, 100, {"a": 0, "b": SECOND}) is None
    assert cpus(meter, 110, {"a": 5 * SECOND, "b": 2 * SECOND}) == 600


def test_a_new_or_restarted_guest_counts_from_the_next_reading():
    meter = UsageMeter("vms")
    cpus(meter, 0, {"a": 9 * SECOND})
    assert cpus(meter, 10, {"a": SECOND, "b": SECOND}) == 0
    assert cpus(meter, 20, {"a": 2 * SECOND, "b": 3 * SECOND}) == 300


def test_without_guests_nothing_is_used():
    assert UsageMeter("vms").observe({}, 0, 0) == {"vms_memory_used_mb": 0, "vms_cpu_used_milli": 0}


def test_what_is_not_known_is_none_and_counts_from_the_last_reading():
    meter = UsageMeter("vms")
    cpus(meter, 0, {"a": 0})
    assert meter.observe(None, None, 10) == {"vms_memory_used_mb": None, "vms_cpu_used_milli": None}
    assert cpus(meter, 20, {"a": 10 * SECOND}) == 500
