# SPDX-License-Identifier: Apache-2.0
"""Rows between two hosts: QEMU guests with a software RDMA device (rxe), booted for the first of these rows
and kept for the others."""
import contextlib
import importlib.util
import io
import os
import sys

from .engine import Cache
from .row import Cannot, Failed, cell, size_words
from .ways import HERE, Bench, built

LIMIT_S = 1800  # of one command there
SOURCE = "it is beside a build of the source, and not installed"
ANSWER_PORT = 7432


def script(name):
    """bench/NAME.py: modules of the tests have the same names."""
    path = os.path.join(os.path.dirname(HERE), f"{name}.py")
    guests = os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "guest", "bed.py")
    for needed in (path, guests):
        if not os.path.exists(needed):
            raise Cannot(f"{os.path.basename(needed)} is missing: {SOURCE}")
    full = f"between_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, path)
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


class Over(Exception):
    """Nothing is asked of the guests any more."""


class Two:
    """The two guests, or none yet. A row that fails there leaves none: the next one boots again."""

    def __init__(self):
        self.held, self.bed, self.said = None, None, io.StringIO()

    def boot(self, viaduct):
        hosts, puts = script("hosts"), script("puts")
        options = hosts.parse([viaduct, os.path.join(os.path.dirname(viaduct), "tests/guest/kernel")])
        self.held = contextlib.ExitStack()
        debian = hosts.kernel.kernel(options.cache)
        content = hosts.content(debian, options, self.held)
        self.have = puts.add(content, options)
        content.program("ibv_uc_pingpong")
        content.binary(built(viaduct, "bench/measure/viaduct-bench", SOURCE),
                       "/viaduct/bench/measure/viaduct-bench")
        content.binary(built(viaduct, "tests/guest/cache-bench", SOURCE), "/tests/cache-bench")
        self.bed = self.held.enter_context(hosts.beds.hosts(debian, content, options))
        hosts.set_up(self.bed)
        self.bed.a.must("{ /viaduct/viaduct bench --answer; touch /run/answered; } </dev/null "
                        f">/run/answer 2>&1 &\nuntil {hosts.beds.listening(ANSWER_PORT)}; do\n"
                        "[ ! -e /run/answered ] || { cat /run/answer; exit 1; }; sleep 0.05; done")

    def leave(self, error=None):
        """Ends them at once; after a failure of a guest they tell first what they can."""
        held, self.held, self.bed = self.held, None, None
        error = error or Over()
        if held:
            with contextlib.redirect_stdout(self.said):
                held.__exit__(type(error), error, error.__traceback__)

    @contextlib.contextmanager
    def on(self, viaduct):
        """The bed, for one row; what goes wrong there is the row's."""
        hosts = script("hosts")
        try:
            with contextlib.redirect_stdout(self.said):
                if not self.bed:
                    self.boot(viaduct)
                yield self.bed
        except (Cannot, hosts.kernel.Missing) as e:
            self.leave()
            raise Cannot(str(e)) from e
        except (hosts.guest.Failure, hosts.Refused, OSError, ValueError) as e:
            self.leave(e)
            print(self.said.getvalue(), file=sys.stderr)
            raise Failed(" ".join(str(e).split())[-300:] or "it said nothing") from e
        finally:
            self.said.seek(0)
            self.said.truncate()


TWO = Two()


class Between:
    """What all of these rows have: more is measured the longer a run is to be."""
    between = True

    def at(self, level, cases):
        return cases[:1] if level.smallest else cases[:2] if level.name == "quick" else cases

    def in_turn(self, bed, level, cases, ways):
        """`cases` is a list of (words, argument), `ways` of (name, what measures it)."""
        for words, argument in cases:
            values = {name: [] for name, _ in ways}
            for _ in range(level.pairs):
                for name, measure in ways:
                    values[name].append(measure(bed, argument))
            yield words, values


class Hosts(Between, Bench):
    """`viaduct bench --host`: as between any two hosts."""

    def __init__(self, parts, sizes, over="tcp,viaduct,rsockets,verbs", more=()):
        super().__init__(parts, sizes, over, more)

    def arguments(self, level):
        host = script("hosts").SERVER
        return [*super().arguments(level), "--host", host]

    def some(self, level):
        return self.at(level, self.sizes)

    def command_at(self, level):
        try:
            return f"viaduct bench --answer; {super().command_at(level)}"
        except Cannot:
            return ""

    def measured(self, viaduct, level):
        with TWO.on(viaduct) as bed:
            line = " ".join(self.arguments(level))
            return bed.b.must(f"/viaduct/viaduct {line} --json /run/far/json >/run/far/table 2>&1 || "
                              "[ $? = 1 ] || { cat /run/far/table; exit 2; }\ncat /run/far/json",
                              LIMIT_S)


def puts_at(level):
    """bench/puts.py, with as many turns as such a run has."""
    puts = script("puts")
    puts.TURNS, puts.STREAM_BYTES, puts.LOGP_TURNS = (
        (20, 1 << 20, 10) if level.smallest else (300, 4 << 20, 60))
    return puts


