#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""redis-server with redis-cli and redis-benchmark."""
import harness

SERVER, CLI, BENCH = harness.need("redis-server", "redis-cli", "redis-benchmark")


def resp(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def scenario(run):
    port = harness.free_port()
    run.server([SERVER, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", "--dir", run.dir], port)

    def cli(*args, **kw):
        return run.client([CLI, "-p", str(port), *args], **kw)

    result = [cli("set", "key", "value"), cli("get", "key"), cli("ping")]
    big = bytes(i * 7 % 251 for i in range(3_000_000))
    result.append(cli("-x", "set", "big", stdin=big))
    result.append(harness.sha(cli("get", "big")))
    pipe = b"".join(resp(b"SET", b"k%d" % i, b"v" * (i % 3000)) for i in range(5000))
    result.append(b"errors: 0, replies: 5000" in cli("--pipe", stdin=pipe))
    result.append(harness.sha(cli("--raw", "eval",
                                  "local t = {} for i = 0, 4999 do "
                                  "t[#t+1] = redis.call('get', 'k' .. i) end return t",
                                  "0")))
    # Lists of small values only: redis-benchmark parses a list of large ones again from its
    # beginning with each packet, and takes minutes for a few thousand.
    lists = "set,get,lpush,lrange_100"
    for tests, args in ((lists, ["-c", "1", "-n", "1000"]), (lists, ["-c", "50", "-n", "2000"]),
                        (lists, ["-c", "50", "-n", "5000", "-P", "16"]),
                        ("set,get,lpush", ["-c", "20", "-n", "2000", "-d", "20000"]),
                        (lists, ["-c", "50", "-n", "2000", "--threads", "2"])):
        out = run.client([BENCH, "-p", str(port), "-q", "-t", tests, *args])
        result.append(out.count(b"requests per second"))
    result.append(cli("dbsize"))
    result.append(cli("llen", "mylist"))
    return result


harness.main(scenario)
