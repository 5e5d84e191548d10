"""The model process: shared, restarted, and gone when it should be."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from haptera.model.errors import AgentError, ErrorCode
from haptera.model.settings import Timeouts
from haptera.model.stream_parts import PartDelta, StreamFinished
from haptera.providers.local import serve
from haptera.providers.local.client import LocalModelClient
from haptera.providers.local.model_process import ModelProcess, ModelProcessPool, ServeParameters
from haptera.system.isolated_python import isolated_python
from tests.providers.local.asking import LONG, answer, ask, is_alive, process_of, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def client(model_folder: Path) -> AsyncIterator[LocalModelClient]:
    """A client with a process of its own, to be treated badly."""
    client = LocalModelClient(folder=model_folder, pool=ModelProcessPool(), context=256)
    yield client
    await client.close()


async def test_two_clients_share_one_process_until_the_last_one_closes(
    model_folder: Path,
) -> None:
    pool = ModelProcessPool()
    first, second = (LocalModelClient(folder=model_folder, pool=pool) for _ in range(2))
    async with asyncio.TaskGroup() as tasks:
        for client in (first, second):
            tasks.create_task(answer(client, ask("Say hello.", max_tokens=5)))
    pid = process_of(first)
    assert process_of(second) == pid
    await first.close()
    assert is_alive(pid)
    assert isinstance((await answer(second, ask("Hi", max_tokens=3)))[-1], StreamFinished)
    await second.close()
    assert not is_alive(pid)


def test_agents_in_different_threads_and_loops_share_one_process(model_folder: Path) -> None:
    pool, pids = ModelProcessPool(), []
    both = threading.Barrier(2, timeout=60)

    async def talk() -> None:
        client = LocalModelClient(folder=model_folder, pool=pool)
        await answer(client, ask("Hi", max_tokens=3))
        pids.append(process_of(client))
        await asyncio.to_thread(both.wait)
        await client.close()

    threads = [threading.Thread(target=lambda: asyncio.run(talk())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 2
    assert len(set(pids)) == 1
    assert not is_alive(pids[0])


async def test_a_process_outlives_the_loop_that_started_it(model_folder: Path) -> None:
    client = LocalModelClient(folder=model_folder, pool=ModelProcessPool(), context=256)
    await asyncio.to_thread(lambda: asyncio.run(client.start("smollm2")))
    pid = process_of(client)
    assert is_alive(pid)
    await answer(client, ask("Hi", max_tokens=2))
    assert process_of(client) == pid
    await client.close()


async def test_a_process_killed_in_the_middle_of_an_answer_interrupts_it_and_is_restarted(
    client: LocalModelClient,
) -> None:
    await client.start("smollm2")
    pid, received = process_of(client), list[str]()

    async def listen_and_kill() -> None:
        async for parts in client.stream(ask(LONG, max_tokens=200)):
            received.extend(part.text for part in parts if isinstance(part, PartDelta))
            if received and pid is not None and is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(AgentError) as caught:
        await listen_and_kill()
    assert caught.value.code == ErrorCode.STREAM_INTERRUPTED
    assert caught.value.retryable
    assert received
    parts = await answer(client, ask("Hi", max_tokens=3))
    assert isinstance(parts[-1], StreamFinished)
    assert process_of(client) != pid


async def test_a_process_that_hangs_is_replaced(client: LocalModelClient) -> None:
    await client.start("smollm2")
    pid = process_of(client)
    assert pid is not None

    async def listen_and_stop() -> None:
        async for _ in client.stream(ask(LONG, timeouts=Timeouts(between_bytes=1.0))):
            os.kill(pid, signal.SIGSTOP)

    with pytest.raises(AgentError) as caught:
        await listen_and_stop()
    assert caught.value.code == ErrorCode.TIMEOUT
    parts = await answer(client, ask("Hi", max_tokens=3))
    assert isinstance(parts[-1], StreamFinished)
    assert not is_alive(pid)


async def test_a_process_that_is_doubted_without_reason_is_kept(client: LocalModelClient) -> None:
    await client.start("smollm2")
    pid, lease = process_of(client), client._served["smollm2"].lease
    endpoint = await lease.endpoint()
    lease.suspect()
    assert await lease.endpoint() == endpoint
    assert process_of(client) == pid


async def test_a_lease_that_was_given_back_is_closed(smollm2: Path) -> None:
    lease = ModelProcessPool().lease(ServeParameters(weights=str(smollm2), alias="it"))
    await lease.release()
    await lease.release()
    with pytest.raises(AgentError) as caught:
        await lease.endpoint()
    assert caught.value.code == ErrorCode.CLOSED


PARENT = """
import asyncio, sys
from pathlib import Path
from haptera.providers.local.client import LocalModelClient

