"""What must never run: each row alters a trusted bundle; the command refuses it, names the
reason, exits with the right code, and no engine's library was even loaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring
from edge_signing.oci_writing import write_oci_tar
from edge_signing.sources import open_source

from .conftest import MODEL_YAML, NAME, Outcome, Publisher, Run, colour_model

NOT_TRUSTED, BAD_INPUT = 3, 4
PAST = datetime(2020, 1, 1, tzinfo=UTC)

# Runs the command line, then says on standard error which engines the process has mapped.
WATCHED = """
import sys
from edge_agent.cli.main import guarded
code = guarded(sys.argv[1:])
with open("/proc/self/maps") as stream:
    maps = stream.read().lower()
print("ENGINES", [name for name in ("onnxruntime", "litert") if name in maps], file=sys.stderr)
sys.exit(code)
"""


class Row(NamedTuple):
    """One way to tamper, and what must come of it."""

    alter: Callable[[Publisher], Path | None]
    reason: str
    code: int = NOT_TRUSTED
    command: tuple[str, ...] = ("infer", "green.png", "--model")


def flip(name: str, at: int = -1) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        data = bytearray((one.bundle / name).read_bytes())
        data[at] ^= 1
        (one.bundle / name).write_bytes(data)

    return alter


def signature(one: Publisher) -> Path:
    (found,) = (one.bundle / "signatures").iterdir()
    return found


def flip_signature(part: str) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        text = signature(one).read_text()
        start = text.index(f'"{part}":"') + len(part) + 20
        changed = "A" if text[start] != "A" else "B"
        signature(one).write_text(text[:start] + changed + text[start + 1 :])

    return alter


def rename(old: str, new: str) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        (one.bundle / old).rename(one.bundle / new)

    return alter


def swap(one: Publisher) -> None:
    first, second = one.bundle / "labels.json", one.bundle / "golden/green.png"
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)


def link(name: str, target: str) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        place = one.bundle / name
        kept = one.bundle.parent / "kept"
        place.rename(kept)
        place.symlink_to(target or kept)

    return alter


def resign(name: str, data: bytes) -> Callable[[Publisher], None]:
    """The publisher himself signed this."""

    def alter(one: Publisher) -> None:
        one.put(name, data)
        shutil.rmtree(one.bundle / "signatures")
        one.sign()

    return alter


def described(old: str, new: str) -> Callable[[Publisher], None]:
    assert old in MODEL_YAML
    return resign("model.yaml", MODEL_YAML.replace(old, new).encode())


def listing(name: str) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        files = [(str(p.relative_to(one.bundle)), p.read_bytes()) for p in _files(one)]
        one.seal(sorted([*files, (name, b"x")]))

    return alter


def _files(one: Publisher) -> list[Path]:
    return [p for p in sorted(one.bundle.rglob("*")) if p.is_file() and "signatures" not in p.parts]


def external(location: str) -> Callable[[Publisher], None]:
    """The manifest is right, but the model reads a file that it doesn't list."""

    def alter(one: Publisher) -> None:
        one.put("weights/model.onnx", colour_model(location))
        one.seal([(str(p.relative_to(one.bundle)), p.read_bytes()) for p in _files(one)])

    return alter


def keyring(make: Callable[[Keyring, Publisher], Keyring]) -> Callable[[Publisher], None]:
    def alter(one: Publisher) -> None:
        one.trust(make(Keyring().with_key(one.key.public), one))

    return alter


def other_key(one: Publisher) -> None:
    shutil.rmtree(one.bundle / "signatures")
    one.sign(PrivateKey.generate())


def two_needed(ring: Keyring, one: Publisher) -> Keyring:
    second = PrivateKey.generate().public
    ids = [one.key.public.keyid, second.keyid]
    return ring.with_key(second).with_rule("acme/*", ids, threshold=2)


def counted_twice(one: Publisher) -> None:
    keyring(two_needed)(one)
    second = one.keyring_file.read_text().replace(one.key.public.keyid, "")
    copy = next(word for word in second.split('"') if len(word) == 64)
    shutil.copy(signature(one), signature(one).with_name(f"{copy}.sigstore.json"))


def expired(ring: Keyring, one: Publisher) -> Keyring:
    return ring.with_key(one.key.public, expires=PAST).with_rule("acme/*", [one.key.public.keyid])


def revoked(ring: Keyring, one: Publisher) -> Keyring:
    return ring.with_rule("acme/*", [one.key.public.keyid]).revoke(one.key.public, PAST)


def refusing_first(ring: Keyring, one: Publisher) -> Keyring:
    return ring.with_rule("acme/*", [one.key.public.keyid]).with_rule("acme/colour", [])


def star(ring: Keyring, one: Publisher) -> Keyring:
    return ring.with_rule("*", [one.key.public.keyid])


