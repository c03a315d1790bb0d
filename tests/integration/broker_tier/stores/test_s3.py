"""The S3 store against a real server, and against one whose answers are struck on the way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import pytest
from gantry_broker.tier.stores import (
    CREATED,
    Credentials,
    Maybe,
    Store,
    StoreRefused,
    StoreUnavailable,
    open_store,
    own_prefix,
)
from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_protocol.tier.keys import ManKey
from gantry_protocol.tier.manifests import encode
from support.fault_proxy import FaultProxy, Strike, fault_proxy
from support.moto_server import make_bucket, moto_server
from support.store_contract import (
    PATIENCE_S,
    PLACE,
    RACERS,
    StoreContract,
    keys_below,
    put,
    read,
    some_claim,
)
from support.tier_resolution import Absent, Mine, Other, resolve

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCY"
CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", SECRET)
SOON_S = 0.5  # a deadline that is meant to pass
KEY = PLACE.key(ManKey(1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


def store_at(port: int, bucket: str, prefix: str = "") -> Store:
    calls = DeadlineCalls("test-store", running_max=RACERS)
    return open_store(
        f"s3://{bucket}{prefix}",
        CREDENTIALS,
        endpoint=f"http://127.0.0.1:{port}",
        calls=calls,
    )


class TestBucket(StoreContract):
    @pytest.fixture
    def store(self, server: int) -> Store:
        return store_at(server, make_bucket(server))


class TestFolderInABucket(StoreContract):
    """Keys, listings and their beginnings are relative to the folder."""

    @pytest.fixture
    async def store(self, server: int) -> Store:
        bucket = make_bucket(server)
        for beside in ("/tier", "/tier/x-not", "/tiers/x"):
            await put(store_at(server, bucket, beside), "beside/it", b"another's")
        return store_at(server, bucket, "/tier/x")


class TestBehindTheProxy(StoreContract):
    """The proxy itself changes nothing."""

    @pytest.fixture
    async def store(self, server: int) -> AsyncIterator[Store]:
        async with fault_proxy(server) as proxy:
            yield store_at(proxy.port, make_bucket(server))


class Struck(NamedTuple):
    """A store whose requests go through a proxy, and the same one without."""

    store: Store
    proxy: FaultProxy
    direct: Store


@pytest.fixture
async def struck(server: int) -> AsyncIterator[Struck]:
    bucket = make_bucket(server)
    async with fault_proxy(server, said=f"key {SECRET}") as proxy:
        yield Struck(store_at(proxy.port, bucket), proxy, store_at(server, bucket))


async def hold(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("strike", "timeout_s", "is_there"),
    [
        (Strike.CUT_BEFORE, PATIENCE_S, False),
        (Strike.CUT_AFTER, PATIENCE_S, True),
        (Strike.BUSY_BEFORE, PATIENCE_S, False),
        (Strike.BUSY_AFTER, PATIENCE_S, True),
        (Strike.CONFLICT, PATIENCE_S, False),
        (Strike.HALF_ANSWER, PATIENCE_S, True),
        (Strike.BLACK_HOLE, SOON_S, False),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Strike) else str(value),
)
async def test_resolve_ends_an_ambiguous_create(
    struck: Struck, strike: Strike, timeout_s: float, is_there: bool
) -> None:
    """Whatever the answer, one read tells; and the same bytes may be put again."""
    mine = some_claim()
    struck.proxy.strike("PUT", strike)
    result = await struck.store.create(KEY, encode(mine), timeout_s=timeout_s)
    if strike is Strike.HALF_ANSWER and result is CREATED:
        assert is_there  # a put's answer has no body that could be cut
    else:
        assert isinstance(result, Maybe)
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == (Mine(mine) if is_there else Absent())
    again = await struck.store.create(KEY, encode(mine), timeout_s=PATIENCE_S)
    assert (again is CREATED) is not is_there
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == Mine(mine)


@pytest.mark.parametrize("strike", [Strike.CUT_AFTER, Strike.BUSY_AFTER, Strike.CONFLICT])
async def test_loser_of_a_race_is_told_by_the_object(struck: Struck, strike: Strike) -> None:
    mine, other = some_claim(1), some_claim(2)
    await put(struck.direct, KEY, encode(other))
    struck.proxy.strike("PUT", strike)
    for _ in range(2):
        result = await struck.store.create(KEY, encode(mine), timeout_s=PATIENCE_S)
        assert isinstance(result, Maybe)
        found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
        assert found == Other(other)


async def test_put_that_lands_late_is_ours(struck: Struck) -> None:
    """First nothing is there, then our own earlier attempt: absent is never for ever."""
    mine = some_claim()
    struck.proxy.strike("PUT", Strike.LATE)
    result = await struck.store.create(KEY, encode(mine), timeout_s=SOON_S)
    assert isinstance(result, Maybe)
    assert "no answer within" in result.reason
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == Absent()
    await struck.proxy.land()
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == Mine(mine)
    assert isinstance(await struck.store.create(KEY, encode(mine), timeout_s=PATIENCE_S), Maybe)


async def test_put_that_lands_late_finds_the_slot_taken(struck: Struck) -> None:
    """A zombie's put after the next master's claim changes nothing."""
    mine, other = some_claim(1), some_claim(2)
    struck.proxy.strike("PUT", Strike.LATE)
    await struck.store.create(KEY, encode(mine), timeout_s=SOON_S)
    await put(struck.direct, KEY, encode(other))
    await struck.proxy.land()
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == Other(other)
    assert await read(struck.direct, KEY) == encode(other)


@pytest.mark.parametrize(
    ("strike", "timeout_s"),
    [
        (Strike.CUT_BEFORE, PATIENCE_S),
        (Strike.CUT_AFTER, PATIENCE_S),
        (Strike.BUSY_BEFORE, PATIENCE_S),
        (Strike.HALF_ANSWER, PATIENCE_S),
        (Strike.BLACK_HOLE, SOON_S),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Strike) else str(value),
)
async def test_read_without_a_whole_answer_is_no_answer(
    struck: Struck, strike: Strike, timeout_s: float
) -> None:
    """Never "nothing is there", never half an object, never an empty listing."""
    mine = some_claim()
    await put(struck.direct, KEY, encode(mine))
    struck.proxy.strike("GET", strike)
    with pytest.raises(StoreUnavailable):
        await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=timeout_s)
    struck.proxy.strike("GET", strike)
    with pytest.raises(StoreUnavailable):
        await struck.store.list_keys(PLACE.prefix, timeout_s=timeout_s)
    struck.proxy.strike("GET", strike)
    struck.proxy.strike("HEAD", strike)
    with pytest.raises(StoreUnavailable):
        await struck.store.get_range(KEY, 0, 50, timeout_s=timeout_s)
    found = await resolve(struck.store, PLACE, 1, mine.nonce, timeout_s=PATIENCE_S)
    assert found == Mine(mine)
    assert await keys_below(struck.store, PLACE.prefix) == [KEY]


async def test_black_hole_costs_counted_threads_only(struck: Struck) -> None:
    calls = DeadlineCalls("test-store", abandoned_max=4)
    store = open_store(
        struck.store.url, CREDENTIALS, endpoint=f"http://127.0.0.1:{struck.proxy.port}", calls=calls
    )
    struck.proxy.strike("GET", *[Strike.BLACK_HOLE] * 3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="had no answer within"):
            await store.get(KEY, max_bytes=10, timeout_s=SOON_S)
    assert calls.stats.abandoned == calls.stats.abandoned_total == 3
    assert await store.get(KEY, max_bytes=10, timeout_s=PATIENCE_S) is None
    await struck.proxy.end()  # the server goes away: the threads end
    await hold(lambda: calls.stats.abandoned == 0)


async def test_denied_is_refused_at_once_and_tells_no_secret(struck: Struck) -> None:
    for method in ("PUT", "GET", "GET", "GET", "HEAD", "POST", "DELETE"):
        struck.proxy.strike(method, Strike.DENIED)
    sentences = []
    for call in (
        struck.store.create(KEY, b"x", timeout_s=PATIENCE_S),
        struck.store.get(KEY, max_bytes=10, timeout_s=PATIENCE_S),
        struck.store.list_keys(PLACE.prefix, timeout_s=PATIENCE_S),
        struck.store.get_range(KEY, 0, 5, timeout_s=PATIENCE_S),
        struck.store.delete(KEY, timeout_s=PATIENCE_S),
    ):
        with pytest.raises(StoreRefused) as refused:
            await call
        sentences.append(str(refused.value))
        assert refused.value.__cause__ is None
    for sentence in sentences:
        assert struck.store.url in sentence
        assert "403" in sentence
        assert SECRET not in sentence
        assert "\n" not in sentence
    assert struck.proxy.forwarded == 0


@pytest.mark.parametrize("strike", list(Strike))
async def test_no_sentence_holds_a_secret(struck: Struck, strike: Strike) -> None:
    struck.proxy.strike("PUT", strike)
    struck.proxy.strike("GET", strike)
    outcomes = await asyncio.gather(
        struck.store.create(KEY, b"x", timeout_s=SOON_S),
        struck.store.get(KEY, max_bytes=10, timeout_s=SOON_S),
        return_exceptions=True,
    )
    for outcome in (*outcomes, struck.store, struck.store.url):
        assert SECRET not in repr(outcome) + str(outcome)


async def test_denied_without_keys_is_told_where_keys_are_given(server: int) -> None:
    bucket = make_bucket(server)
    await store_at(server, bucket).create(KEY, b"x", timeout_s=PATIENCE_S)
    store = open_store(f"s3://{bucket}", endpoint=f"http://127.0.0.1:{server}")
    with pytest.raises(StoreRefused, match=r"403 .*; the request was not signed: give keys in AWS"):
        await store.get(KEY, max_bytes=10, timeout_s=PATIENCE_S)


async def test_missing_bucket_is_not_an_empty_one(server: int) -> None:
    store = store_at(server, "bucket-that-nobody-made", "/tier")
    for call in (
        store.create(KEY, b"x", timeout_s=PATIENCE_S),
        store.get(KEY, max_bytes=10, timeout_s=PATIENCE_S),
        store.get_range(KEY, 0, 5, timeout_s=PATIENCE_S),
        store.list_keys(PLACE.prefix, timeout_s=PATIENCE_S),
    ):
        with pytest.raises(StoreRefused, match=r"NoSuchBucket|bucket"):
            await call


async def test_server_that_is_gone_is_unavailable(server: int) -> None:
    async with fault_proxy(server) as proxy:
        store = store_at(proxy.port, make_bucket(server))
    assert isinstance(await store.create(KEY, b"x", timeout_s=PATIENCE_S), Maybe)
    with pytest.raises(StoreUnavailable) as gone:
        await store.get(KEY, max_bytes=10, timeout_s=PATIENCE_S)
    assert KEY in str(gone.value)


async def test_store_that_ignores_the_condition_is_refused(struck: Struck) -> None:
    await own_prefix(struck.store, PLACE, "orders", 1, timeout_s=PATIENCE_S)
    struck.proxy.strike("PUT", Strike.UNCONDITIONAL)
    with pytest.raises(StoreRefused, match="overwrites objects that exist"):
        await own_prefix(struck.store, PLACE, "orders", 2, timeout_s=PATIENCE_S)
    owner = await own_prefix(struck.store, PLACE, "orders", 3, timeout_s=PATIENCE_S)
    assert owner.group == "orders"  # the probe did no harm


async def test_listing_of_more_than_a_page(server: int) -> None:
    store = store_at(server, make_bucket(server), "/tier")
    for start in range(0, 1100, 50):
        await asyncio.gather(*(put(store, f"p/{n:05d}") for n in range(start, start + 50)))
    assert await keys_below(store, "p/", None, 1000) == [f"p/{n:05d}" for n in range(1000)]
    assert await keys_below(store, "p/", "p/00999") == [f"p/{n:05d}" for n in range(1000, 1100)]


HUNG = """
import asyncio, sys, threading
from gantry_broker.tier.stores import Credentials, StoreUnavailable, open_store
from gantry_broker.tier.stores.calls import DeadlineCalls

async def main():
    store = open_store("s3://bucket-x", Credentials("a", "b"), endpoint=sys.argv[1])
    try:
        await store.get("man/1", max_bytes=10, timeout_s=0.3)
    except StoreUnavailable as error:
        print(error)
    assert store.stats.abandoned == 1
    try:
        await DeadlineCalls("t").run("Waiting for ever", threading.Event().wait, 0.1)
    except StoreUnavailable as error:
        print(error)

asyncio.run(main())
"""


async def test_process_ends_while_a_call_hangs(server: int) -> None:
    """The thread is left behind; nothing waits for it, and the exit is clean."""
    async with fault_proxy(server) as proxy:
        proxy.strike("GET", Strike.BLACK_HOLE)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HUNG, f"http://127.0.0.1:{proxy.port}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, errors) == (0, b"")
        assert b"Reading man/1 in s3://bucket-x had no answer within 0.3 s." in output
        assert b"Waiting for ever had no answer within 0.1 s." in output
