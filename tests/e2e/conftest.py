"""The command line in a process of its own, with folders of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from PIL import Image

from edge_signing.bundle import sign_directory
from edge_signing.ed25519 import PrivateKey
from edge_signing.envelope import seal
from edge_signing.keyring import Keyring
from edge_signing.manifest import Resource, build_statement

from .daemons import Daemon, is_alive

ROOT = Path(__file__).parents[2]
NAME = "acme/colour"
MODEL_YAML = """\
schema: edge-agent/model/v1
name: acme/colour
version: 1.2.3
task: image-classification
inputs:
  - {name: image, dtype: float32, shape: [1, 3, 8, 8], layout: NCHW}
outputs:
  - {name: scores, dtype: float32, shape: [1, 3]}
engines:
  - {engine: onnx, file: weights/model.onnx}
preprocess:
  input: image
  color: RGB
  resize: {rule: stretch, size: [8, 8], filter: bilinear}
  normalize: {divisor: 255, mean: [0, 0, 0], std: [1, 1, 1]}
postprocess: {kind: classification, output: scores, activation: softmax, labels: labels.json}
golden:
  image: golden/green.png
  top: {index: 1, score: 1.0, tolerance: 0.01}
"""


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def photos() -> Path:
    return ROOT / "photos"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration, state and sockets are the test's own."""
    mine = {
        "EDGE_AGENT_CONFIG_DIR": str(tmp_path / "config"),
        "EDGE_AGENT_STATE_DIR": str(tmp_path / "state"),
        "EDGE_AGENT_RUNTIME_DIR": str(tmp_path / "run"),  # no daemon of this machine answers
        "COLUMNS": "160",
        "PYTHONWARNINGS": "error",
    }
    ours = ("EDGE_AGENT_", "PYTHON")  # nothing of how the tests themselves were started
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | mine


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Runs `edge-agent` in the test's folder; a traceback fails the test."""

    def call(
        *arguments: str | Path, stdin: bytes = b"", script: str | None = None, **more: str
    ) -> Outcome:
        start = ["-c", script] if script else ["-m", "edge_agent"]
        done = subprocess.run(
            [sys.executable, *start, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environment | more,
            timeout=50,
        )
        outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in outcome.err, outcome.err
        assert "a fault in the agent" not in outcome.err, outcome.err
        return outcome

    return call


class Publisher:
    """Makes and signs bundles of a tiny classifier that tells which colour dominates."""

    def __init__(self, folder: Path, config_dir: Path) -> None:
        self.bundle = folder
        self.keyring_file = config_dir / "keyring.json"
        self.key = PrivateKey.generate()

    def write(self) -> None:
        """Writes the bundle, unsigned."""
        image = BytesIO()
        Image.new("RGB", (8, 8), (0, 255, 0)).save(image, "PNG")
        self.put("model.yaml", MODEL_YAML.encode())
        self.put("labels.json", b'["red", "green", "blue"]')
        self.put("weights/model.onnx", colour_model())
        self.put("golden/green.png", image.getvalue())

    def put(self, name: str, data: bytes) -> None:
        (self.bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (self.bundle / name).write_bytes(data)

    def clear(self) -> None:
        """Removes the signatures, for other content to be signed."""
        shutil.rmtree(self.bundle / "signatures", ignore_errors=True)

    def sign(self, key: PrivateKey | None = None, name: str = NAME) -> None:
        sign_directory(self.bundle, name, key or self.key, replace=False)

    def seal(self, resources: list[tuple[str, bytes]]) -> None:
        """Signs a manifest of any content: what a careless or hostile publisher could sign."""
        digests = [Resource(name, sha256(data).hexdigest()) for name, data in resources]
        payload = raw_statement(NAME, digests)
        folder = self.bundle / "signatures"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        file = folder / f"{self.key.public.keyid}.sigstore.json"
        file.write_bytes(seal(payload, self.key))

    def trust(self, ring: Keyring) -> None:
        self.keyring_file.parent.mkdir(parents=True, exist_ok=True)
        self.keyring_file.write_bytes(ring.serialise())

    def trust_key(self, pattern: str = "acme/*") -> None:
        ring = Keyring().with_key(self.key.public)
        self.trust(ring.with_rule(pattern, [self.key.public.keyid]))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """A publisher whose signed bundle lies in ``bundle`` and is trusted."""
    one = Publisher(tmp_path / "bundle", tmp_path / "config")
    one.write()
    one.sign()
    one.trust_key()
    return one


def colour_model(external: str | None = None) -> bytes:
    """Three scores: the mean of each channel. With `external`, a weight lies in that file."""
    from onnx import TensorProto, helper

    scale = helper.make_tensor("scale", TensorProto.FLOAT, [1], [10.0])
    if external is not None:
        scale.ClearField("float_data")
        scale.data_location = TensorProto.EXTERNAL
        entry = scale.external_data.add()
        entry.key, entry.value = "location", external
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("Mul", ["flat", "scale"], ["scores"]),
        ],
        "colour",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])],
        [scale],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def raw_statement(name: str, resources: list[Resource]) -> bytes:
    """A statement that `build_statement` would refuse to make."""
    root = sha256(b"".join(bytes.fromhex(one.digest_hex) for one in resources)).hexdigest()
    template = json.loads(build_statement(name, [Resource("a", "0" * 64)]))
    template["subject"][0]["digest"]["sha256"] = root
    template["predicate"]["resources"] = [
        {"algorithm": "sha256", "digest": one.digest_hex, "name": one.name} for one in resources
    ]
    return json.dumps(template, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture
def daemon(tmp_path: Path, environment: dict[str, str]) -> Iterator[Daemon]:
    """A daemon that isn't started yet; it is ended with the test, and leaves no process."""
    with TemporaryDirectory(prefix="ea-") as folder:  # names of sockets are short
        environment["EDGE_AGENT_RUNTIME_DIR"] = folder
        one = Daemon(environment, tmp_path)
        try:
            yield one
        finally:
            children = (
                one.children() if hasattr(one, "process") and one.process.poll() is None else []
            )
            if hasattr(one, "process"):
                one.stop()
            assert not [pid for pid in children if is_alive(pid)]
