"""The packages of the services, built from this tree without the network.

"tox -e dist" builds the one with the programs and their libraries, too.
"""

import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest
from oslo_config import cfg

from nodetracker.cmd.configuration import load_configuration
from tests.dist import BUILD, ROOT, keep_installed, read_vendored, write_changelog
from tests.functional.servers.process import require
from tests.programs import BIN

SERVICES = ("compute", "conductor", "api", "standalone")
PROGRAMS = "/opt/nodetracker/bin/"


def run(*command, cwd=None):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(directory):
    """Build the packages without the environment; returns their directory."""
    tree = directory / "nodetracker"
    for name in ("debian", "etc"):
        shutil.copytree(ROOT / name, tree / name)
    write_changelog(tree, "1.0.0.dev1", 1_700_000_000)
    run("dpkg-buildpackage", *BUILD, "--build=all", cwd=tree)
    return directory


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    require("dpkg-buildpackage", "dh")
    return build(tmp_path_factory.mktemp("packages"))


@pytest.fixture(params=SERVICES)
def unpacked(request, packages, tmp_path):
    """The name of a service, and its unpacked package."""
    (package,) = packages.glob(f"nodetracker-{request.param}_*.deb")
    run("dpkg-deb", "--raw-extract", package, tmp_path)
    return f"nodetracker-{request.param}", tmp_path


def test_a_package_has_the_unit_the_page_and_the_program(unpacked):
    require("systemd-analyze")
    name, root = unpacked
    (unit,) = root.glob(f"**/systemd/system/{name}.service")
    assert filecmp.cmp(unit, ROOT / "etc" / "systemd" / unit.name, shallow=False)
    unit.write_text(unit.read_text().replace(PROGRAMS, f"{BIN}/"))
    assert run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit) == ""
    assert (root / "usr/share/man/man8" / f"{name}.8.gz").is_file()
    assert str((root / "usr/sbin" / name).readlink()) == PROGRAMS + name
    assert re.match(r"\d+\.\d+\.\d+", run(BIN / name, "--version"))


def test_a_package_needs_the_programs_of_its_own_version(unpacked):
    _, root = unpacked
    control = (root / "DEBIAN" / "control").read_text()
    version = "1.0.0~dev1+deb"
    assert f"nodetracker-common (>= {version}" in control
    assert f"Version: {version}" in control


def test_a_new_installation_deletes_old_rows():
    conf = cfg.ConfigOpts()
    load_configuration(conf, [], "nodetracker-conductor", [ROOT / "debian" / "nodetracker.conf"])
    assert (conf.database.released_claims_days, conf.database.history_days) == (30, 90)


def test_only_standalone_starts_by_itself(unpacked):
    name, root = unpacked
    script = (root / "DEBIAN" / "postinst").read_text()
    # Others are enabled again only where somebody enabled them; disabled ones are not started.
    assert ("helper debian-installed" in script) == (name != "nodetracker-standalone")
    assert "deb-systemd-invoke $_dh_action" in script
    assert "deb-systemd-invoke stop" in (root / "DEBIAN" / "prerm").read_text()


def test_engines_ask_no_agent_that_is_removed(unpacked, tmp_path):
    """But on an upgrade they go on."""
    name, root = unpacked
    programs = tmp_path / "bin"
    programs.mkdir()
    for program, code in (("nodetracker-manage", 1), ("systemctl", 0)):
        (programs / program).write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\nexit {code}\n')
        (programs / program).chmod(0o755)
    ours, _, _ = (root / "DEBIAN" / "prerm").read_text().partition("# Automatically added")
    called = []
    for action in ("upgrade", "remove"):
        (tmp_path / "called").write_text("")
        environment = os.environ | {"PATH": f"{programs}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", ours, "prerm", action], check=True, env=environment)
        called.append((tmp_path / "called").read_text())
    has_agent = name in ("nodetracker-compute", "nodetracker-standalone")
    again = "admission remove --driver docker\n"
    steps = f"admission remove --driver libvirt\n{again}reload docker\n{again}"
    assert called == ["", steps if has_agent else ""]


def test_two_builds_are_the_same(packages, tmp_path):
    again = build(tmp_path)
    names = sorted(path.name for path in packages.glob("*.deb"))
    assert len(names) == len(SERVICES)
    assert filecmp.cmpfiles(packages, again, names, shallow=False) == (names, [], [])


def test_the_bill_of_materials_has_the_vendored_files():
    files = {"htm": "standalone.module.js", "uplot": "uPlot.iife.min.js"}
    components = read_vendored()
    assert [component["name"] for component in components] == list(files)
    for component in components:
        name = component["name"]
        body = (ROOT / "nodetracker/api/static/vendor" / files[name]).read_bytes()
        assert component["hashes"][0]["content"] == hashlib.sha256(body).hexdigest()
        assert component["purl"].startswith(f"pkg:npm/{name}@")


def test_the_bill_of_materials_of_a_package_has_what_it_installs(tmp_path):
    (tmp_path / "zope_event-6.1.dist-info").mkdir()
    (tmp_path / "zope_event-6.1.dist-info" / "METADATA").write_text("Name: zope_event\n")
    names = ("zope.event", "eventlet")
    parts = [{"name": name, "bom-ref": name, "purl": f"pkg:pypi/{name}@1"} for name in names]
    materials = {
        "metadata": {"component": {"bom-ref": "root"}},
        "components": [*parts, *read_vendored()],
        "dependencies": [{"ref": ref} for ref in ("root", *names)],
    }
    path = tmp_path / "nodetracker.cdx.json"
    path.write_text(json.dumps(materials))
    keep_installed(path, tmp_path)
    kept = json.loads(path.read_text())
    assert [part["name"] for part in kept["components"]] == ["zope.event", "htm", "uplot"]
    assert kept["dependencies"] == [{"ref": "root"}, {"ref": "zope.event"}]
