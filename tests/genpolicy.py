"""Check or write etc/nodetracker/policy.yaml.sample; run by tox's genpolicy environment."""

import contextlib
import io
import sys
from pathlib import Path

from oslo_policy import generator

SAMPLE = Path(__file__).parent.parent / "etc" / "nodetracker" / "policy.yaml.sample"


def main(action: str) -> int:
    """Compare or write the sample; returns the exit code."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        generator.generate_sample(["--namespace", "nodetracker"])
    generated = output.getvalue().rstrip("\n") + "\n"
    if action == "write":
        SAMPLE.write_text(generated)
        return 0
    if generated != SAMPLE.read_text():
        print(f"{SAMPLE} is out of date: run tox -e genpolicy -- write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
