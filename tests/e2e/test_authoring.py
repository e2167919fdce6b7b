"""From one's own model to an answer from a signed bundle: quickly, then with one's own key."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from .conftest import MODEL_YAML, NAME, ROOT, Publisher, Run, colour_model

DEMO = ROOT / "edge_agent" / "demo" / "bundle"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "Colour Net.onnx").write_bytes(colour_model())
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    return tmp_path / "Colour Net.onnx"


def test_quick_bundle_answers(run: Run, model: Path, photos: Path) -> None:
    made = run("bundle", "quick", model, "--labels", "labels.txt", "--preset", "zero-one")
    assert made.code == 0, made.err
    assert "assumed: NCHW images of 8x8, RGB" in made.out
    assert "logits, so softmax follows" in made.out
    answer = run("infer", photos / "coffee.png", "--model", "./Colour Net.bundle", "--json").json()
    assert answer["model"]["name"] == "local/colour-net"
    assert answer["labels"][0]["label"] == "red"
    assert run("bundle", "quick", model, "--labels", "labels.txt").code == 4  # exists already


def test_the_demo_model_made_anew_gives_the_same_answer(run: Run, photos: Path) -> None:
    weights = DEMO / "weights" / "efficientnet-lite0-u8s8.onnx"
    made = run(
        "bundle", "quick", weights, "--labels", DEMO / "labels.json", "--out", "mine", "--json",
        "--preset", "efficientnet-lite", "--golden", photos / "coffee.png",
    )  # fmt: skip
    assert made.code == 0, made.err
    mine, demo = (
        run("infer", photos / "chelsea.png", "--json", "--engine", "onnx", *more).json()["labels"]
        for more in (["--model", "./mine"], [])
    )
    assert mine == demo
    checked = run("bundle", "verify", "./mine", "--json").json()
    assert checked["engines"] == [{"engine": "onnx", "ok": True, "problem": None}]


def test_probabilities_get_no_second_softmax(run: Run, tmp_path: Path, photos: Path) -> None:
    from onnx import helper, load_model_from_string

    logits = load_model_from_string(colour_model())
    logits.graph.node.append(helper.make_node("Softmax", ["scores"], ["p"], axis=1))
    logits.graph.output[0].name = "p"
    (tmp_path / "p.onnx").write_bytes(logits.SerializeToString())
    (tmp_path / "l.json").write_text('["r", "g", "b"]')
    made = run("bundle", "quick", "p.onnx", "--labels", "l.json")
    assert "holds probabilities" in made.out


def test_several_outputs_are_not_guessed(run: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, load_model_from_string

    model = load_model_from_string(colour_model())
    model.graph.output.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [1, 3]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "l.txt").write_text("\ufeffred\r\ngreen\r\nblue\r\n")
    refused = run("bundle", "quick", "m.onnx", "--labels", "l.txt")
    assert refused.code == 4
    assert "hint: say --output NAME" in refused.err
    made = run("bundle", "quick", "m.onnx", "--labels", "l.txt", "--output", "flat")
    assert "the output 'flat' holds" in made.out
    assert json.loads((tmp_path / "m.bundle/labels.json").read_text()) == ["red", "green", "blue"]


def test_nothing_is_left_where_it_cannot_be_written(run: Run, model: Path, tmp_path: Path) -> None:
    refused = run("bundle", "quick", model, "--labels", "labels.txt", "--out", "no/b")
    assert refused.code == 0  # folders are made
    (tmp_path / "file").write_bytes(b"")
    refused = run("bundle", "quick", model, "--labels", "labels.txt", "--out", "file/b")
    assert (refused.code, "can't be written" in refused.err) == (1, True)


def test_a_link_beside_a_strangers_model_is_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(colour_model("w.bin"))
    (tmp_path / "l.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "secret").write_bytes(b"0123")
    (tmp_path / "w.bin").symlink_to(tmp_path / "secret")
    refused = run("bundle", "quick", "m.onnx", "--labels", "l.txt")
    assert (refused.code, "w.bin" in refused.err) == (4, True)
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    assert run("bundle", "quick", "m.onnx", "--labels", "l.txt").code == 4
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/shadow").write_bytes(bytes(12))
    (tmp_path / "d").symlink_to("elsewhere")
    (tmp_path / "m.onnx").write_bytes(colour_model("d/shadow"))
    for words in (["quick", "m.onnx", "--labels", "l.txt"], ["init", "m.onnx", "--out", "p"]):
        refused = run("bundle", *words)
        assert (refused.code, "is a symbolic link" in refused.err) == (4, True)
    assert not (tmp_path / "p").exists()
    assert not (tmp_path / "m.bundle").exists()


def test_own_key_from_making_to_running_elsewhere(
    run: Run, model: Path, tmp_path: Path, photos: Path
) -> None:
    assert run("keys", "generate", "acme").code == 0
    made = run(
        "bundle", "quick", model, "--labels", "labels.txt", "--name", "acme/colour",
        "--key", "acme", "--out", "b",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert "trust it: edge-agent keys trust acme --for acme/colour --first" in made.out
    assert run("bundle", "verify", "./b").code == 3  # nobody trusts the key yet
    assert run("keys", "trust", "acme", "--for", "acme/*").code == 0
    assert run("bundle", "verify", "./b").code == 0

    # Another machine: only the bundle and the public half.
    there = {"EDGE_AGENT_CONFIG_DIR": str(tmp_path / "there")}
    (tmp_path / "acme.pub").write_bytes((tmp_path / "config/keys/acme.pub").read_bytes())
    assert run("bundle", "pack", "b", "b.tar").code == 0
    assert run("infer", photos / "coffee.png", "--model", "b.tar", **there).code == 3
    assert run("keys", "trust", "./acme.pub", "--for", "acme/*", **there).code == 0
    installed = run("models", "install", "b.tar", "--json", **there).json()
    assert (installed["name"], installed["already_installed"]) == ("acme/colour", False)
    again = run("models", "install", "b.tar", "--json", **there).json()
    assert again["already_installed"] is True
    assert run("infer", photos / "coffee.png", "--model", "acme/colour", **there).code == 0
    listed = run("models", "list", "--json", **there).json()["models"]
    assert [(one["name"], one["active"]) for one in listed] == [("acme/colour", True)]
    assert run("models", "remove", "acme/colour", **there).code == 0
    assert run("infer", photos / "coffee.png", "--model", "acme/colour", **there).code == 5


def test_changed_bundle_is_signed_again(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "b").code == 0
    (tmp_path / "b/labels.json").write_text('["rouge", "vert", "bleu"]')
    assert run("bundle", "verify", "./b").code == 3
    refused = run("bundle", "sign", "b", "--key", "dev")
    assert (refused.code, "replace" in refused.err) == (3, True)
    assert run("bundle", "sign", "b", "--key", "dev", "--replace").code == 0
    assert run("bundle", "verify", "./b").code == 0


def test_sealed_key_needs_its_passphrase(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "right").write_text("correct horse\n")
    (tmp_path / "wrong").write_text("battery staple\n")
    assert run("keys", "generate", "vault", "--passphrase-file", "right").code == 0
    quick = [
        "bundle",
        "quick",
        model,
        "--labels",
        "labels.txt",
        "--name",
        "acme/v",
        "--key",
        "vault",
    ]
    assert run(*quick).code == 2  # no terminal to ask on
    assert run(*quick, "--passphrase-file", "wrong").code == 4
    assert run(*quick, "--passphrase-file", "right").code == 0


def test_key_that_others_can_read_is_refused(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("keys", "generate", "k").code == 0
    key = tmp_path / "config/keys/k.key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o640)
    refused = run("bundle", "sign", DEMO, "--key", "k")
    assert refused.code == 4
    assert "chmod" in refused.err
    assert run("keys", "generate", "k").code == 4  # never overwritten


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.onnx", "--labels", "labels.txt"], 4, "can't be read"),
        (["labels.txt", "--labels", "labels.txt"], 4, "labels.txt: the ONNX file is damaged"),
        (["m.tflite", "--labels", "labels.txt"], 4, "edge-agent bundle init"),
        (["Colour Net.onnx", "--labels", "two.txt"], 4, "2 labels"),
        (["Colour Net.onnx", "--labels", "labels.txt", "--name", "acme/x"], 4, "--key"),
        (
            ["Colour Net.onnx", "--labels", "labels.txt", "--name", "Local/X"],
            2,
            "--name can't be 'Local/X'",
        ),
        (
            ["Colour Net.onnx", "--labels", "labels.txt", "--version", "1"],
            2,
            "--version can't be '1'",
        ),
        (["Colour Net.onnx", "--labels", "labels.txt", "--layout", "NHWC"], 4, "NHWC"),
        (["Colour Net.onnx", "--labels", "labels.txt", "--golden", "two.txt"], 4, "image"),
    ],
)
def test_what_can_be_wrong_with_a_quick_bundle(
    arguments: list[str], code: int, said: str, run: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "two.txt").write_text("a\nb\n")
    outcome = run("bundle", "quick", *arguments)
    assert (outcome.code, said in outcome.err) == (code, True), outcome.err
    assert not list(tmp_path.glob("*.bundle"))
    assert not list(tmp_path.glob(".*.bundle*"))


def test_rules_and_keys(run: Run) -> None:
    for name in ("a", "b"):
        assert run("keys", "generate", name).code == 0
    assert run("keys", "trust", "a", "--for", "acme/*", "--comment", "first").code == 0
    hidden = run("keys", "trust", "b", "--for", "acme/camera")
    assert "the earlier rule 'acme/*' decides first" in hidden.err
    two = ("keys", "trust", "a", "b", "--for", "acme/gate", "--threshold", "2", "--first")
    assert run(*two, "--expires", "2031-01-31").code == 0
    listed = run("keys", "list", "--json").json()
    assert [rule["bundles"] for rule in listed["rules"]] == [
        "acme/gate", "acme/*", "acme/camera", "demo/efficientnet-lite0",
    ]  # fmt: skip
    assert listed["rules"][0]["threshold"] == 2
    assert {key["expires"] for key in listed["keys"]} == {None, "2031-01-31T00:00:00Z"}
    replaced = run("keys", "trust", "a", "--for", "acme/camera", "--expires", "never")
    assert "is replaced" in replaced.err
    listed = run("keys", "list", "--json").json()
    assert [rule["bundles"] for rule in listed["rules"]][2] == "acme/camera"
    known = {key["comment"]: key["expires"] for key in listed["keys"] if key["comment"]}
    assert known["first"] is None
    assert run("keys", "untrust", "acme/camera").code == 0
    assert run("keys", "untrust", "acme/camera").code == 2
    assert run("keys", "trust", "a", "--for", "x", "--expires", "soon").code == 2
    assert run("keys", "trust", "a", "--for", "x", "--threshold", "2").code == 2
    assert run("keys", "trust", "nobody", "--for", "x").code == 4
    assert run("keys", "revoke", "ffffffffffff").code == 2


def test_owner_can_refuse_the_demo(run: Run, photos: Path) -> None:
    (key,) = run("keys", "list", "--json").json()["keys"]
    assert run("keys", "revoke", key["keyid"]).code == 0
    assert run("infer", photos / "coffee.png").code == 3


def test_inspect_shows_what_is_not_trusted(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "b").code == 0
    (tmp_path / "b/extra").write_text("x")
    shown = run("bundle", "inspect", "./b", "--json").json()
    assert (shown["trusted"], shown["digest"]) == (False, None)
    assert "extra" in shown["reason"]
    assert shown["model"]["name"] == "local/colour-net"
    assert "NOT trusted" in run("bundle", "inspect", "./b").out


def test_description_that_the_model_contradicts(run: Run, publisher: Publisher) -> None:
    """Found when it is verified or installed, golden input or not."""
    without = MODEL_YAML.partition("golden:")[0]
    text = without.replace("name: image,", "name: picture,").replace(
        "input: image", "input: picture"
    )
    publisher.put("model.yaml", text.encode())
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign()
    for command in (("bundle", "verify"), ("models", "install")):
        refused = run(*command, publisher.bundle)
        assert refused.code == 4
        assert "the file has no input 'picture'; it has image" in refused.err
    assert run("models", "list", "--json").json()["models"] == []


def test_schema_is_json(run: Run) -> None:
    assert json.loads(run("bundle", "schema").out)["title"] == "edge-agent model.yaml"


def test_archive_is_reproducible(run: Run, tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        assert run("bundle", "pack", DEMO, name).code == 0
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_lost_development_key_is_replaced(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "one").code == 0
    for half in ("dev.key", "dev.pub"):
        (tmp_path / "config/keys" / half).unlink()
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "two").code == 0
    assert run("bundle", "verify", "./one").code == 3
    assert run("bundle", "verify", "./two").code == 0


def test_a_rule_of_the_owner_for_local_names_stays(run: Run, model: Path, tmp_path: Path) -> None:
    quick = ("bundle", "quick", model, "--labels", "labels.txt")
    ring = {
        "schema": "edge-agent/keyring/v1",
        "keys": {},
        "rules": [{"bundles": "local/*", "keys": []}],
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config/keyring.json").write_text(json.dumps(ring))
    refused = run(*quick)
    assert (refused.code, "has a rule of its owner for local/*" in refused.err) == (2, True)
    assert not (tmp_path / "config/keys/dev.key").exists()
    assert run("keys", "untrust", "local/*").code == 0
    assert run("keys", "generate", "own").code == 0
    assert run("keys", "trust", "own", "--for", "local/*").code == 0
    assert run(*quick).code == 2
    assert run("keys", "untrust", "local/*").code == 0
    assert run(*quick).code == 0
    assert run("keys", "revoke", "dev").code == 0
    assert run(*quick, "--out", "two").code == 2


def test_what_is_known_of_a_key_stays(run: Run) -> None:
    assert run("keys", "generate", "k").code == 0
    first = ("keys", "trust", "k", "--for", "a/*", "--expires", "2020-01-01", "--comment", "Acme")
    assert run(*first).code == 0
    assert run("keys", "trust", "k", "--for", "b/*").code == 0
    (key,) = [k for k in run("keys", "list", "--json").json()["keys"] if k["comment"] == "Acme"]
    assert key["expires"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize("name", ["./k.pub", "./k", "./k.v2"])
def test_a_key_path_must_end_in_key(name: str, run: Run, tmp_path: Path) -> None:
    assert run("keys", "generate", name).code == 2
    assert not list(tmp_path.glob("k*"))


@pytest.mark.parametrize("place", ["config", "config/keyring.json", "state"])
def test_what_others_can_write_is_not_trusted(
    place: str, run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    assert run("models", "install", publisher.bundle).code == 0
    (tmp_path / place).chmod(0o777)
    refused = run("infer", publisher.bundle / "golden/green.png", "--model", NAME)
    assert refused.code == 2
    assert f"chmod go-w {tmp_path / place}" in refused.err


def test_a_bundle_without_its_files_is_not_signed(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "b").code == 0
    (tmp_path / "b/labels.json").unlink()
    refused = run("bundle", "sign", "b", "--key", "dev", "--replace")
    assert refused.code == 4
    assert "names the file 'labels.json', which the bundle lacks" in refused.err


def test_store_that_holds_another_bundle(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    """An older version in the newer one's place is validly signed, and still refused."""
    assert run("models", "install", publisher.bundle).code == 0
    (installed,) = (tmp_path / "state/bundles").iterdir()
    publisher.put("labels.json", b'["rot", "gruen", "blau"]')
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign()
    shutil.rmtree(installed)
    shutil.copytree(publisher.bundle, installed)
    refused = run("infer", publisher.bundle / "golden/green.png", "--model", NAME)
    assert refused.code == 3
    assert "not what was installed" in refused.err


