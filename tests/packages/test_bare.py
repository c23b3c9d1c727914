"""The packages on a bare Debian: built, installed, started, upgraded, removed and purged, in this order."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dist import name_library
from tests.functional.servers.process import require, require_root
from tests.imports import imported_modules
from tests.packages.root import BUILT_WITH, Root, list_members

EXPOSURE = 20
"""The largest exposure of a unit, in tenths, by systemd-analyze security."""
APT = "apt-get -y -q -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
CONFIG = "/etc/nodetracker/nodetracker.conf"
OWN = "/etc/nodetracker/nodetracker-api.conf.d/own.conf"
AGENTS = "/etc/nodetracker/nodetracker-compute.conf.d/own.conf"
STATE = "/var/lib/nodetracker"
USERS_FILES = (
    f"sha256sum {STATE}/compute_id {STATE}/credential {OWN} /srv/api/api.sqlite; ls -ln {STATE}"
)
# As the unit says: its user, its state directory and its program.
AS_AGENT = (
    "setpriv --reuid=nodetracker --regid=nodetracker --init-groups env XDG_STATE_HOME=/var/lib"
)
START = f"""
cd /; {AS_AGENT} /opt/nodetracker/bin/nodetracker-standalone >/tmp/standalone.log 2>&1 & pid=$!
for _ in $(seq 240); do curl -sf http://127.0.0.1:8774/ui/ >/dev/null && break; sleep 0.5; done
curl -si http://127.0.0.1:8774/ui/ | head -1
for _ in $(seq 240); do
    {AS_AGENT} nodetracker-manage --config-file {STATE}/nodetracker.conf node list -f value -c state | grep . && break
    sleep 0.5
