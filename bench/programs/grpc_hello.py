# SPDX-License-Identifier: Apache-2.0
"""A hello-world loop over gRPC: `serve TARGET`, or `call TARGET SECONDS`, which prints the
calls of a second."""
import concurrent.futures
import sys
import time

import grpc


class Greeter(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method != "/Greeter/Greet":
            return None
        return grpc.unary_unary_rpc_method_handler(lambda name, _context: b"Hello, " + name)


def serve(target):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Greeter(),))
    server.add_insecure_port(target)
    server.start()
    server.wait_for_termination()


def loop(greet, seconds):
    start, calls = time.monotonic(), 0
    while (now := time.monotonic()) - start < seconds:
        for _ in range(20):
            if greet(b"world") != b"Hello, world":
                raise ValueError("wrong answer")
        calls += 20
    return calls / (now - start)


def call(target, seconds):
    with grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
        greet = channel.unary_unary("/Greeter/Greet")
        loop(greet, 0.2)
        print("calls/s:", loop(greet, seconds))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(sys.argv[2], float(sys.argv[3]))
