# SPDX-License-Identifier: Apache-2.0
"""Open MPI over its TCP transport: NetPIPE, and the HPC Challenge."""
import os

from programs.rig import Failure, client, find_number, measure, measure_many

NO_UNIX = "Open MPI has no AF_UNIX transport"
# Of two ranks that look for messages all the time, each has a processor.
OPTIONS = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
           "--mca", "pml", "ob1", "--oversubscribe", "--allow-run-as-root", "-np", "2"]


def mpirun(bench, way, command, report, folder):
    """Each rank is under Viaduct, or in the cgroup, and mpirun itself is not."""
    return client(bench, "tcp", ["mpirun", *OPTIONS, *bench.prefix(way, report), *command],
                  report, cpu=None, cwd=folder, env=dict(os.environ, TMPDIR=str(folder)))


def app_npmpi(bench):
    """NetPIPE over MPI: round trip divided by two, and throughput"""
    for size, unit in ((64, "us"), (65536, "GB/s"), (1048576, "GB/s")):
        def once(way, report, size=size, unit=unit):
            text = mpirun(bench, way, [
                "NPopenmpi", "-l", str(size), "-u", str(size + 1), "-p", "0",
                "-o", "np.out"], report, bench.new_folder())
            if unit == "us":
                return find_number(r" in\s+([0-9.]+) usec", text)
            # What the other rank says may stand in the midst of the line.
            return find_number(r"([0-9.]+) Mbps in", text, 2**20 / 8e9)
        measure(bench, "npmpi", f"{size} B", unit, once, unit == "us", NO_UNIX)


# case, unit, line of the summary, scale, whether less is better
HPCC = (("MPI FFT", "GF/s", "MPIFFT_Gflops", 1, False),
        ("HPL", "GF/s", "HPL_Tflops", 1000, False),
        ("PTRANS", "GB/s", "PTRANS_GBs", 1, False),
        ("MPI RandomAccess", "MUP/s", "MPIRandomAccess_GUPs", 1000, False),
        ("random ring", "us", "RandomlyOrderedRingLatency_usec", 1, True))
MEMORY_MB = 16  # of each rank: all sizes follow from it; this makes runs of seconds
SMALLEST_MB = 1  # where a run is to show only that it works


def app_hpcc(bench):
    """HPC Challenge: one run gives all figures"""

    def once(way, report):
        folder = bench.new_folder()
        memory = MEMORY_MB if bench.seconds > 0.1 else SMALLEST_MB
        (folder / "hpccmemf.txt").write_text(f"Process={memory}\n")
        mpirun(bench, way, ["hpcc"], report, folder)
        text = (folder / "hpccoutf.txt").read_text()
        if "\nSuccess=1\n" not in text:
            raise Failure("hpcc does not say that all went well")
        return [find_number(rf"\n{key}=([0-9.e+-]+)", text, scale)
                for _case, _unit, key, scale, _lower in HPCC]
    measure_many(bench, "hpcc", [(case, unit, lower) for case, unit, _, _, lower in HPCC],
                 once, NO_UNIX)
