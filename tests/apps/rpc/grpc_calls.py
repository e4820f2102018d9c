# SPDX-License-Identifier: Apache-2.0
"""gRPC in Python: `serve PORT`, or `call PORT`, which says what each call has brought."""
import asyncio
import concurrent.futures
import hashlib
import signal
import sys
import threading

import grpc

OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1),
           ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]


def echo(data, context):
    context.set_trailing_metadata(context.invocation_metadata()[:1])
    return data


def refuse(data, context):
    context.abort(grpc.StatusCode[data.decode()], "as asked")


def hang(_data, context):
    gone = threading.Event()
    # A call that is over already calls nothing back.
    if context.add_callback(gone.set):
        gone.wait()
    return b""


def count(data, _context):
    for i in range(int(data)):
        yield bytes([i & 255]) * i


def total(stream, _context):
    return b"%d" % sum(map(len, stream))


def talk(stream, _context):
    for data in stream:
        yield data[::-1]


UNARY = grpc.unary_unary_rpc_method_handler
HANDLERS = {"Echo": UNARY(echo), "Refuse": UNARY(refuse), "Hang": UNARY(hang),
            "Count": grpc.unary_stream_rpc_method_handler(count),
            "Total": grpc.stream_unary_rpc_method_handler(total),
            "Talk": grpc.stream_stream_rpc_method_handler(talk)}


def serve(target):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Calls", HANDLERS),))
    server.add_insecure_port(target)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    server.start()
    over.wait()
    server.stop(0).wait()


def status(call, *arguments, **kw):
    try:
        return call(*arguments, **kw)
    except grpc.RpcError as e:
        return e.code().name


def sizes(channel):
    unary = channel.unary_unary("/Calls/Echo")
    for i in range(200):
        if unary(b"%d" % i) != b"%d" % i:
            print("wrong", i)
    for size in (0, 1, 16384, 65536, 1_000_003, 8_000_000):
        data = (bytes(range(251)) * (size // 251 + 1))[:size]
        print(size, hashlib.sha256(unary(data)).hexdigest()[:16])
    _, call = unary.with_call(b"x", metadata=[("key", "value")])
    print("metadata", [tuple(x) for x in call.trailing_metadata()])


def errors(channel):
    for name in ("NOT_FOUND", "UNAUTHENTICATED", "DATA_LOSS"):
        print(status(channel.unary_unary("/Calls/Refuse"), name.encode()))
    print(status(channel.unary_unary("/Calls/Nothing"), b""))
    print(status(channel.unary_unary("/Calls/Hang"), b"", timeout=0.05))
    late = channel.unary_unary("/Calls/Hang").future(b"")
    print("cancelled", late.cancel(), late.code().name)


def streams(channel):
    got = list(channel.unary_stream("/Calls/Count")(b"300"))
    print("count", len(got), hashlib.sha256(b"".join(got)).hexdigest()[:16])
    print("total", channel.stream_unary("/Calls/Total")(b"x" * i for i in range(300)))
    sent = [b"%d" % i * i for i in range(200)]
    back = list(channel.stream_stream("/Calls/Talk")(iter(sent)))
    print("talk", back == [x[::-1] for x in sent])
    half = channel.unary_stream("/Calls/Count")(b"100000")
    for data in half:
        if len(data) == 50:
            half.cancel()
            break
    print("half", half.code().name)


def crowd(channel):
    unary = channel.unary_unary("/Calls/Echo")
    calls = [unary.future(b"%d" % i * i) for i in range(300)]
    print("futures", all(c.result() == b"%d" % i * i for i, c in enumerate(calls)))


async def asynchronous(target):
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        unary = channel.unary_unary("/Calls/Echo")
        got = await asyncio.gather(*(unary(b"%d" % i) for i in range(100)))
        print("asyncio", got == [b"%d" % i for i in range(100)])


def call(target):
    with grpc.insecure_channel(target, OPTIONS) as channel:
        for part in (sizes, errors, streams, crowd):
            part(channel)
    asyncio.run(asynchronous(target))


if __name__ == "__main__":
    (serve if sys.argv[1] == "serve" else call)("127.0.0.1:" + sys.argv[2])
