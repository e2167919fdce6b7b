from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_signing.errors import KeyFileError
from edge_signing.keys import (
    PrivateKey,
    load_private_key,
    load_public_key,
    save_key_pair,
    save_private_key,
    save_public_key,
)
from edge_signing.strict_json import encode_base64

if TYPE_CHECKING:
    from tests.signing.conftest import Crashes

KEY = PrivateKey(b"\x07" * 32)
IS_ROOT = os.geteuid() == 0


def never() -> bytes:
    raise AssertionError("nobody may be asked for a passphrase here")


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_plain_round_trip(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        save_private_key(tmp_path / "key", KEY, None)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert load_private_key(tmp_path / "key", never).seed == KEY.seed
    assert load_private_key(str(tmp_path / "key")).seed == KEY.seed


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sealed") / "key"
    save_private_key(path, KEY, b"correct horse")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_bytes()


def test_sealed_round_trip_even_if_others_can_read_it(tmp_path: Path, sealed: bytes) -> None:
    (tmp_path / "key").write_bytes(sealed)
    (tmp_path / "key").chmod(0o644)
    assert load_private_key(tmp_path / "key", lambda: b"correct horse").seed == KEY.seed
    assert encode_base64(KEY.seed).encode() not in sealed


def test_a_wrong_passphrase(tmp_path: Path, sealed: bytes) -> None:
    (tmp_path / "key").write_bytes(sealed)
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        load_private_key(tmp_path / "key", lambda: b"wrong")
    with pytest.raises(KeyFileError, match="needs its passphrase"):
        load_private_key(tmp_path / "key", None)


def test_an_empty_passphrase_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="empty"):
        save_private_key(tmp_path / "key", KEY, b"")
    assert not list(tmp_path.iterdir())


def test_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        with pytest.raises(KeyFileError, match="never overwritten"):
            save_private_key(tmp_path / name, KEY, None)
    assert (tmp_path / "file").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


OTHER = PrivateKey(b"\x08" * 32)


def test_killed_while_saving(tmp_path: Path, crashes: Crashes) -> None:
    path = tmp_path / "a.key"
    for _ in crashes(lambda: empty(tmp_path), lambda: save_private_key(path, KEY, None)):
        for left in tmp_path.iterdir():
            assert stat.S_IMODE(left.stat().st_mode) == 0o600
        if path.exists():
            assert load_private_key(path).seed == KEY.seed
            with pytest.raises(KeyFileError, match="never overwritten"):
                save_private_key(path, OTHER, None)
        else:
            save_private_key(path, OTHER, None)
        assert names(tmp_path) == ["a.key"]


def test_a_full_disk_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    for save in (save_private_key, save_key_pair):
        with monkeypatch.context() as context:
            context.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                save(tmp_path / "a.key", KEY, None)
        assert not names(tmp_path)
        save(tmp_path / "a.key", KEY, None)
        empty(tmp_path)


def test_an_empty_file_in_the_way_is_explained(tmp_path: Path) -> None:
    (tmp_path / "my a.key").write_bytes(b"")
    with pytest.raises(KeyFileError) as caught:
        save_private_key(tmp_path / "my a.key", KEY, None)
    assert f"rm {shlex.quote(str(tmp_path / 'my a.key'))}" in str(caught.value.hint)


@pytest.mark.parametrize(("name", "public"), [("a.key", "a.pub"), ("a.b", "a.b.pub")])
def test_a_pair(tmp_path: Path, name: str, public: str) -> None:
    assert save_key_pair(tmp_path / name, KEY, None) == tmp_path / public
    assert load_private_key(tmp_path / name).seed == KEY.seed
    assert load_public_key(tmp_path / public) == KEY.public
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / public).stat().st_mode) == 0o644
    assert names(tmp_path) == sorted([name, public])


def test_a_pair_with_an_empty_passphrase_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="empty"):
        save_key_pair(tmp_path / "a.key", KEY, b"")
    assert not names(tmp_path)


@pytest.mark.parametrize("there", ["a.key", "a.pub"])
@pytest.mark.parametrize("link", [False, True])
def test_a_pair_overwrites_neither(tmp_path: Path, there: str, link: bool) -> None:
    if link:
        (tmp_path / there).symlink_to("nowhere")
    else:
        (tmp_path / there).write_bytes(b"precious")
    with pytest.raises(KeyFileError, match="exists already") as caught:
        save_key_pair(tmp_path / "a.key", KEY, None)
    assert caught.value.path == str(tmp_path / there)
    assert names(tmp_path) == [there]
    assert link or (tmp_path / there).read_bytes() == b"precious"


def test_a_pair_whose_second_half_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        if target.suffix == ".key":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="No space"):
        save_key_pair(tmp_path / "a.key", KEY, None)
    assert not names(tmp_path)


