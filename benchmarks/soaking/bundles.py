"""Two versions of a tiny classifier whose labels tell which of them answered."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Final

from onnx import TensorProto, helper
from PIL import Image

from edge_signing.bundle import sign_directory
from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring

NAME: Final = "soak/colour"
OLD, NEW = "1.0.0", "2.0.0"
COLOURS: Final = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
LABELS: Final = {
    OLD: {"red": "red", "green": "green", "blue": "blue"},
    NEW: {"red": "rouge", "green": "vert", "blue": "bleu"},
}
KINDS: Final = 400  # pictures of each colour
_YAML: Final = """\
schema: edge-agent/model/v1
name: {name}
version: {version}
task: image-classification
inputs:
  - {{name: image, dtype: float32, shape: [1, 3, 8, 8], layout: NCHW}}
outputs:
  - {{name: scores, dtype: float32, shape: [1, 3]}}
engines:
  - {{engine: onnx, file: model.onnx}}
preprocess:
  input: image
  color: RGB
  resize: {{rule: stretch, size: [8, 8], filter: bilinear}}
  normalize: {{divisor: 255, mean: [0, 0, 0], std: [1, 1, 1]}}
postprocess: {{kind: classification, output: scores, activation: softmax, labels: labels.json}}
golden:
  image: golden.png
  top: {{index: 1, score: 1.0, tolerance: 0.01}}
"""


def make(folder: Path, config_dir: Path) -> list[Path]:
    """Writes and signs both versions, the old one last, and has their key trusted.

    Args:
        folder: Where they go.
        config_dir: The agent's.

    Returns:
        The bundles, in the order in which they should be installed.
    """
    key = PrivateKey.generate()
    ring = Keyring().with_key(key.public).with_rule("soak/*", [key.public.keyid])
    config_dir.mkdir(parents=True)
    (config_dir / "keyring.json").write_bytes(ring.serialise())
    return [_bundle(folder / version, version, key) for version in (NEW, OLD)]


def picture(colour: str, number: int) -> bytes:
    """Makes one of `KINDS` pictures in which a colour dominates."""
    shades = iter(divmod(number % KINDS, 20))
    pixel = tuple(one or next(shades) for one in COLOURS[colour])
    file = BytesIO()
    Image.new("RGB", (8, 8), pixel).save(file, "PNG")
    return file.getvalue()


def _bundle(folder: Path, version: str, key: PrivateKey) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.yaml").write_text(_YAML.format(name=NAME, version=version))
    (folder / "labels.json").write_text(json.dumps(list(LABELS[version].values())))
    (folder / "golden.png").write_bytes(picture("green", 0))
    (folder / "model.onnx").write_bytes(_model())
    sign_directory(folder, NAME, key)
    return folder


def _model() -> bytes:
    """Scores are ten times the mean of each channel."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("Mul", ["flat", "ten"], ["scores"]),
        ],
        "colour",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor("ten", TensorProto.FLOAT, [1], [10.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
