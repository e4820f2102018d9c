# SPDX-License-Identifier: Apache-2.0
"""The figures of a user's own pair of programs: is it worth it?"""
from .load import Refused, figure, items, letters, part, spread, word
from .names import contender_style
from .units import show

MEASURES = (("elapsed_s", "Elapsed time"), ("client_cpu_s", "Processor time of the client"),
            ("server_cpu_s", "Processor time of the server"))
STATES = (("plain", "plain", "tcp"), ("under_viaduct", "under Viaduct", "viaduct"))
SPECIAL = set(" \t\n'\"\\$`&;|<>()*?[]#~")


def groups(figures):
    """Bars, as plots.py has them: [(name, [(name, text, style, light, spread)])]."""
    made = []
    for field, words in MEASURES:
        bars = []
        for state, name, over in STATES:
            v = spread(part(figures.json, state), field)
            if v.median > 0:
                bars.append((name, show("time", v.median), contender_style(over), False, v))
        made.append((words, bars))
    if not any(bars for _, bars in made):
        raise Refused(f"{figures.path} holds no times of programs (`plain` and `under_viaduct` "
                      "are missing or empty)")
    return made


def shell_word(text):
    """As a shell would take it."""
    if text and not SPECIAL & set(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def shell_command(command):
    return " ".join(shell_word(letters(w) if isinstance(w, str) else "") for w in command)


def words(figures):
    of, q = figures.json, spread(figures.json, "ratio")
    counts = {name: show("count", figure(of, name))
              for name in ("connections", "upgraded", "direct_bytes", "tcp_bytes")}
    return {"sentence": word(of, "sentence"), "server": shell_command(items(of, "server")),
            "client": shell_command(items(of, "client")),
            "pairs": f"{figure(of, 'pairs'):.0f}",
            "ratio": [show("ratio", v) for v in (q.median, q.min, q.max)] if q.median > 0 else None,
            **counts}