def other_name(ring: Keyring, one: Publisher) -> Keyring:
    return ring.with_rule("acme/other", [one.key.public.keyid])


def signed_as_other(one: Publisher) -> None:
    shutil.rmtree(one.bundle / "signatures")
    one.sign(name="acme/other")


def mixed(one: Publisher) -> None:
    one.put("extra.txt", b"x")
    stray = Publisher(one.bundle, one.keyring_file.parent)
    kept = signature(one)
    data = kept.read_bytes()
    kept.unlink()
    stray.sign()
    kept.write_bytes(data)


def tar(cut: Callable[[bytes], bytes]) -> Callable[[Publisher], Path]:
    def alter(one: Publisher) -> Path:
        archive = one.bundle.with_suffix(".tar")
        with open_source(one.bundle) as source:
            write_oci_tar(source, archive)
        archive.write_bytes(cut(archive.read_bytes()))
        return archive

    return alter


def flip_in_tar(data: bytes) -> bytes:
    at = data.index(b'["red"') + 2
    return data[:at] + b"R" + data[at + 1 :]


def missing(one: Publisher) -> Path:
    return one.bundle.with_name("nowhere")


INSTALL = ("models", "install")
BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
ROWS = {
    "flipped weights": Row(flip("weights/model.onnx"), "weights/model.onnx"),
    "flipped description": Row(flip("model.yaml"), "model.yaml"),
    "flipped labels": Row(flip("labels.json", 3), "labels.json"),
    "flipped golden": Row(flip("golden/green.png"), "golden/green.png"),
    "flipped payload": Row(flip_signature("payload"), "no key of the keyring signed it"),
    "flipped signature": Row(flip_signature("sig"), "no key of the keyring signed it"),
    "added file": Row(lambda o: o.put("more.txt", b""), "more.txt: the file is not in"),
    "added beside the weights": Row(lambda o: o.put("weights/x.onnx", b""), "weights/x.onnx"),
    "removed labels": Row(lambda o: (o.bundle / "labels.json").unlink(), "missing"),
    "removed weights": Row(lambda o: (o.bundle / "weights/model.onnx").unlink(), "missing"),
    "removed description": Row(lambda o: (o.bundle / "model.yaml").unlink(), "missing"),
    "removed signature": Row(lambda o: signature(o).unlink(), "not signed"),
    "renamed": Row(rename("labels.json", "names.json"), "labels.json"),
    "re-cased": Row(rename("labels.json", "Labels.json"), "abels.json"),
    "re-cased folder": Row(rename("weights", "Weights"), "eights/model.onnx"),
    "swapped contents": Row(swap, "differs from what was signed"),
    "truncated to nothing": Row(lambda o: o.put("labels.json", b""), "labels.json"),
    "another key": Row(other_key, "no key of the keyring signed it"),
    "expired key, install": Row(keyring(expired), "2020-01-01", command=INSTALL),
    "revoked key": Row(keyring(revoked), "revoked"),
    "revoked key, install": Row(keyring(revoked), "revoked", command=INSTALL),
    "too few keys": Row(keyring(two_needed), "1 of 2"),
    "one key counted twice": Row(counted_twice, "1 of 2"),
    "the first rule says no": Row(keyring(refusing_first), "acme/colour"),
    "no rule": Row(keyring(lambda ring, one: ring), "no rule"),
    "rule for another name": Row(keyring(other_name), "no rule"),
    "star crosses no slash": Row(keyring(star), "no rule"),
    "signed under another name": Row(signed_as_other, "acme/other"),
    "signatures over two states": Row(mixed, "different manifests"),
    "linked file": Row(link("labels.json", ""), "labels.json"),
    "linked folder": Row(link("weights", ""), "weights"),
    "link out of the bundle": Row(link("labels.json", "/etc/passwd"), "labels.json"),
    "linked signatures": Row(link("signatures", ""), "signatures"),
    "named pipe": Row(lambda o: os.mkfifo(o.bundle / "pipe"), "pipe"),
    "absolute path": Row(listing("/etc/passwd"), "/etc/passwd"),
    "parent path": Row(listing("../outside"), "../outside"),
    "unlisted external data": Row(external("model.data"), "model.data"),
    "external data above": Row(external("../../../etc/passwd"), "outside the bundle"),
    "absolute external data": Row(external("/etc/passwd"), "outside the bundle"),
    "cut archive": Row(tar(lambda data: data[:700]), "bundle.tar", BAD_INPUT),
    "altered archive": Row(tar(flip_in_tar), "labels.json"),
    "no archive": Row(tar(lambda data: b"x" * 2048), "bundle.tar", BAD_INPUT),
    "no such bundle": Row(missing, "nowhere", BAD_INPUT),
    "YAML bomb": Row(resign("model.yaml", BOMB), "aliases and anchors", BAD_INPUT),
    "large YAML": Row(resign("model.yaml", b"#" * 70_000), "model.yaml", NOT_TRUSTED),
    "deep YAML": Row(resign("model.yaml", b"a: " + b"[" * 999), "model.yaml", BAD_INPUT),
    "unknown key in YAML": Row(described("task:", "tusk: x\ntask:"), "tusk", BAD_INPUT),
    "ambiguous layout": Row(described(", layout: NCHW", ""), "layout", BAD_INPUT),
    "no semantic version": Row(described("1.2.3", "1.2"), "version", BAD_INPUT),
    "names a missing file": Row(described("labels.json", "l.json"), "l.json", BAD_INPUT),
}