async def main():
    client = LocalModelClient(folder=Path(sys.argv[1]), context=256)
    await client.start("smollm2")
    print(client._served["smollm2"].lease.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_parent_that_is_killed_takes_its_model_process_along(model_folder: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(model_folder), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    await parent.communicate()
    await until(lambda: not is_alive(pid))


async def test_a_model_process_ends_when_its_input_closes(smollm2: Path) -> None:
    # What ends it where the kernel cannot: here its parent lives on.
    process = await asyncio.create_subprocess_exec(
        *isolated_python(serve.__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    told = {"parent": os.getpid(), "path": sys.path, "key": "k"}
    told |= msgspec.to_builtins(ServeParameters(weights=str(smollm2), alias="it", context=256))
    printed, _ = await process.communicate(msgspec.json.encode(told) + b"\n")
    assert process.returncode == 0
    assert b'"url"' in printed


async def test_nothing_is_printed_and_the_key_is_nowhere_to_be_read(
    client: LocalModelClient, capfd: pytest.CaptureFixture[str]
) -> None:
    await answer(client, ask("Hi", max_tokens=3))
    endpoint = await client._served["smollm2"].lease.endpoint()
    place = Path("/proc") / str(process_of(client))
    for name in ("cmdline", "environ"):
        assert endpoint.key.encode() not in place.joinpath(name).read_bytes()
    assert os.getsid(int(place.name)) == int(place.name)
    await client.close()
    assert capfd.readouterr() == ("", "")


async def test_a_file_that_is_no_model_is_refused_with_the_log(
    tmp_path: Path, client: LocalModelClient
) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(AgentError) as caught:
        await answer(client, ask("Hi", model=str(tmp_path / "bad.gguf")))
    assert caught.value.code == ErrorCode.CONFIG_INVALID
    assert "failed to load model" in caught.value.message


async def test_a_model_that_needs_more_memory_than_it_may_have_fails_to_start(
    smollm2: Path,
) -> None:
    pool = ModelProcessPool()
    lease = pool.lease(ServeParameters(weights=str(smollm2), alias="it", memory=400 << 20))
    with pytest.raises(AgentError) as caught:
        await lease.endpoint()
    assert caught.value.code in {ErrorCode.SERVER_ERROR, ErrorCode.CONFIG_INVALID}
    await lease.release()


async def test_a_missing_extra_is_told_as_such(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [path for path in sys.path if "site-packages" not in path])
    lease = ModelProcessPool().lease(ServeParameters(weights=str(smollm2), alias="it"))
    with pytest.raises(AgentError, match="pip install xllamacpp") as caught:
        await lease.endpoint()
    assert caught.value.code == ErrorCode.CONFIG_MISSING
    await lease.release()


async def test_giving_up_on_a_start_does_not_spoil_it_for_others(smollm2: Path) -> None:
    pool = ModelProcessPool()
    parameters = ServeParameters(weights=str(smollm2), alias="it", context=256)
    first, second = pool.lease(parameters), pool.lease(parameters)
    async with asyncio.TaskGroup() as tasks:
        impatient = tasks.create_task(first.endpoint())
        patient = tasks.create_task(second.endpoint())
        await until(lambda: first.pid is not None)
        impatient.cancel()
    assert patient.result().url.startswith("http://127.0.0.1:")
    await first.release()
    assert is_alive(second.pid)
    await second.release()


def test_a_process_that_is_stopped_while_it_starts_is_gone(smollm2: Path) -> None:
    process = ModelProcess(ServeParameters(weights=str(smollm2), alias="it", context=256))
    process.start()
    process.stop()
    assert not process.is_usable
    assert isinstance(process.started.exception(), AgentError)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_many_cycles_leave_no_process_behind(model_folder: Path) -> None:
    pids = set()
    for _ in range(100):
        client = LocalModelClient(folder=model_folder, pool=ModelProcessPool(), context=256)
        stream = client.stream(ask(LONG))
        await anext(stream)
        pids.add(process_of(client))
        await stream.aclose()
        await client.close()
    assert len(pids) == 100
    assert not [pid for pid in pids if is_alive(pid)]
