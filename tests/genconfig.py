"""Check or write etc/nodetracker/nodetracker.conf.sample; run by tox's genconfig environment."""

import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "etc" / "nodetracker" / "nodetracker.conf.sample"


def main(action: str) -> int:
    """Compare or write the sample; returns the exit code."""
    manage = Path(sys.executable).parent / "nodetracker-manage"
    generated = subprocess.run(
        [manage, "config", "sample"], capture_output=True, text=True, check=True
    ).stdout
    if action == "write":
        SAMPLE.write_text(generated)
        return 0
    if generated != SAMPLE.read_text():
        print(f"{SAMPLE} is out of date: run tox -e genconfig -- write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
