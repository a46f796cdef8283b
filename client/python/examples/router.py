"""Prefill here, decode there: a router before two `vllm serve` that compute on the same pages.

    python router.py 127.0.0.1:8000 http://127.0.0.1:8001 http://127.0.0.1:8002

The servers, prefill and decode, run with the flags that help(kvlease.vllm) shows. A prompt goes to
the first one for a single token, then to the second one, which finds its pages where they are:
nothing is moved. Where the second one dies, the request goes on in the first one behind the tokens
that have arrived, whose full pages it finds as well. It needs aiohttp, which vLLM has, and serves
POST /v1/completions of streams ("stream": true) with one prompt and one answer each.
"""
import contextlib
import json
import sys

from aiohttp import ClientError, ClientSession, ClientTimeout, web


async def ask(session, server, body):
    """Yields the parts of a server's answer; ClientError: it is gone, or breaks off."""
    async with session.post(server + "/v1/completions", json=body) as answer:
        if 400 <= answer.status < 500:
            raise web.HTTPBadRequest(text=await answer.text(), content_type="application/json")
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                part = json.loads(line[6:])
                if "error" in part:
                    raise ClientError(part["error"])
                yield part
    raise ClientError(f"{server} broke off")


async def answer(session, prefill, decode, body):
    """Yields the parts of one answer. body is what remains to be asked for."""
    with contextlib.suppress(ClientError):  # without it the other one computes the prompt
        async for _ in ask(session, prefill, {**body, "max_tokens": 1, "min_tokens": 0}):
            pass
    is_over = False
    for server in (decode, prefill):
        with contextlib.suppress(ClientError):
            async for part in ask(session, server, body):
                for choice in part["choices"]:
                    body["prompt"] = choice.get("prompt_token_ids") or body["prompt"]
                    body["prompt"] += choice["token_ids"]
                    body["max_tokens"] -= len(choice["token_ids"])
                    body["min_tokens"] = max(body["min_tokens"] - len(choice["token_ids"]), 0)
                    is_over = choice["finish_reason"] is not None
                yield part
            return
        if is_over:
            return
    raise web.HTTPBadGateway(text="both servers are gone")


async def complete(request):
    body = {"max_tokens": 16, "min_tokens": 0, **await request.json(), "return_token_ids": True}
    if not body.get("stream") or body.get("n", 1) != 1:
        raise web.HTTPBadRequest(text='"stream": true and one answer, please')
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    async with ClientSession(timeout=ClientTimeout(), read_bufsize=1 << 24) as session:
        async with contextlib.aclosing(answer(session, *sys.argv[2:], body)) as parts:
            async for part in parts:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(b"data: %s\n\n" % json.dumps(part).encode())
    await response.write(b"data: [DONE]\n\n")
    return response


application = web.Application(client_max_size=1 << 26)
application.add_routes([web.post("/v1/completions", complete)])
host, _, port = sys.argv[1].rpartition(":")
web.run_app(application, host=host, port=int(port), handler_cancellation=True)
