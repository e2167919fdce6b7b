"""The smallest script that does the demo's job, without signatures: what the others compare with.

python benchmarks/bare_infer.py IMAGE
"""

import json
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnxruntime as ort
from PIL import Image

BUNDLE = Path(__file__).parents[1] / "edge_agent" / "demo" / "bundle"
MODEL = BUNDLE / "weights" / "efficientnet-lite0-u8s8.onnx"


def session(options: Any = None) -> Any:
    """Loads the demo's model; options are onnxruntime's."""
    return ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])


def labels() -> list[str]:
    """Reads the names of the classes."""
    names: list[str] = json.loads((BUNDLE / "labels.json").read_text())
    return names


def prepare(file: str | IO[bytes]) -> Any:
    """Makes the input tensor of an image."""
    image = Image.open(file).convert("RGB")
    width, height = image.size
    scale = 256 / min(width, height)
    image = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    image = image.crop((left, top, left + 224, top + 224))
    return ((np.asarray(image, dtype=np.float32) - 127) / 128).transpose(2, 0, 1)[None]


def best(logits: Any, names: list[str]) -> list[tuple[str, float]]:
    """Returns the five likeliest classes."""
    scores = np.exp(logits - logits.max())
    scores /= scores.sum()
    return [(names[index], float(scores[index])) for index in scores.argsort()[::-1][:5]]


if __name__ == "__main__":
    tensor = prepare(sys.argv[1])
    for label, score in best(session().run(None, {"input": tensor})[0][0], labels()):
        print(label, round(score, 3))
