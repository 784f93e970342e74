"""What no file of this repository may hold: addresses of registries, paths of one machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In pieces, so that this file passes its own test.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("maven-central", "storage"),
        ("repository", "apache", "org"),
        ("deb", "debian", "org"),
        ("conda", "anaconda", "org"),
    )
]
MACHINE_PATHS = [rf"(?<![\w.])/{folder}/" for folder in ("work", "root", "home")]
FORBIDDEN = {
    "a registry's host": "|".join(re.escape(host) for host in REGISTRY_HOSTS),
    "a path of one machine": "|".join(MACHINE_PATHS),
    "an index option": r"--(?:extra-)?index-" + "url[ =]",
    "the mark of a merge that was not finished": r"^(?:<{7} |>{7} |={7}$)",
    "the number of an issue": r"(?i)\bissues? #?\d",
}


def tracked_texts() -> list[tuple[str, str]]:
    """Names and contents of the files under version control, programs' binary ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of tracked files")
    texts = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts.append((name, content.decode("utf-8")))
    return texts


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_contains_forbidden_text(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    texts = tracked_texts()
    assert "pyproject.toml" in dict(texts)
    actual = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
    assert actual == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("the mark of a merge that was not finished", "<" * 7 + " HEAD"),
        ("the number of an issue", "as Issue" + " 3 asks for"),
        ("a registry's host", "https://files." + REGISTRY_HOSTS[1] + "/packages/x.whl"),
        ("a path of one machine", "cd /" + "work/main"),
        ("a path of one machine", "'/" + "home/somebody/x'"),
        ("an index option", "--index-" + "url https://example.org/simple"),
    ],
)
def test_forbidden_line_is_recognised(what: str, line: str) -> None:
    assert re.search(FORBIDDEN[what], line)


def test_every_pin_of_the_lock_has_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pins = re.split(r"\n(?=[A-Za-z0-9])", lock)[1:]
    assert len(pins) > 50
    unhashed = [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin]
    assert unhashed == []
    assert [pin.split()[0] for pin in pins if "==" not in pin.split()[0]] == []
