"""A build that is killed: whenever it is, folder and archive are each whole, and old or new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Kills itself before the n-th step of giving a new bundle its names, for every n.
SCRIPT = """
import os, sys
from pathlib import Path
from edge_agent.authoring import staging
from edge_agent.authoring.building import build as building

building.earlier.require_bundle = building.earlier.require_archive = lambda path: None
root, can_exchange = Path(sys.argv[1]), sys.argv[2] == "1"
out, archive = root / "b", root / "b.tar"
request = building.BuildRequest(root / "p", out, force=sys.argv[3] == "1")
if not can_exchange:
    staging._exchanged = lambda one, other: False
STEPS = [(Path, "rename"), (Path, "replace"), (Path, "chmod"), (staging, "_exchanged"),
         (staging, "give_name"), (staging, "fsync_directory")]

def counted(die_at):
    count = 0
    def wrap(step):
        def call(*given):
            nonlocal count
            count += 1
            if count == die_at:
                os._exit(9)
            return step(*given)
        return call
    for place, name in STEPS:
        setattr(place, name, wrap(getattr(place, name)))

def place(content):
    with staging.staged(out) as work:
        (work / "bundle" / "weights").mkdir(parents=True)
        (work / "bundle" / "a").write_text(content)
        (work / "bundle" / "weights" / "b").write_text(content)
        (work / "bundle.tar").write_text(content)
        building._place(request, work, out, archive)

def found():
    texts = [one.read_text() if one.exists() else None for one in
             (out / "a", out / "weights" / "b", archive)]
    assert texts[0] == texts[1], texts
    return texts[0], texts[2]

if request.force:
    place("0")
for point in range(1, 100):
    before = found()
    pid = os.fork()
    if pid == 0:
        counted(point)
        place(str(point))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    after = found()
    for old, new in zip(before, after):
        gap = not can_exchange and request.force and new is None
        assert gap or new in (old, str(point)), (point, before, after)
    if code == 0:
        assert after == (str(point), str(point))
        break
    assert code == 9
    if not request.force or after[0] is None:
        import shutil
        shutil.rmtree(out, ignore_errors=True)
        archive.unlink(missing_ok=True)
        if request.force:
            place("0")
left = sorted(one.name for one in root.iterdir())
assert left == ["b", "b.tar"], left
print(point - 1)
"""


def points(root: Path, *, can_exchange: bool, force: bool) -> int:
    """Returns at how many points it was killed."""
    arguments = [str(root), *("1" if one else "0" for one in (can_exchange, force))]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_new_bundle(tmp_path: Path) -> None:
    assert points(tmp_path, can_exchange=True, force=False) >= 6


def test_bundle_in_the_place_of_another(tmp_path: Path) -> None:
    assert points(tmp_path, can_exchange=True, force=True) >= 6


def test_where_names_cannot_be_exchanged(tmp_path: Path) -> None:
    assert points(tmp_path, can_exchange=False, force=True) >= 8
