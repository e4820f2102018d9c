#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stress-ng's socket stressors, which verify what they receive."""
import harness

STRESS = harness.need("stress-ng")


def scenario(run):
    result = []
    port = harness.free_ports(2)  # one for each of its instances
    for opts in ("random", "send", "sendmsg", "sendmmsg"):
        for domain in ("ipv4", "ipv6"):
            run.client([STRESS, "--sock", "2", "--sock-ops", "200", "--sock-domain", domain,
                        "--sock-type", "stream", "--sock-opts", opts, "--sock-port",
                        str(port), "--verify", "--temp-path", run.dir])
            result.append((opts, domain))
    run.client([STRESS, "--sockmany", "1", "--sockmany-ops", "100", "--verify",
                "--temp-path", run.dir])
    run.client([STRESS, "--epoll", "1", "--epoll-ops", "300", "--verify", "--temp-path",
                run.dir])
    return result


# Server and client are processes of one command.
harness.main(scenario, modes=("plain", "both"))