def test_killed_while_saving_a_pair(tmp_path: Path, crashes: Crashes) -> None:
    path, public = tmp_path / "a.key", tmp_path / "a.pub"
    kinds = set()
    for _ in crashes(lambda: empty(tmp_path), lambda: save_key_pair(path, KEY, None)):
        kinds.add((path.exists(), public.exists()))
        if path.exists():
            assert load_private_key(path).seed == KEY.seed
            with pytest.raises(KeyFileError) as caught:
                save_key_pair(path, OTHER, None)
            assert caught.value.path == str(path)
        elif public.exists():
            with pytest.raises(KeyFileError, match="without a private key") as caught:
                save_key_pair(path, OTHER, None)
            assert f"rm {public}" in str(caught.value.hint)
            assert load_public_key(public) == KEY.public
            public.unlink()
        if not path.exists():
            save_key_pair(path, OTHER, None)
        assert names(tmp_path) == ["a.key", "a.pub"]
        assert load_public_key(public) == load_private_key(path).public
    assert kinds == {(False, False), (False, True), (True, True)}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_plain_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "my key"
    save_private_key(path, KEY, None)
    path.chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        load_private_key(path)
    assert caught.value.hint == f"run: chmod 600 {shlex.quote(str(path))}"
    path.chmod(0o600)
    load_private_key(path)


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a file away")
def test_a_plain_key_of_another_user_is_refused(tmp_path: Path) -> None:
    save_private_key(tmp_path / "key", KEY, None)
    os.chown(tmp_path / "key", 12345, 12345)
    with pytest.raises(KeyFileError, match="another user"):
        load_private_key(tmp_path / "key")


def make_link(path: Path) -> None:
    save_private_key(path.with_name("real"), KEY, None)
    path.symlink_to("real")


@pytest.mark.parametrize(
    "make",
    [make_link, lambda path: os.mkfifo(path), lambda path: path.mkdir(), lambda path: None],
    ids=["link", "FIFO", "folder", "missing"],
)
def test_only_regular_files(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "key")
    for load in (load_private_key, load_public_key):
        with pytest.raises(KeyFileError) as caught:
            load(tmp_path / "key")
        assert caught.value.path == str(tmp_path / "key")


def test_a_nul_in_the_path() -> None:
    with pytest.raises(KeyFileError):
        load_public_key("a\0b")


def change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(fields)


def change_sealed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["sealed_seed"].update(fields)


@pytest.mark.parametrize(
    "edit",
    [
        change(schema="edge-agent/private-key/v2"),
        change(extra=1),
        change(public_key=PrivateKey(b"\x08" * 32).public.to_base64()),
        change(public_key=None),
        change(sealed_seed=None),
        change(sealed_seed=[]),
        change_sealed(kdf="scrypt"),
        change_sealed(extra=1),
        change_sealed(ops_limit=0),
        change_sealed(ops_limit=-1),
        change_sealed(ops_limit=10**9),
        change_sealed(ops_limit=True),
        change_sealed(ops_limit="3"),
        change_sealed(mem_limit_bytes=2**40),
        change_sealed(mem_limit_bytes=1),
        change_sealed(mem_limit_bytes=8192.0),
        change_sealed(salt=""),
        change_sealed(nonce="AAAA"),
        change_sealed(ciphertext="AAAA"),
        change_sealed(ciphertext=7),
        lambda document: document.pop("public_key"),
        lambda document: document["sealed_seed"].pop("salt"),
    ],
)
def test_corrupt_sealed_files(
    tmp_path: Path, sealed: bytes, edit: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(sealed)
    edit(document)
    (tmp_path / "key").write_text(json.dumps(document))
    with pytest.raises(KeyFileError):
        load_private_key(tmp_path / "key", lambda: b"correct horse")


def test_a_file_that_asks_for_too_much_memory_asks_for_no_passphrase(
    tmp_path: Path, sealed: bytes
) -> None:
    document = json.loads(sealed)
    document["sealed_seed"]["mem_limit_bytes"] = 2**40
    (tmp_path / "key").write_text(json.dumps(document))
    with pytest.raises(KeyFileError, match="mem_limit_bytes"):
        load_private_key(tmp_path / "key", never)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[", b"[" * 60_000, b"\xff", b"x" * 70_000, b'{"seed":"AAAA"}', b'{"a":1,"a":2}'],
)
def test_rubbish(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "key").write_bytes(data)
    (tmp_path / "key").chmod(0o600)
    for load in (load_private_key, load_public_key):
        with pytest.raises(KeyFileError):
            load(tmp_path / "key")


@pytest.mark.parametrize("edit", [change(seed="AAAA"), change(seed=3), change(sealed_seed={})])
def test_corrupt_plain_files(tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    save_private_key(tmp_path / "key", KEY, None)
    document = json.loads((tmp_path / "key").read_bytes())
    edit(document)
    (tmp_path / "key").write_text(json.dumps(document))
    with pytest.raises(KeyFileError) as caught:
        load_private_key(tmp_path / "key")
    assert encode_base64(KEY.seed) not in str(caught.value)


def test_public_key_files(tmp_path: Path) -> None:
    save_public_key(tmp_path / "key.pub", KEY.public)
    assert load_public_key(tmp_path / "key.pub") == KEY.public
    assert stat.S_IMODE((tmp_path / "key.pub").stat().st_mode) == 0o644
    save_private_key(tmp_path / "key", KEY, None)
    with pytest.raises(KeyFileError, match="private key") as caught:
        load_public_key(tmp_path / "key")
    assert caught.value.path == str(tmp_path / "key")
