#!/usr/bin/env python3
"""Why: our own client and server agree with each other even where both are wrong. Real gRPC (grpcio), real WebSockets (websockets),
curl and nghttp2's h2load through the gateway, with the backend away at first.

clients.py BINARY          needs grpcio and websockets
"""
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
import websockets

sys.argv[1:] = [str(Path(sys.argv[1]).resolve())]
sys.path.insert(0, str(Path(__file__).parent))
import gateway as peers  # noqa: E402

CASES = []


def case(check):
    CASES.append(check)
    return check


def identity(data):
    return data


class Handler(grpc.GenericRpcHandler):
    """/test/Echo answers once, /test/Stream three times, /test/Chat whatever comes, /test/Fail not."""

    def service(self, details):
        def echo(request, context):
            context.set_trailing_metadata((("x-sum", str(len(request))),))
            return request

        def stream(request, _):
            for number in range(3):
                yield request + str(number).encode()

        def chat(requests, _):
            for request in requests:
                yield request.upper()

        def fail(_, context):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

        make = {
            "/test/Echo": grpc.unary_unary_rpc_method_handler(echo),
            "/test/Stream": grpc.unary_stream_rpc_method_handler(stream),
            "/test/Chat": grpc.stream_stream_rpc_method_handler(chat),
            "/test/Fail": grpc.unary_unary_rpc_method_handler(fail),
        }
        return make.get(details.method)


def serve(at):
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"127.0.0.1:{at}")
    server.start()
    return server


def channel(proxy):
    return grpc.insecure_channel(f"127.0.0.1:{proxy.at}", options=[("grpc.default_authority", peers.HOST)])


def grpc_proxy(work):
    backend = peers.Backend()
    return backend, peers.Ours(backend, work, more='protocol = "http2"\n')


@case
def grpc_waits_and_is_answered_in_every_shape(work):
    backend, proxy = grpc_proxy(work)
    with channel(proxy) as through:
        echo = through.unary_unary("/test/Echo")
        waiting = echo.future(b"hello", timeout=15)
        time.sleep(1)
        assert proxy.in_flight() == 1
        server = serve(backend.port)
        assert waiting.result() == b"hello"
        assert dict(waiting.trailing_metadata())["x-sum"] == "5"
        assert list(through.unary_stream("/test/Stream")(b"n")) == [b"n0", b"n1", b"n2"]
        chat = through.stream_stream("/test/Chat")(iter([b"a", b"b", b"x" * 100_000]))
        assert [len(one) for one in chat] == [1, 1, 100_000]
        try:
            through.unary_unary("/test/Fail")(b"")
            raise SystemExit("it should have failed")
        except grpc.RpcError as error:
            assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")
        server.stop(0).wait()
    return proxy


@case
def grpc_is_told_its_deadline_and_an_absent_backend_in_its_own_words(work):
    _, proxy = grpc_proxy(work)
    with channel(proxy) as through:
        began = time.monotonic()
        try:
            through.unary_unary("/test/Echo")(b"hello", timeout=1)
            raise SystemExit("it should have failed")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        assert time.monotonic() - began < 3
        try:
            through.unary_unary("/test/Echo")(b"hello")
            raise SystemExit("it should have failed")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            assert "did not come back" in error.details(), error
    return proxy


@case
def websockets_are_carried_and_wait_as_well(work):
    backend = peers.Backend()
    proxy = peers.Ours(backend, work)
    ready, over = threading.Event(), threading.Event()

    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    async def server():
        await asyncio.sleep(1)
        async with websockets.serve(echo, "127.0.0.1", backend.port):
            ready.set()
            await asyncio.to_thread(over.wait)

    running = threading.Thread(target=lambda: asyncio.run(server()))
    running.start()

    async def client():
        async with websockets.connect(f"ws://{peers.HOST}/ws", host="127.0.0.1", port=proxy.at) as socket:
            for message in ("hello", "x" * 200_000):
                await socket.send(message)
                assert await socket.recv() == message

    asyncio.run(client())
    over.set()
    running.join()
    assert asyncio.run(peers.gone_within(proxy, 5)), "the tunnel is still counted"
    return proxy


@case
def curl_and_h2load_speak_http2(work):
    backend = peers.Backend()

    async def run():
        await backend.start()
        proxy = peers.Ours(backend, work)
        url = f"http://127.0.0.1:{proxy.at}/x"
        curl = await asyncio.to_thread(subprocess.run, ["curl", "-s", "--http2-prior-knowledge", "-H", f"Host: {peers.HOST}", "-d", "x" * 100_000,
                                                        "-w", " %{http_code} %{http_version}", url], capture_output=True, text=True, check=True)
        assert curl.stdout == "100000 200 2", curl.stdout
        load = await asyncio.to_thread(subprocess.run, ["h2load", "-n2000", "-c4", "-m50", "-H", f":authority: {peers.HOST}", url],
                                       capture_output=True, text=True, check=True)
        assert "2000 succeeded" in load.stdout and "2000 2xx" in load.stdout, load.stdout
        return proxy

    return asyncio.run(run())


def main():
    for check in CASES:
        with tempfile.TemporaryDirectory() as work:
            proxy = check(work)
            proxy.end()
        print(f"ok  {check.__name__.replace('_', ' ')}", flush=True)


if __name__ == "__main__":
    main()
