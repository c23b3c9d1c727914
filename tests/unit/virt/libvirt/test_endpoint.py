"""`connection_uris`: names, and entries that cannot be told apart."""

import pytest

from nodetracker.virt.libvirt.endpoint import HypervisorEndpoint, parse_endpoints


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
    ("entries", "said"),
    [
        ([], ["no hypervisor"]),
        (["system"], ["'system'"]),
        (["n 1=qemu:///system"], ["'n 1=qemu:///system'"]),
        (["test:///default", "test:///default"], ["test:///default stands twice"]),
        (["n=test:///a.xml", "n=test:///b.xml"], ["test:///a.xml", "test:///b.xml", "called n"]),
    ],
)
def test_entries_that_cannot_be_meant_are_refused(entries, said):
    with pytest.raises(ValueError) as caught:
        parse_endpoints(entries)
    assert all(part in str(caught.value) for part in said)


def test_one_hypervisor_under_two_names_is_told_apart():
    assert len(parse_endpoints(["a=test:///default", "b=test:///default"])) == 2


def test_a_password_is_never_shown():
    (endpoint,) = parse_endpoints(["esx://root:s3cret@esx-1/"])
    assert "s3cret" not in endpoint.source
    assert "esx-1" in endpoint.source
