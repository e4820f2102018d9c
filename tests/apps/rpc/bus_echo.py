# SPDX-License-Identifier: Apache-2.0
"""A service on a bus, by GLib: answers, refuses, answers late, and says so by signals.

usage: bus_echo.py ADDRESS READY-FILE
"""
import sys

from gi.repository import Gio, GLib

NAME = "org.viaduct.Echo"
NODE = """
<node><interface name="org.viaduct.Echo">
<method name="Echo"><arg type="ay" direction="in"/><arg type="ay" direction="out"/></method>
<method name="Sum"><arg type="ai" direction="in"/><arg type="x" direction="out"/></method>
<method name="Fail"><arg type="s" direction="in"/></method>
<method name="Late"><arg type="u" direction="in"/><arg type="u" direction="out"/></method>
<method name="Tell"><arg type="u" direction="in"/></method>
<signal name="Told"><arg type="u"/><arg type="ay"/></signal>
</interface></node>
"""


def later(ms, call):
    call.return_value(GLib.Variant("(u)", (ms,)))
    return False


def called(bus, _sender, path, interface, method, arguments, call):
    if method == "Echo":
        call.return_value(arguments)
        return
    value = arguments.unpack()[0]
    if method == "Sum":
        call.return_value(GLib.Variant("(x)", (sum(value),)))
    elif method == "Fail":
        call.return_dbus_error("org.viaduct.Error", value)
    elif method == "Late":
        GLib.timeout_add(value, later, value, call)
    else:
        for i in range(value):
            data = GLib.Bytes.new(bytes(range(251)) * (i // 7))
            array = GLib.Variant.new_from_bytes(GLib.VariantType("ay"), data, True)
            number = GLib.Variant.new_uint32(i)
            bus.emit_signal(None, path, interface, "Told",
                            GLib.Variant.new_tuple(number, array))
        call.return_value(None)


def main():
    bus = Gio.DBusConnection.new_for_address_sync(
        sys.argv[1], Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
        | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION, None, None)
    bus.set_exit_on_close(True)  # when the bus ends, so does this
    interface = Gio.DBusNodeInfo.new_for_xml(NODE).interfaces[0]
    bus.register_object("/echo", interface, called, None, None)
    loop = GLib.MainLoop()

    def owned(_bus, _name):
        with open(sys.argv[2], "w", encoding="ascii"):
            pass

    Gio.bus_own_name_on_connection(bus, NAME, Gio.BusNameOwnerFlags.NONE, owned,
                                   lambda *_: sys.exit("the name is lost"))
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, 15, loop.quit)
    loop.run()
    bus.close_sync(None)


main()