def test_golden_is_checked_at_the_first_load(run: Run, publisher: Publisher) -> None:
    wrong = MODEL_YAML.replace("index: 1, score", "index: 2, score")
    publisher.put("model.yaml", wrong.encode())
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign()
    for engine in ("auto", "onnx"):
        refused = run(
            "infer", publisher.bundle / "golden/green.png", "--model", publisher.bundle,
            "--engine", engine,
        )  # fmt: skip
        assert refused.code == 5
        assert "golden" in refused.err


@pytest.mark.parametrize("target", ["b/o.tar", "b/model.yaml", "k.key", "out.zip", "/dev/null"])
def test_pack_writes_archives_only(target: str, run: Run, model: Path, tmp_path: Path) -> None:
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "b").code == 0
    (tmp_path / "k.key").write_text("secret")
    assert run("bundle", "pack", "b", target).code == 2
    assert (tmp_path / "k.key").read_text() == "secret"
    assert run("bundle", "verify", "./b").code == 0


def test_quick_sweeps_what_a_crash_left(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / f".b.{'0' * 16}.staging/weights").mkdir(parents=True)
    running = tmp_path / f".b.{'1' * 16}.staging"
    running.mkdir()
    descriptor = os.open(running, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert run("bundle", "quick", model, "--labels", "labels.txt", "--out", "b").code == 0
    os.close(descriptor)
    assert [one.name for one in tmp_path.glob(".b.*")] == [running.name]


def test_a_choice_that_others_could_have_written_counts_for_nothing(
    run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    green = publisher.bundle / "golden/green.png"
    assert run("infer", green, "--model", publisher.bundle).code == 0
    assert run("infer", green, "--model", publisher.bundle).err == ""
    (file,) = (tmp_path / "state/engine_choices").iterdir()
    file.chmod(0o666)
    assert "trying acme/colour" in run("infer", green, "--model", publisher.bundle).err
