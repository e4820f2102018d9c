# SPDX-License-Identifier: Apache-2.0
"""A client of bus_echo.py, by GLib: says what each call has brought.

usage: bus_calls.py ADDRESS
"""
import hashlib
import sys

from gi.repository import Gio, GLib

ECHO = ("org.viaduct.Echo", "/echo", "org.viaduct.Echo")
NOW = Gio.DBusCallFlags.NONE
LIMIT_MS = 90_000


def call(bus, method, kind, *value, to=ECHO):
    arguments = GLib.Variant(kind, value) if kind else None
    try:
        return bus.call_sync(*to, method, arguments, None, NOW, LIMIT_MS, None).unpack()
    except GLib.Error as e:
        Gio.DBusError.strip_remote_error(e)
        return e.message


def echo(bus, data):
    """Bytes as a whole: GLib's binding would make each one a number."""
    array = GLib.Variant.new_from_bytes(GLib.VariantType("ay"), GLib.Bytes.new(data), True)
    back = bus.call_sync(*ECHO, "Echo", GLib.Variant.new_tuple(array), None, NOW, LIMIT_MS, None)
    return back.get_child_value(0).get_data_as_bytes().get_data() or b""


def sizes(bus):
    for size in (0, 1, 100, 4096, 65536, 1_000_003, 8 << 20):
        data = bytes(i * 7 & 255 for i in range(251)) * (size // 251 + 1)
        print(size, echo(bus, data[:size]) == data[:size])
    print(call(bus, "Sum", "(ai)", list(range(-5, 3_000))))


def errors(bus):
    print(call(bus, "Fail", "(s)", "as asked"))
    print(call(bus, "Nothing", "()"))
    print(call(bus, "Echo", "(s)", "a string"))
    print(call(bus, "Echo", "(ay)", b"", to=("org.viaduct.Nobody", "/", "org.viaduct.Echo")))
    print(call(bus, "Echo", "(ay)", b"", to=("org.viaduct.Echo", "/other", "org.viaduct.Echo")))


def told(bus):
    """Signals come in the order of their emission, and before the answer that follows them."""
    seen, digest, loop = [], hashlib.sha256(), GLib.MainLoop()

    def on_signal(_bus, _sender, _path, _interface, _signal, arguments):
        seen.append(arguments.get_child_value(0).get_uint32())
        digest.update(arguments.get_child_value(1).get_data_as_bytes().get_data() or b"")
        if len(seen) == 300:
            loop.quit()

    bus.signal_subscribe(None, "org.viaduct.Echo", "Told", "/echo", None,
                         Gio.DBusSignalFlags.NONE, on_signal)
    call(bus, "Tell", "(u)", 300)
    loop.run()
    print("told", seen == list(range(300)), digest.hexdigest()[:16])


def many(bus):
    """Calls that are under way together: late ones are overtaken."""
    loop, order = GLib.MainLoop(), []

    def done(source, result):
        order.append(source.call_finish(result).unpack()[0])
        if len(order) == 60:
            loop.quit()

    for i in range(60):
        bus.call(*ECHO, "Late", GLib.Variant("(u)", (i % 6 * 5,)), None, NOW, LIMIT_MS, None, done)
    loop.run()
    print("many", sorted(order))


def main():
    bus = Gio.DBusConnection.new_for_address_sync(
        sys.argv[1], Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
        | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION, None, None)
    for i in range(300):
        if echo(bus, b"%d" % i) != b"%d" % i:
            print("wrong", i)
    sizes(bus)
    errors(bus)
    told(bus)
    many(bus)
    bus.close_sync(None)


main()
