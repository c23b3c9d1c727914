"""The options of ``candidate list``."""

import argparse

import pytest

from nodetracker.accounting.ledger.request import parse_claim_request
from nodetracker.cmd.manage import ManageApp

BODY = {
    "uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b11",
    "workload": {"uuid": "6a0e1f6c-5a34-4a64-9d3a-0f4f5c9a7b12", "project_id": "p1"},
    "resources": {"VCPU": 2, "MEMORY_MB": 32768, "DISK_GB": 1536, "PCPU": 2, "VGPU": 1},
    "numa": {"nodes": 2, "page_size": "2MB"},
    "pci_requests": [{"alias": "gpu"}, {"alias": "nic", "count": 2}],
    "required_traits": ["T1", "T2"],
}
OPTIONS = (
    "--resource VCPU=2 --resource MEMORY_MB=32GiB --resource DISK_GB=1.5TiB --resource VGPU=1 "
    "--pcpu 2 --numa-cells 2 --page-size 2MB --pci gpu --pci nic=2 --project p1 "
    "--trait T2 --trait T1"
)


def read_request(options):
    app = ManageApp()
    factory, _, _ = app.command_manager.find_command(["candidate", "list"])
    command = factory(app, argparse.Namespace())
    args = command.get_parser("candidate list").parse_args(options.split())
    return command._read_request(args)


def test_each_part_of_a_claim_request_has_an_option():
    wanted, found = parse_claim_request(BODY), read_request(OPTIONS)
    parts = ("amounts", "numa", "pci_requests", "required_traits")
    assert [getattr(found, part) for part in parts] == [getattr(wanted, part) for part in parts]
    assert found.workload.project_id == "p1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            "--resource MEMORY_MB=1KiB",
            "--resource: invalid value 'MEMORY_MB=1KiB': expected CLASS=",
        ),
        ("--resource VCPU=1GiB", "--resource: invalid value 'VCPU=1GiB'"),
        ("--resource VCPU=99999999999", "--resource: VCPU: expected an integer from 0"),
        ("--resource VCPU", "--resource: invalid value 'VCPU'"),
        ("--resource VCPU=two", "--resource: invalid value 'VCPU=two'"),
        ("--resource =2", "--resource: invalid value '=2'"),
        ("--resource MEMORY_MB=-1", "--resource: invalid value 'MEMORY_MB=-1'"),
        ("--resource VCPU=1 --resource VCPU=2", "--resource: duplicate resource class 'VCPU'"),
        ("--limit 0", "--limit: "),
        ("--pcpu -1", "--pcpu: "),
        ("--pcpu 99999999999", "--pcpu: expected an integer from 0 to"),
        ("--pci nic=x", "--pci: invalid value 'nic=x': expected ALIAS or ALIAS=N"),
        ("--pci nic=257", "--pci: expected an integer from 1 to 256"),
        ("--numa-cells 0", "--numa-cells: "),
        ("--resource VCPU=3 --numa-cells 2", "--numa-cells: VCPU 3 cannot be split evenly into 2"),
        ("--resource VCPU=1 --page-size x", "--page-size: 'x' is not a page size"),
        ("--resource DISK_GB=1 --page-size any", "--page-size: needs VCPU or PCPU"),
        ("--project=", "--project: expected a text of 1 to"),
        ("--trait=", "--trait: expected a text of 1 to"),
    ],
)
def test_an_error_names_the_option(options, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        read_request(options)
    assert f"argument {text}" in capsys.readouterr().err
