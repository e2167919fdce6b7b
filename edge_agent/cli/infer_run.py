"""The work of `edge-agent infer`: the daemon answers where it can, this process otherwise."""

from __future__ import annotations

from edge_agent.cli import infer_answers, socket_infer
from edge_agent.cli.infer_images import read, read_whole, sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_agent.cli.infer_here import Here
    from edge_agent.cli.infer_options import InferOptions


def run(options: InferOptions) -> int:
    """Answers every input in turn; a bad one doesn't stop the others.

    Returns:
        0, or the exit code of the last input that failed.
    """
    code = 0
    answers = _Answers(options)
    try:
        for source in sources(options.images) if options.images else (None,):
            try:
                infer_answers.show(answers.to(source), source, options.json)
            except Exception as error:  # noqa: BLE001 - what isn't about this input goes on
                code = infer_answers.refuse(error, source, options.json)
    finally:
        answers.close()
    return code


class _Answers:
    """The daemon's answers while it gives any, from then on those of this process."""

    def __init__(self, options: InferOptions) -> None:
        self._options = options
        self._daemon = socket_infer.reach(options)
        self._model = None if self._daemon else self._load()

    def to(self, source: str | None) -> dict[str, Any]:
        begun = b""
        if source is not None and self._daemon is not None:
            begun = read(source, socket_infer.MAX_IMAGE_BYTES)
            document = self._daemon.answer(source, begun)
            if document is not None:
                return document
            self._daemon.close()
            self._daemon = None
        if self._model is None:
            self._model = self._load()
        if source is None:
            return self._model.answer(None, None)
        return self._model.answer(source, read_whole(source, self._model.max_bytes, begun))

    def close(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
        if self._model is not None:
            self._model.close()

    def _load(self) -> Here:
        from edge_agent.cli.infer_here import Here

        return Here(self._options)
