"""What two `vllm serve` are together, behind the router of client/python/examples."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import kvlease_conftest as package
import pytest
import serving
from contract import FULL
from support import SECONDS, client_names, ctl, held, make_prompts, part_of

PAGE = serving.PAGE
ENGINES = ("--data-parallel-size", "2", "--api-server-count", "1")


def goes_on(
    router: serving.Server, prompt: list[int], expected: list[int], kill: Callable[[], None]
) -> None:
    """Kills in the middle of a page of generated tokens: the other server computes less than one
    page again, and the last token, whose page nobody had computed."""
    got = router.ask(prompt, len(expected), when=(70 - len(prompt) % PAGE, kill))
    assert got.tokens == expected
    assert len(prompt) + 40 < got.n_prompt < len(prompt) + len(expected)
    assert 0 <= got.n_prompt - 1 - got.n_found < PAGE


@pytest.mark.parametrize("mode", ["in_place", pytest.param("copy", marks=FULL)])
def test_data_parallel_engines_share(
    daemon: package.Daemon,
    start_server: Any,
    model: str,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One server of two engines: what one has computed, the other one finds."""
    # Otherwise each engine wants a memory node of its own.
    monkeypatch.setenv("VLLM_CPU_SIM_MULTI_NUMA", "1")
    transfer = serving.transfer("KvleaseConnector", socket=str(daemon.socket), mode=mode)
    server = start_server(serving.serve, model, *transfer, *ENGINES, is_forked=True)
    server.wait()
    (prompt,) = make_prompts(42, 0, 500)
    answers = [server.ask(prompt, 20, dp_rank=rank) for rank in (1, 0)]
    assert [each.n_found for each in answers] == [0, 499 // PAGE * PAGE]
    assert answers[0].tokens == answers[1].tokens
    both = {"vllm tiny", "vllm tiny dp 1"}
    assert set(client_names(daemon)) == both | {f"{name} scheduler" for name in both}
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_two_servers_behind_the_router(
    daemon: package.Daemon, start_server: Any, model: str
) -> None:
    flags = serving.kvlease(daemon.socket)
    prefill = start_server(serving.serve, model, *flags)
    decode = start_server(serving.serve, model, *flags, is_forked=True)
    router = start_server(serving.route, prefill, decode)
    for server in (prefill, decode, router):
        server.wait()
    prompts = make_prompts(40, 0, 500, 300, 310, 320)
    # With a salt of its own, nothing is found. Answers are so long that no kill comes too late.
    expected = [
        prefill.ask(each, n, cache_salt="alone").tokens
        for each, n in zip(prompts, (20, 300, 300, 8), strict=True)
    ]

    # In one conversation.
    for prompt, told, hint in zip(
        prompts[:2], ({}, {"session_hint": "done"}), ("continues", "done"), strict=True
    ):
        prefill.ask(prompt[:200], 1, cache_salt="talk", session_id="talk", vllm_xargs=told)
        (session,) = json.loads(ctl(daemon, "sessions", "--json"))["sessions"]
        assert session["n_pages"] > 0 and session["hint"] == hint, session

    # Prefill here, decode there: what the router has sent to the one is found by the other.
    got = router.ask(prompts[0], 20)
    assert got.tokens == expected[0]
    assert (got.n_prompt, got.n_found) == (500, 499 // PAGE * PAGE)

    goes_on(router, prompts[1], expected[1], decode.kill)

    # A server that is started again has its cache at the first request.
    decode.start()
    decode.wait()
    got = decode.ask(prompts[0], 20)
    assert got.tokens == expected[0]
    assert got.n_found == 499 // PAGE * PAGE

    # As above where only the process dies that computes: vLLM's server ends because of it.
    goes_on(
        router,
        prompts[2],
        expected[2],
        lambda: os.kill(part_of(decode.process.pid), signal.SIGKILL),
    )
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")
    # A text that the tenant can't ever hold is refused, and the server goes on.
    ctl(daemon, "tenants", "set", "a", "limit=6MiB")
    with pytest.raises(RuntimeError, match=r"limit of 6 MiB of tenant a.*limit=12MiB.*400"):
        prefill.ask(make_prompts(41, 0, 4080)[0], 10)
    # Nobody is left but the one that computes the prompts.
    decode.process.wait(SECONDS)
    assert router.ask(prompts[3], 8).tokens == expected[3]
    prefill.kill()
    with pytest.raises(RuntimeError, match="both servers are gone"):
        router.ask(prompts[3], 8)