done
kill $pid; wait $pid; echo ended with $?
"""
API = f"""
mkdir -p /srv/api; chown nodetracker-api /srv/api
cat > {OWN} <<END
[database]
connection = sqlite:////srv/api/api.sqlite
[api]
auth_strategy = noauth
END
printf '[conductor]\\nuse_local = false\\nendpoint = https://127.0.0.1:1\\n' > {AGENTS}
systemd-tmpfiles --create nodetracker-common.conf
as() {{ setpriv --reuid=nodetracker-api --regid=nodetracker-api --groups=nodetracker,nodetracker-api "$@"; }}
cd /; as nodetracker-manage --config-dir $(dirname {OWN}) db sync
as /opt/nodetracker/bin/nodetracker-api >/tmp/api.log 2>&1 & pid=$!
for _ in $(seq 240); do curl -sf http://127.0.0.1:8774/v1/services && break; sleep 0.5; done
kill $pid; wait $pid; echo; echo ended with $?
"""
CREDENTIAL = "/etc/credstore/nodetracker-conductor.conf"
WITH_CREDENTIAL = f"""
mkdir -p /srv/conductor /etc/credstore /etc/systemd/system/nodetracker-.service.d
printf '[Service]\\nReadWritePaths=/srv\\n' > /etc/systemd/system/nodetracker-.service.d/test.conf
printf '[database]\\nconnection = sqlite:////srv/conductor/db.sqlite\\n[conductor]\\nallow_http = true\\n' > {CREDENTIAL}
chmod 0600 {CREDENTIAL}
manage() {{ nodetracker-manage --config-file {CREDENTIAL} --config-dir /etc/nodetracker/nodetracker-conductor.conf.d "$@"; }}
manage db sync
chown -R nodetracker-conductor /srv/conductor
systemctl daemon-reload
systemctl start nodetracker-conductor nodetracker-api || {{ journalctl --no-pager -n 40; exit 1; }}
systemctl reload nodetracker-conductor nodetracker-api
manage service list -f value -c binary -c state
! {AS_AGENT} cat /run/credentials/nodetracker-conductor.service/nodetracker-conductor.conf
systemctl stop nodetracker-conductor nodetracker-api
systemctl show -p Result -p ExecMainStatus nodetracker-conductor
"""
# The steps' outcomes, a line each; the agent's own file is as it was afterwards.
SUPERVISED = f"""
own=/etc/nodetracker/nodetracker-compute.conf.d/own.conf; mv $own /own.conf
manage() {{ setpriv --reuid=nodetracker --regid=nodetracker --init-groups nodetracker-manage "$@"; }}
write() {{
    printf '%s\\n' '[DEFAULT]' "graceful_shutdown_timeout = $1" 'report_interval = 5' '[compute]' 'compute_driver = fake' \
        '[fake]' 'inventory_file = {STATE}/nodes.yaml' '[database]' 'connection = sqlite:///{STATE}/agent.sqlite' > $own
    chown root:nodetracker $own; chmod 640 $own
}}
nodes() {{ printf '%s\\n' 'nodes: [{{nodename: n, vcpus: 8, memory_mb: 4096, disk_gb: 9}}]' "$1" > {STATE}/nodes.yaml; }}
pid() {{ systemctl show -p MainPID --value nodetracker-compute; }}
state() {{ echo "$1: $2, $(systemctl show -p ActiveState --value nodetracker-compute)"; }}
reload() {{
    since=$(date +%s.%N); code=0; systemctl reload nodetracker-compute 2>/dev/null || code=$?; sleep 2; state "$1" $code
    journalctl -q -u nodetracker-compute -o cat --since "@$since" | grep -Eo "Configuration reloaded|'x' is not a whole number" || true
}}
write 20; nodes; manage db sync
systemctl start nodetracker-compute || {{ journalctl --no-pager -n 40; exit 1; }}; state start $?
before=$(pid); write 30; reload "a good file"; write x; reload "a bad file"; write 20
[ $(pid) = $before ] && echo "the same process"
code=0; setpriv --reuid=nodetracker --regid=nodetracker --init-groups nodetracker-compute 2>/dev/null || code=$?; state "a second agent" $code
kill -9 $before; for _ in $(seq 60); do [ $(pid) != 0 ] && [ $(pid) != $before ] && systemctl is-active -q nodetracker-compute && break; sleep 1; done
state "kill -9" $(systemctl show -p NRestarts --value nodetracker-compute)
nodes 'fail: {{n: hang}}'; systemctl reload nodetracker-compute; sleep 2; systemctl stop nodetracker-compute; state "stop in an audit" $?
rm {STATE}/nodes.yaml {STATE}/agent.sqlite*; mv /own.conf $own
"""
# All services on one host: the agent calls the conductor, which has the database as the REST service does.
INVENTORY = """
all:
  vars:
    ansible_connection: local
    nodetracker_packages: /one/dist
    nodetracker_database: mysql+pymysql://nodetracker:secret@127.0.0.1/nodetracker?charset=utf8mb4
    nodetracker_db_sync: true
    nodetracker_conductors: ["http://127.0.0.1:8775"]
    nodetracker_compute_options: {conductor: {allow_http: true}}
    nodetracker_conductor_options: {conductor: {allow_http: true}}
    nodetracker_api_options: {api: {auth_strategy: noauth}}
  children:
    nodetracker_conductor: {hosts: {this: }}
    nodetracker_api: {hosts: {this: }}
    nodetracker_compute: {hosts: {this: }}
