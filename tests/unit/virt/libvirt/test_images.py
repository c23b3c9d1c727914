"""Capacity of disk images by their headers."""

import pytest

from nodetracker.model.errors import HostDataError
from nodetracker.virt.libvirt.sizes import read_image_capacity

HEADER = b"QFI\xfb" + (3).to_bytes(4, "big") + bytes(16) + (5 * 2**30).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("image_format", "content", "capacity"),
    [
        ("qcow2", HEADER + bytes(72), 5 * 2**30),
        ("raw", bytes(4096), 4096),
        ("raw", HEADER, len(HEADER)),
        ("vmdk", b"KDMV", None),
    ],
    ids=["qcow2", "raw", "a header that a guest wrote", "a format that is not known"],
)
def test_the_capacity_is_what_the_guest_sees(tmp_path, image_format, content, capacity):
    image = tmp_path / "image"
    image.write_bytes(content)
    assert read_image_capacity(image, image_format) == capacity


@pytest.mark.parametrize("content", [b"", HEADER[:28], bytes(4096)])
def test_an_invalid_header_is_an_error(tmp_path, content):
    image = tmp_path / "image"
    image.write_bytes(content)
    with pytest.raises(HostDataError, match="has no qcow2 header"):
        read_image_capacity(image, "qcow2")


def test_a_missing_image_is_an_error(tmp_path):
    with pytest.raises(HostDataError, match="No such file"):
        read_image_capacity(tmp_path / "image", "raw")