@pytest.fixture
def watched(run: Run) -> Run:
    def call(*arguments: str | Path, **more: str) -> Outcome:
        return run(*arguments, script=WATCHED, **more)

    return call


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_tampered_bundle_is_refused(row: Row, publisher: Publisher, watched: Run) -> None:
    (publisher.bundle.parent / "green.png").write_bytes(
        (publisher.bundle / "golden/green.png").read_bytes()
    )
    path = row.alter(publisher) or publisher.bundle
    outcome = watched(*row.command, path)
    assert (outcome.code, outcome.out) == (row.code, "")
    assert row.reason in outcome.err
    assert "ENGINES []" in outcome.err


def test_the_untampered_bundle_runs(publisher: Publisher, watched: Run) -> None:
    outcome = watched("infer", publisher.bundle / "golden/green.png", "--model", publisher.bundle)
    assert outcome.code == 0
    assert outcome.out.splitlines()[1].split() == ["green", "1.000"]
    assert "ENGINES ['onnxruntime']" in outcome.err


def test_expired_key_still_loads_but_does_not_install(publisher: Publisher, run: Run) -> None:
    assert run("models", "install", publisher.bundle).code == 0
    keyring(expired)(publisher)
    path = run("infer", publisher.bundle / "golden/green.png", "--model", publisher.bundle)
    assert (path.code, "expired on 2020-01-01" in path.err) == (0, True)
    again = run("infer", publisher.bundle / "golden/green.png", "--model", NAME)
    assert (again.code, "green" in again.out) == (0, True)
    assert run("models", "install", publisher.bundle).code == NOT_TRUSTED


def test_revoked_key_stops_an_installed_model(publisher: Publisher, run: Run) -> None:
    assert run("models", "install", publisher.bundle).code == 0
    assert run("keys", "revoke", publisher.key.public.keyid[:16]).code == 0
    refused = run("infer", publisher.bundle / "golden/green.png", "--model", NAME)
    assert refused.code == NOT_TRUSTED
    assert "revoked" in refused.err


def test_clock_before_the_release_revives_no_key(publisher: Publisher, run: Run) -> None:
    """A board that boots in 1970 must not take an expired key for a good one."""
    keyring(expired)(publisher)
    script = WATCHED.replace(
        "code =",
        "from datetime import datetime, UTC\n"
        "from edge_agent import clock\n"
        "real = clock.now\n"
        "clock.now = lambda: real(datetime(1970, 1, 1, tzinfo=UTC))\n"
        "code =",
    )
    assert run("models", "install", publisher.bundle, script=script).code == NOT_TRUSTED


CHANGED_AFTER_CHECK = """
import sys
from pathlib import Path
from edge_agent import config
from edge_agent.app import Agent
from edge_agent.cli import failures
from edge_agent.types import Request
bundle = sys.argv[1]
agent = Agent(config.load(), print)
opened = agent.open(bundle)
weights = Path(bundle, "weights/model.onnx")
weights.write_bytes(weights.read_bytes()[:-1] + b"!")
part = opened.description.engines[0]
try:
    opened.model_file(part)
except failures.expected() as error:
    code = failures.report(error, as_json_document=False)
with open("/proc/self/maps") as stream:
    maps = stream.read()
print("ENGINES", ["onnxruntime"] if "onnxruntime" in maps else [], file=sys.stderr)
sys.exit(code)
"""


def test_file_changed_between_check_and_load(publisher: Publisher, run: Run) -> None:
    outcome = run(publisher.bundle, script=CHANGED_AFTER_CHECK)
    assert outcome.code == NOT_TRUSTED
    assert "weights/model.onnx" in outcome.err
    assert "ENGINES []" in outcome.err


def test_version_and_key_of_the_demo_bind_it_alone(publisher: Publisher, run: Run) -> None:
    """A bundle under the demo's name, signed by anybody else, is refused."""
    demo = "demo/efficientnet-lite0"
    publisher.put("model.yaml", MODEL_YAML.replace(NAME, demo).encode())
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign(name=demo)
    refused = run("infer", publisher.bundle / "golden/green.png", "--model", publisher.bundle)
    assert refused.code == NOT_TRUSTED
