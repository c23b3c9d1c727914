"""Build dist/ from the committed tree; run by tox's dist environment.

The wheel, the source distribution, the bill of materials and the packages for this Debian. Times,
order and bytecode are those of the commit, not of the build.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
BUILD = ("--no-sign", "--no-check-builddeps")
"""Options of dpkg-buildpackage."""
MATERIALS = "nodetracker.cdx.json"
"""The bill of materials in a package."""


def main(arguments: list[str]) -> int:
    """Build all, or with "--no-packages" what needs no tools of Debian.

    debian/rules calls it with "--installed DIRECTORY", in the source from which it builds.
    """
    if arguments[:1] == ["--installed"]:
        keep_installed(Path(MATERIALS), Path(arguments[1]))
        return 0
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    os.environ |= {"SOURCE_DATE_EPOCH": epoch, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    os.umask(0o022)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        wheel, tree = build_python(Path(directory), epoch)
        write_materials(wheel, DIST / f"{tree.name}.cdx.json")
        if "--no-packages" not in arguments:
            build_packages(wheel, tree, int(epoch))
    files = sorted(path for path in DIST.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")
    return 0


def build_python(directory: Path, epoch: str) -> tuple[Path, Path]:
    """Build wheel and source distribution; returns the wheel and the unpacked source."""
    run(sys.executable, "-m", "build", "--quiet", "--outdir", str(directory), str(ROOT))
    (wheel,) = directory.glob("*.whl")
    (source,) = directory.glob("*.tar.gz")
    run("tar", "-xzf", str(source), "-C", str(directory))
    tree = directory / source.name.removesuffix(".tar.gz")
    DIST.mkdir()
    # Again, as setuptools writes the times and owners of the checkout.
    run(
        "tar", "--sort=name", f"--mtime=@{epoch}", "--owner=0", "--group=0", "--numeric-owner",
        "--mode=u+rwX,go=rX", "--use-compress-program=gzip -9n", "-C", str(directory),
        "-cf", str(DIST / source.name), tree.name,
    )  # fmt: skip
    return Path(shutil.copy(wheel, DIST)), tree


def write_materials(wheel: Path, path: Path) -> None:
    """Write the bill of materials: what is locked, and the vendored JavaScript."""
    run(
        "cyclonedx-py", "requirements", "requirements.lock", "--pyproject", "pyproject.toml",
        "--output-reproducible", "--of", "JSON", "-o", str(path), cwd=ROOT,
    )  # fmt: skip
    materials = json.loads(path.read_text())
    materials["metadata"]["component"]["version"] = wheel.name.split("-")[1]
    materials["components"] += read_vendored()
    path.write_text(json.dumps(materials, indent=1) + "\n")


_LICENSES = {"htm": "Apache-2.0 AND MIT", "uplot": "MIT"}  # htm's file contains Preact


def read_vendored() -> list[dict[str, Any]]:
    """Return htm with Preact, and uPlot, as CycloneDX describes components, from what names them."""
    text = (ROOT / "nodetracker/api/static/vendor/ORIGIN").read_text()
    named = r"(?m)^[\w.]+: (\S+) of (htm|uplot) ([\d.]+) .*npm registry[^\0]*?^SHA-256: (\w{64})$"
    return [
        {
            "type": "library",
            "bom-ref": name,
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name}@{version}",
            "description": file,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [{"expression": _LICENSES[name]}],
        }
        for file, name, version, digest in re.findall(named, text)
    ]


def keep_installed(path: Path, directory: Path) -> None:
    """Drop from a bill of materials the Python libraries that a directory does not have."""
    found = {name_library(d.metadata["Name"]) for d in distributions(path=[str(directory)])}
    materials = json.loads(path.read_text())
    kept = [
        part
        for part in materials["components"]
        if part["purl"].startswith("pkg:npm/") or name_library(part["name"]) in found
    ]
    names = {part["bom-ref"] for part in [materials["metadata"]["component"], *kept]}
    materials["components"] = kept
    materials["dependencies"] = [d for d in materials["dependencies"] if d["ref"] in names]
    path.write_text(json.dumps(materials, indent=1) + "\n")


def name_library(name: str) -> str:
    """Return the one spelling of a library's name, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build_packages(wheel: Path, tree: Path, epoch: int) -> None:
    """Build the packages by debian/rules, each with its bill of materials beside it."""
    shutil.copy(DIST / f"{tree.name}.cdx.json", tree / MATERIALS)
    write_changelog(tree, wheel.name.split("-")[1], epoch)
    run(
        "dpkg-buildpackage", *BUILD, "--build=binary", cwd=tree, WHEEL=str(wheel),
        PIP=f"{sys.executable} -m pip", KEEP=f"{sys.executable} {__file__} --installed",
    )  # fmt: skip
    for package in tree.parent.glob("*.deb"):
        shutil.copy(package, DIST)
        shutil.copy(tree / MATERIALS, DIST / f"{package.stem}.cdx.json")


def write_changelog(tree: Path, version: str, epoch: int) -> None:
    """Write debian/changelog, from which dpkg takes the version, for this release of Debian."""
    system = platform.freedesktop_os_release()
    version = re.sub(r"\.?(dev|a|b|rc)", r"~\1", version, count=1)
    (tree / "debian" / "changelog").write_text(
        f"nodetracker ({version}+deb{system['VERSION_ID']}) {system['VERSION_CODENAME']}; "
        "urgency=medium\n\n  * See releasenotes/notes and docs/upgrading.md.\n\n"
        " -- The nodetracker developers <developers@nodetracker.invalid>  "
        f"{formatdate(epoch, localtime=False)}\n"
    )


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Return what a command prints; its errors go to the terminal."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(command)} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
