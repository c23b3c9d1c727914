"""Certificates for test servers, created by the system's ``openssl``."""

import subprocess
from pathlib import Path

from tests.functional.servers.process import require


class Authority:
    """A certificate authority of one test."""

    def __init__(self, directory: Path) -> None:
        require("openssl")
        self.certificate = directory / "ca.pem"
        self._key = directory / "ca.key"
        _run(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
            "-keyout", self._key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, directory: Path, address: str, days: int = 2) -> tuple[Path, Path]:
        """Create a certificate for an address; return its file and its key's.

        Args:
            days: for which it is valid; -1 = it has expired.
        """
        certificate, key, request = (
            directory / name for name in ("server.pem", "server.key", "server.csr")
        )
        extension = directory / "server.ext"
        extension.write_text(f"subjectAltName = IP:{address}\n")
        _run("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={address}",
             "-keyout", key, "-out", request)  # fmt: skip
        _run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
             "-CAcreateserial", "-days", str(days), "-extfile", extension, "-out", certificate)  # fmt: skip
        return certificate, key


def _run(*arguments: str | Path) -> None:
    subprocess.run(
        ["openssl", *map(str, arguments)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
