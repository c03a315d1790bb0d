from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from gantry_broker.tier.stores import CREATED, Maybe, PosixStore, StoreRefused, StoreUnavailable
from gantry_broker.tier.stores.posix import LEFTOVER_AGE_S, TEMPORARY


async def test_created_is_said_after_data_and_folders_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, then the link, then the folder that holds the link; new folders in their parents."""
    (tmp_path / TEMPORARY).mkdir()
    store = PosixStore(tmp_path)
    said: list[str] = []
    fsync, link, mkdir = os.fsync, os.link, os.mkdir

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        said.append(
            f"sync {'temporary' if TEMPORARY in place.parts else place.relative_to(tmp_path)}"
        )

    def recorded_link(*names: object, **options: object) -> None:
        link(*names, **options)  # type: ignore[arg-type]
        said.append("link")

    def recorded_mkdir(name: str, **options: int) -> None:
        mkdir(name, **options)
        said.append(f"mkdir {name}")

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "link", recorded_link)
    monkeypatch.setattr(os, "mkdir", recorded_mkdir)
    assert await store.create("a/b/c", b"x") is CREATED
    assert said == [
        "sync temporary",
        *("mkdir a", "sync .", "mkdir b", "sync a"),
        *("link", "sync a/b"),
    ]
    said.clear()
    assert await store.create("a/b/d", b"x") is CREATED
    assert said == ["sync temporary", "link", "sync a/b"]
    said.clear()
    await store.delete("a/b/d")
    assert said == ["sync a/b"]


async def test_folder_that_another_process_made_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await PosixStore(tmp_path).create("a/b", b"x")
    synced: list[Path] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", recorded)
    await PosixStore(tmp_path).create("a/c", b"x")
    assert synced[1:] == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("failing", ["fsync", "link"])
async def test_failure_after_which_the_object_may_exist_is_maybe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    store = PosixStore(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, failing, fail)
    result = await store.create("a/b", b"x")
    assert isinstance(result, Maybe)
    assert "Input/output error" in result.reason
    assert list((tmp_path / TEMPORARY).iterdir()) == []


async def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PosixStore(tmp_path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    result = await store.create("a/b", b"x")
    assert isinstance(result, Maybe)
    assert "No space left on device" in result.reason
    monkeypatch.undo()
    assert await store.get("a/b", max_bytes=10) is None
    assert list((tmp_path / TEMPORARY).iterdir()) == []


async def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PosixStore(tmp_path)
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    monkeypatch.setattr(os, "pread", lambda descriptor, n, at: pread(descriptor, min(n, 2), at))
    assert await store.create("a/b", b"0123456789") is CREATED
    assert await store.get("a/b", max_bytes=10) == b"0123456789"
    assert await store.get_range("a/b", 3, 5) == b"34567"


async def test_links_do_not_lead_outside(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "secret").write_text("secret")
    (root / "out").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    store = PosixStore(root)
    for key in ("out/secret", "file"):
        with pytest.raises(StoreRefused, match=r"link|symbolic"):
            await store.get(key, max_bytes=100)
    with pytest.raises(StoreRefused):
        await store.create("out/new", b"x")
    with pytest.raises(StoreRefused):
        await store.list_keys("out/")
    with pytest.raises(StoreRefused):
        await store.delete("out/secret")
    assert isinstance(await store.create("file", b"x"), Maybe)
    assert (outside / "secret").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert await store.list_keys("") == []


async def test_folder_is_no_object(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    await store.create("a/b", b"x")
    assert isinstance(await store.create("a", b"x"), Maybe)
    with pytest.raises(StoreRefused, match="a in file://"):
        await store.get("a", max_bytes=10)
    with pytest.raises(StoreRefused, match="through a file"):
        await store.get("a/b/c", max_bytes=10)
    with pytest.raises(StoreRefused, match="through a file"):
        await store.create("a/b/c", b"x")


async def test_temporary_files_are_never_objects(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    (tmp_path / TEMPORARY).mkdir()
    (tmp_path / TEMPORARY / "0").write_text("half")
    assert await store.list_keys("") == []


async def test_reading_writes_nothing(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    assert await store.get("a/b", max_bytes=10) is None
    assert await store.list_keys("") == []
    assert list(tmp_path.iterdir()) == []


async def test_what_a_crash_left_is_removed_after_a_day(tmp_path: Path) -> None:
    (tmp_path / TEMPORARY).mkdir()
    old, young = (tmp_path / TEMPORARY / name for name in ("old", "young"))
    for path in (old, young):
        path.write_text("half")
    then = time.time() - LEFTOVER_AGE_S - 60
    os.utime(old, (then, then))
    await PosixStore(tmp_path).create("a/b", b"x")
    assert not old.exists()
    assert young.exists()


async def test_root_that_vanished_is_not_an_empty_store(tmp_path: Path) -> None:
    """An unmounted volume must not look like a chain that has not begun."""
    root = tmp_path / "root"
    root.mkdir()
    store = PosixStore(root)
    await store.create("a/b", b"x")
    root.rename(tmp_path / "gone")
    with pytest.raises(StoreRefused, match="make it, or mount it"):
        await store.get("a/b", max_bytes=10)
    with pytest.raises(StoreRefused, match="make it, or mount it"):
        await store.list_keys("a/")
    with pytest.raises(StoreRefused, match="make it, or mount it"):
        await store.delete("a/b")
    with pytest.raises((StoreRefused, StoreUnavailable)):
        await store.get_range("a/b", 0, 1)
    assert not root.exists()


def test_root_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "missing"):
        with pytest.raises(StoreRefused, match="is no directory"):
            PosixStore(tmp_path / name)