class Puts(Between):
    """Rows of bench/puts.py: `ways` is a list of (name, of its contenders the one)."""

    def __init__(self, rows):
        self.rows = rows

    def command_at(self, level):
        names = " ".join(f"--only '{row}'" for row, _ in self.at(level, self.rows))
        return f"bench/puts.py --rounds {level.pairs} {names} build/viaduct build/tests/guest/kernel"

    def run(self, viaduct, level):
        puts, cells = puts_at(level), []
        with TWO.on(viaduct) as bed:
            for row, ways in self.at(level, self.rows):
                size, contenders = puts.ROWS[row]
                known = {c.name: c for c in contenders if not c.needs or c.needs in TWO.have}
                found = self.in_turn(bed, level, [(row, size)], [
                    (name, known[of].measure) for name, of in ways if of in known])
                cells += [cell(words, "us", True, values) for words, values in found]
        return cells


class Overheads(Between):
    """LogP's o and g of puts."""

    def command_at(self, level):
        return f"bench/puts.py --rounds {level.pairs} --only overheads build/viaduct build/tests/guest/kernel"

    def run(self, viaduct, level):
        puts = puts_at(level)
        with TWO.on(viaduct) as bed:
            found = [puts.logp(bed, 64) for _ in range(level.pairs)]
        return [cell(f"puts of 64 B: {words}", "us", True, {"viaduct": list(values)})
                for words, values in zip(("o, send", "o, receive", "g"), zip(*found))]


class Reliable(Between):
    """The library's own examples of raw verbs, over a connected queue pair with and without reliability."""
    SIZES = (8, 4096, 65536)

    def command_at(self, level):
        return "; ".join(f"ibv_{kind}_pingpong -d rxe0 -g GID -s {size} [HOST]"
                         for size in self.at(level, self.SIZES) for kind in ("uc", "rc"))

    def run(self, viaduct, level):
        puts = puts_at(level)

        def program(name):
            return lambda bed, size: puts.pingpong(program=name)(bed, size)
        with TWO.on(viaduct) as bed:
            found = self.in_turn(bed, level, [
                (f"{size_words(size)} there and back", size) for size in self.at(level, self.SIZES)],
                [("uc", program("ibv_uc_pingpong")), ("rc", program("ibv_rc_pingpong"))])
            return [cell(words, "us", True, values) for words, values in found]


class Redirected(Between):
    """Messages there and back by blocking calls of sockets, with receives redirected and with none."""
    SIZES = (131072, 16384, 65536, 4096, 1024)

    def command_at(self, level):
        return "; ".join(f"viaduct run --redirect {how} -- rstream -b HOST -T b -S {size} -C 1 "
                         f"-I {self.turns(level)}" for size in self.at(level, self.SIZES)
                         for how in ("off", size))

    def turns(self, level):
        return 60 if level.smallest else 200  # the first go over TCP

    def run(self, viaduct, level):
        hosts = script("hosts")
        turns, share = self.turns(level), {}

        def sockets(by, option=lambda size: ""):
            def measure(bed, size):
                how = hosts.Contender(by.name, by.before.replace(" --upgrade", f"{option(size)} --upgrade"),
                                      "-T s -T b")
                took = hosts.rstream(bed, how, size, 1, turns)
                if option(size):
                    redirected = sum(side.report("hosts")["redirects"] for side in (bed.a, bed.b))
                    share.setdefault((size, option(size)), []).append(redirected / turns / 2 * 100)
                return took
            return measure
        with TWO.on(viaduct) as bed:
            over = hosts.CONTENDERS[1]
            cases = [(f"{size_words(size)} there and back", size) for size in self.at(level, self.SIZES)]
            found = self.in_turn(bed, level, cases, [
                ("tcp", sockets(hosts.TCP)), ("copied", sockets(over, lambda _: " --redirect off")),
                ("redirected", sockets(over, lambda size: f" --redirect {size}"))])
            cells = [cell(words, "us", True, values) for words, values in found]
        cells += [cell(f"{size_words(size)}: share of messages redirected", "%", False,
                       {"redirected": values}) for (size, option), values in share.items()
                  if "off" not in option]
        return cells


class Calls(Between):
    """libtirpc between hosts, by the programs of tests/rpc."""
    KINDS = ("null", "1KiB", "int", "4KiB", "64KiB")

    def command_at(self, level):
        return "bench/hosts.py --only RPC build/viaduct build/tests/guest/kernel"

    def run(self, viaduct, level):
        hosts = script("hosts")

        def call(contender):
            def measure(bed, kind):
                try:
                    return hosts.remote_call(kind)(bed, contender)
                except hosts.Refused as e:
                    raise hosts.Refused(f"{kind} over {contender.name}: {e}") from e
            return measure
        with TWO.on(viaduct) as bed:
            found = self.in_turn(bed, level, [(kind, kind) for kind in self.at(level, self.KINDS)], [
                (c.name, call(c)) for c in hosts.CONTENDERS if c.name != "smc"])
            return [cell(words, "us a call", True, values) for words, values in found]


class FarCache(Between, Cache):
    """What a registration costs with the guests' device."""

    def command_at(self, _level):
        return "build/tests/guest/cache-bench verbs ADDRESS"

    def measured(self, viaduct):
        with TWO.on(viaduct) as bed:
            return bed.a.must(f"/tests/cache-bench verbs {bed.server}", LIMIT_S)

