"""Parsing of `connection_uris`: names, duplicates and invalid entries."""

import pytest

from nodetracker.virt.libvirt.types import HypervisorEndpoint, parse_endpoints


@pytest.mark.parametrize(
    ("entry", "endpoint", "is_local"),
    [
        ("qemu:///system", HypervisorEndpoint("qemu:///system"), True),
        (" n1=qemu:///system ", HypervisorEndpoint("qemu:///system", "n1"), True),
        (
            "qemu:///system?socket=/run/l/sock",
            HypervisorEndpoint("qemu:///system?socket=/run/l/sock"),
            True,
        ),
        ("test:///a/n1.xml", HypervisorEndpoint("test:///a/n1.xml"), True),
        (
            "kvm-2.rack=qemu+ssh://root@kvm-2/system?keyfile=/k=1",
            HypervisorEndpoint("qemu+ssh://root@kvm-2/system?keyfile=/k=1", "kvm-2.rack"),
            False,
        ),
        ("qemu+tls://kvm-3/system", HypervisorEndpoint("qemu+tls://kvm-3/system"), False),
    ],
)
def test_an_entry_is_a_uri_with_or_without_a_name(entry, endpoint, is_local):
    (found,) = parse_endpoints([entry])
    assert found == endpoint
    assert found.is_local is is_local


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], ["at least one URI"]),
        (["system"], ["'system'"]),
        (["n 1=qemu:///system"], ["'n 1=qemu:///system'"]),
        (["test:///default", "test:///default"], ["duplicate URI test:///default"]),
        (
            ["n=test:///a.xml", "n=test:///b.xml"],
            ["test:///a.xml", "test:///b.xml", "duplicate name 'n'"],
        ),
    ],
)
def test_invalid_entries_are_rejected(entries, expected):
    with pytest.raises(ValueError) as caught:
        parse_endpoints(entries)
    assert all(part in str(caught.value) for part in expected)


def test_one_uri_with_two_names_is_two_nodes():
    assert len(parse_endpoints(["a=test:///default", "b=test:///default"])) == 2


def test_a_password_is_never_shown():
    (endpoint,) = parse_endpoints(["esx://root:s3cret@esx-1/"])
    assert "s3cret" not in endpoint.source
    assert "esx-1" in endpoint.source
