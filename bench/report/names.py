# SPDX-License-Identifier: Apache-2.0
"""Patterns and contenders in words, and the colour that each contender keeps."""

PATTERNS = {
    "rtt": "Round trip, blocking calls",
    "rtt-spin": "Round trip, spinning",
    "rtt-epoll": "Round trip, epoll",
    "rtt-poll": "Round trip, poll",
    "many": "Many connections, epoll",
    "think": "Request and reply, thinking busily",
    "think-sleep": "Request and reply, sleeping between",
    "stream": "One way",
    "bidir": "Both ways at once",
    "crr": "Connect, request, close",
    "session": "Connect, twelve requests, close",
    "session-30": "Connect, thirty requests, close",
    "session-100": "Connect, a hundred requests, close",
    "plain": "Plain peer, round trip",
    "plain-spin": "Plain peer, spinning",
    "plain-stream": "Plain peer, one way",
    "logp": "LogP",
    "copy": "Copies, the same buffers again",
    "copy-cold": "Copies, buffers that no cache holds",
    "setup": "Short connections, upgraded at once",
    "setup-spin": "Short connections, upgraded at once, spinning",
}
CONTENDERS = {
    "tcp": "TCP",
    "viaduct": "Viaduct",
    "viaduct-nospin": "Viaduct, spin off",
    "tcp-spin": "TCP, spinning",
    "rsockets": "rsockets",
    "verbs": "raw verbs",
    "unix": "AF_UNIX",
    "floor": "raw ring",
    "via-client": "Viaduct at client",
    "via-server": "Viaduct at server",
    "ucx": "UCX",
    "fi": "libfabric",
    "ring": "ring, two copies",
    "vm-write": "process_vm_writev",
    "vm-read": "process_vm_readv",
}
PLACES = {"two": "two CPUs", "one": "one CPU", "free": "any CPU"}

STYLES = ("tcp", "viaduct", "unix", "tcp-spin", "floor", "via-client", "via-server", "ucx", "fi")
# In no picture together with those whose style they share.
COPIES = ("ring", "vm-write", "vm-read")


def pattern_words(pattern):
    return PATTERNS.get(pattern, pattern)


def contender_words(over):
    return CONTENDERS.get(over, over)


def place_words(place):
    return PLACES.get(place, place)


def contender_style(over):
    """A number from 0 to 9, the same for a contender in all pictures."""
    for names in (STYLES, COPIES):
        if over in names:
            return names.index(over)
    return len(STYLES)
