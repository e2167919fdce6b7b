"""Model files that are broken, each in one way: what lies in a folder, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper, load_model_from_string, numpy_helper

from .conftest import colour_model

OUTSIDE = b"0123456789abcdef"


class Broken(NamedTuple):
    """One way to be broken.

    Attributes:
        file: The model file's name.
        put: Writes it into a folder.
        code: What lint calls it.
        said: Words of the message.
    """

    file: str
    put: Callable[[Path], None]
    code: str
    said: str


def onnx(
    code: str, said: str, data: bytes | Callable[[], bytes], **more: bytes
) -> tuple[str, Callable[[Path], None], str, str]:
    def put(folder: Path) -> None:
        (folder / "model.onnx").write_bytes(data() if callable(data) else data)
        for name, content in more.items():
            (folder / name.replace("_", ".")).write_bytes(content)

    return "model.onnx", put, code, said


def changed(change: Callable[[ModelProto], None]) -> Callable[[], bytes]:
    def make() -> bytes:
        model = load_model_from_string(colour_model())
        change(model)
        data: bytes = model.SerializeToString()
        return data

    return make


def opset(version: int) -> Callable[[], bytes]:
    def change(model: ModelProto) -> None:
        model.opset_import[0].version = version

    return changed(change)


def weights(*values: float) -> Callable[[], bytes]:
    def change(model: ModelProto) -> None:
        tensor = numpy_helper.from_array(np.array(values, "float32"), "scale")
        model.graph.initializer[0].CopyFrom(tensor)

    return changed(change)


def node(index: int, **attributes: Any) -> Callable[[], bytes]:
    def change(model: ModelProto) -> None:
        for key, value in attributes.items():
            if isinstance(value, list):
                model.graph.node[index].ClearField(key)
                getattr(model.graph.node[index], key).extend(value)
            else:
                setattr(model.graph.node[index], key, value)

    return changed(change)


def _cycle(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Add", ["later", "flat"], ["sooner"]))
    model.graph.node.append(helper.make_node("Add", ["sooner", "flat"], ["later"]))


def _unsorted(model: ModelProto) -> None:
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


def _ir(model: ModelProto) -> None:
    model.ir_version = 99


def _twice(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Relu", ["flat"], ["flat"]))


def _no_output(model: ModelProto) -> None:
    model.graph.output[0].name = "nowhere"


def _wrong_shape(model: ModelProto) -> None:
    matrix = numpy_helper.from_array(np.ones((7, 3), "float32"), "matrix")
    model.graph.initializer.append(matrix)
    model.graph.node[2].CopyFrom(helper.make_node("MatMul", ["flat", "matrix"], ["scores"]))


def huge(model: ModelProto, elements: int = 1 << 40) -> None:
    size = numpy_helper.from_array(np.array([elements], "int64"), "size")
    model.graph.initializer.append(size)
    model.graph.node.append(helper.make_node("ConstantOfShape", ["size"], ["huge"]))
    model.graph.node.append(helper.make_node("ReduceSum", ["huge"], ["sum"], keepdims=0))
    model.graph.node[2].output[0] = "before"
    model.graph.node.append(helper.make_node("Add", ["before", "sum"], ["scores"]))


def _string_weights(model: ModelProto) -> None:
    model.graph.initializer[0].data_type = 77


def _subgraph(model: ModelProto) -> None:
    inner = helper.make_graph(
        [helper.make_node("Relu", ["nothing"], ["inner"])],
        "inner",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    flag = numpy_helper.from_array(np.array(True), "flag")
    model.graph.initializer.append(flag)
    model.graph.node.append(
        helper.make_node("If", ["flag"], ["chosen"], then_branch=inner, else_branch=inner)
    )


def _nested() -> bytes:
    """A graph in an attribute in a node in a graph, and so on, far deeper than anybody parses."""
    data = b""
    for _ in range(3000):
        for tag in (0x32, 0x2A, 0x0A):  # attribute.g, node.attribute, graph.node
            data = bytes([tag]) + varint(len(data)) + data
    return bytes([0x08, 8, 0x3A]) + varint(len(data)) + data


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _link(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(colour_model("w.bin"))
    (folder / "secret").write_bytes(OUTSIDE)
    (folder / "w.bin").symlink_to("secret")


def _folder(folder: Path) -> None:
    (folder / "model.onnx").mkdir()


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "model.onnx")


def tflite(code: str, said: str, data: bytes) -> tuple[str, Callable[[Path], None], str, str]:
    return "model.tflite", lambda f: _write(f / "model.tflite", data), code, said


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


_CODES = b"\x18\x00\x00\x00TFL3"
BROKEN: dict[str, Broken] = {
    name: Broken(*what)
    for name, what in {
        "empty": onnx("file-empty", "is empty", b""),
        "text": onnx("file-damaged", "damaged", b"this is no model\n" * 40),
        "html": onnx("file-damaged", "damaged", b"<!DOCTYPE html><html>404</html>"),
        "truncated": onnx("file-damaged", "damaged", colour_model()[:-40]),
        "two-gigabytes": onnx(
            "file-damaged", "damaged", b"\x08\x08\x3a" + varint(2**31 - 1) + b"\x0a\x00"
        ),
        "huge-claim": onnx("file-damaged", "damaged", b"\x08\x08\x3a" + varint(2**62) + b"x"),
        "nested": onnx("file-damaged", "nested too deeply", _nested),
        "no-graph": onnx("file-damaged", "no graph", b"\x08\x08"),
        "new-opset": onnx("opset-unsupported", "has the opset 99", opset(99)),
        "old-opset": onnx("opset-unsupported", "has the opset 3", opset(3)),
        "new-ir": onnx("ir-unsupported", "IR version 99", changed(_ir)),
        "cycle": onnx("graph-cycle", "has a cycle through the node of Add", changed(_cycle)),
        "unsorted": onnx("graph-unsorted", "stands before", changed(_unsorted)),
        "unconnected": onnx("graph-unconnected", "'nothing'", node(1, input=["nothing"])),
        "in-subgraph": onnx("graph-unconnected", "'nothing'", changed(_subgraph)),
        "no-output": onnx("graph-unconnected", "'nowhere'", changed(_no_output)),
        "made-twice": onnx("graph-invalid", "flat", changed(_twice)),
        "wrong-shape": onnx("graph-shapes", "MatMul", changed(_wrong_shape)),
        "unknown-attribute": onnx("graph-invalid", "attribute", node(
            1, attribute=[helper.make_attribute("colour", 1)]
        )),
        "no-such-type": onnx("graph-invalid", "", changed(_string_weights)),
        "nan": onnx("weights-not-finite", "1 NaN among 3", weights(1, float("nan"), 2)),
        "infinite": onnx("weights-not-finite", "1 infinity", weights(1, float("inf"), 2)),
        "custom": onnx("op-custom", "acme.Sharpen", node(1, op_type="Sharpen", domain="acme")),
        "unknown": onnx("op-unknown", "the operator Sharpen", node(1, op_type="Sharpen")),
        "external-missing": onnx("external-data", "'w.bin'", colour_model("w.bin")),
        "external-short": onnx("external-data", "has 2", colour_model("w.bin"), w_bin=b"12"),
        "external-outside": onnx("external-data", "outside", colour_model("../secret")),
        "external-absolute": onnx("external-data", "outside", colour_model("/etc/hostname")),
        "external-link": ("model.onnx", _link, "external-data", "link"),
        "folder": ("model.onnx", _folder, "file-unreadable", "regular file"),
        "pipe": ("model.onnx", _pipe, "file-unreadable", "regular file"),
        "tflite-empty": tflite("file-empty", "is empty", b""),
        "tflite-text": tflite("file-damaged", "TFL3", b"this is no model"),
        "tflite-cut": tflite("file-damaged", "damaged", b"\xf0\x00\x00\x00TFL3" + bytes(8)),
        "tflite-zeros": tflite("engine-refuses", "LiteRT", b"\x1c\x00\x00\x00TFL3" + bytes(64)),
    }.items()
}  # fmt: skip