"""
PLAYBOOK = """
export HOME=/root LC_ALL=C.UTF-8
systemctl start mariadb
mariadb -e "create database nodetracker; grant all on nodetracker.* to nodetracker@127.0.0.1 identified by 'secret'"
cd /one/etc/ansible
ansible-playbook --inventory /inventory.yaml site.yaml
ansible-playbook --inventory /inventory.yaml site.yaml
ansible-playbook --inventory /inventory.yaml site.yaml --check --diff
nodetracker-manage service list -f value -c binary -c state
"""


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def roots(request: pytest.FixtureRequest) -> Iterator[tuple[Root, Root]]:
    """A root to install into, and one with the tools that build the packages."""
    require_root("make a root")
    require("mmdebstrap", "unshare", "ip", "systemd-nspawn")
    directory = Path(tempfile.mkdtemp(prefix=f"nodetracker-{request.param}-"))
    try:
        root = Root(directory / "bare", request.param)
        root.run("apt-get update -q")
        tools = root.copy(directory / "tools")
        tools.run(f"{APT} install --no-install-recommends git {' '.join(BUILT_WITH)}")
        tools.run("python3 -m venv /tools && /tools/bin/pip install -q tox")
        yield root, tools
    finally:
        subprocess.run(["rm", "-r", "--one-file-system", str(directory)], check=True)


@pytest.fixture(scope="module")
def built(roots: tuple[Root, Root]) -> Path:
    """The directory of what was built on this release of Debian."""
    return roots[1].build("/one")


@pytest.fixture(scope="module")
def root(roots: tuple[Root, Root], built: Path) -> Root:
    """A bare root with the packages in /dist."""
    roots[0].run("mkdir /dist /before")
    for package in built.glob("*.deb"):
        (roots[0].path / "dist" / package.name).write_bytes(package.read_bytes())
    return roots[0]


def install(root: Root, *services: str, directory: str = "/dist") -> str:
    names = " ".join(f"{directory}/nodetracker-{name}_*.deb" for name in ("common", *services))
    return root.run(f"{APT} install --no-install-recommends {names}")


def check_unit(root: Root, service: str) -> None:
    """Check a unit as systemd does, and print how exposed it is."""
    unit = f"/lib/systemd/system/nodetracker-{service}.service"
    root.run(f"systemd-analyze verify --man=no --recursive-errors=no {unit}")
    command = f"systemd-analyze security --offline=true --threshold={EXPOSURE} {unit}"
    root.run(f"set -o pipefail; {command} | tail -1")


def test_an_environment_made_by_hand_is_moved(root):
    # The version before: the same files with a lower version and another configuration file.
    root.run(
        "set -e; cd /before; for file in /dist/*.deb; do "
        "package=$(dpkg-deb -f $file Package); dpkg-deb -R $file $package; "
        "sed -i 's/+deb/~before+deb/g' $package/DEBIAN/control; "
        f"if [ -e $package{CONFIG} ]; then echo '# before' >> $package{CONFIG}; fi; "
        "dpkg-deb -Znone -b $package ${package}_before.deb; rm -r $package; done"
    )
    root.run("mkdir -p /opt/nodetracker; touch /opt/nodetracker/pyvenv.cfg /opt/nodetracker/own")
    printed = install(root, "standalone", directory="/before")
    assert "the environment in /opt/nodetracker was moved to /opt/nodetracker.2" in printed
    root.run("ls /opt/nodetracker.2*/own")


def test_the_page_of_standalone_answers_and_lists_this_host(root):
    check_unit(root, "standalone")
    printed = root.run(START, network=False)
    assert "200 OK" in printed
    assert printed.splitlines()[-2:] == ["up", "ended with 0"]


def test_an_upgrade_keeps_what_was_changed_and_says_that_the_schema_may_be_due(root):
    root.run(f"echo '# mine' >> {CONFIG}; printf %064d 0 > {STATE}/credential")
    before = root.run(f"sha256sum {STATE}/*; ls -ln {STATE}")
    assert '"nodetracker-manage db sync" is due' in install(root, "standalone")
    assert root.run(f"sha256sum {STATE}/*; ls -ln {STATE}") == before
    assert "# mine" in root.run(f"cat {CONFIG}")
    root.run(f"! grep before {CONFIG}.dpkg-dist")
    assert root.run(START, network=False).splitlines()[-2:] == ["up", "ended with 0"]


@pytest.mark.parametrize("service", ["compute", "conductor", "api"])
def test_a_service_that_needs_configuration_is_not_enabled(root, service):
    install(root, service)
    check_unit(root, service)
    assert root.run(f"systemctl is-enabled nodetracker-{service}", 1) == "disabled\n"
    assert root.run(f"nodetracker-{service} --version")


def test_the_agent_goes_on_with_what_standalone_stored(root):
    root.run(f"cd /; {AS_AGENT} nodetracker-compute --once", network=False)


def test_the_rest_service_starts_with_a_file_of_its_own(root):
    printed = root.run(API, network=False)
    assert '"nodetracker-api"' in printed
    assert "ended with 0" in printed
    root.run(f"! {AS_AGENT} cat {OWN}")
    # The agent's own file says that it calls a conductor; so do the commands of its host.
    assert "conductor" in root.run(f"{AS_AGENT} nodetracker-manage service list", 1)


def test_a_unit_reads_a_credential_that_only_root_can_read_where_there_is_one(root):
    printed = root.boot(WITH_CREDENTIAL)
    assert "nodetracker-conductor up" in printed
    assert printed.splitlines()[-2:] == ["Result=success", "ExecMainStatus=0"]


def test_systemd_supervises_the_agent(root):
    printed = root.boot(SUPERVISED)
    assert printed.splitlines()[-9:] == [
        "start: 0, active",
        "a good file: 0, active",
        "Configuration reloaded",
        "a bad file: 1, active",
        "'x' is not a whole number",
        "the same process",
        "a second agent: 78, active",
        "kill -9: 1, active",
        "stop in an audit: 0, inactive",
    ]


@pytest.mark.parametrize("how", ["remove", "purge"])
def test_what_users_own_outlives_the_packages(root, how):
    before = root.run(USERS_FILES)
    root.run(f"{APT} {how} 'nodetracker-*'")
    assert root.run(USERS_FILES) == before
    root.run("! test -e /usr/bin/nodetracker-manage && ! test -d /opt/nodetracker")
    root.run(f"test -e {CONFIG}", code=0 if how == "remove" else 1)


def test_lintian_finds_no_error(roots, built):
    roots[1].run("lintian --allow-root --fail-on error /one/dist/*.deb")


def test_two_builds_are_the_same(roots, built):
    again = roots[1].build("/two", built.parent)
    names = sorted(path.name for path in built.iterdir())
    assert len([name for name in names if name.endswith(".deb")]) == 5
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        if (built / name).read_bytes() != (again / name).read_bytes():
            members = list_members(built / name) ^ list_members(again / name)
            pytest.fail(
                "\n".join([f"{name} differs:", *sorted(members, key=lambda line: line.split()[1])])
            )


def test_a_second_run_of_the_playbook_changes_nothing(roots, built):
    tools = roots[1]
    tools.run(f"{APT} install --no-install-recommends ansible-core mariadb-server")
    (tools.path / "inventory.yaml").write_text(INVENTORY)
    (tools.path / "etc/apt/apt.conf.d/recommends").write_text('APT::Install-Recommends "0";\n')
    printed = tools.boot(PLAYBOOK)
    changes = [int(n) for n in re.findall(r"changed=(\d+) +unreachable=0 +failed=0", printed)]
    assert changes[0] > 0
    assert changes[1:] == [0, 0]
    services = {f"nodetracker-{name} up" for name in ("api", "compute", "conductor")}
    assert services == {*printed.splitlines()[-3:]}


def test_podman_makes_a_valid_unit_of_the_quadlet(roots, built):
    if "bookworm" in roots[1].run("cat /etc/os-release"):
        pytest.skip("podman 4.3 has no quadlets")
    roots[1].run(f"{APT} install --no-install-recommends podman")
    unit = "/tmp/units/nodetracker.service"
    roots[1].run(
        "mkdir -p /etc/containers/systemd /tmp/units; "
        "cp /one/etc/containers/nodetracker.container /etc/containers/systemd && "
        "/usr/libexec/podman/quadlet /tmp/units && "
        f"systemd-analyze verify --man=no --recursive-errors=no {unit}"
    )


def test_all_that_the_programs_import_is_in_the_package(roots, built):
    sources = (built.parent / "nodetracker").rglob("*.py")
    names = {name for path in sources for name in imported_modules(path.read_text())}
    (roots[1].path / "names").write_text(" ".join(names))
    roots[1].run(
        "dpkg-deb -x /one/dist/nodetracker-common_*.deb / && cd / && /opt/nodetracker/bin/python3 -c '"
        "import nodetracker.cmd, pkgutil; from nodetracker.rpc.transport import import_library; "
        'import_library(); [*map(pkgutil.resolve_name, open("names").read().split())]\''
    )


def test_the_bill_of_materials_names_what_the_package_has(roots, built):
    (path,) = built.glob("nodetracker-common_*.cdx.json")
    names = {part["name"] for part in json.loads(path.read_text())["components"]} - {"htm"}
    printed = roots[1].run("dpkg-deb -c /one/dist/nodetracker-common_*.deb")
    found = {*re.findall(r"/([^/]+)-[^-/]+\.dist-info/METADATA", printed)} - {"nodetracker"}
    assert {name_library(name) for name in names} == {name_library(name) for name in found}
