# SPDX-License-Identifier: Apache-2.0
"""What a guest has on its only disk, an initramfs: a small Debian out of this machine's
programs, the programs under test, and what all of these load."""
import os
import pathlib
import re
import stat
import subprocess
import sys

from kernel import Missing, find

HERE = pathlib.Path(__file__).resolve().parent
# Programs that run under Viaduct must be dynamic, so these are not busybox's.
PROGRAMS = ["dash", "cat", "dd", "head", "true", "wc", "ip", "tc", "ss"]
RDMA = ["rdma", "ibv_devinfo", "ibv_rc_pingpong", "rping"]
# What a C library loads at run time, and a thread that is cancelled.
LOADED = ["libgcc_s.so.1"]
# Debian's /bin, /sbin and /lib lead into /usr.
MERGED = ("bin", "sbin", "lib", "lib64")
FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def libraries(path):
    """What the loader would load for a program or a library."""
    done = subprocess.run([find("ldd"), path], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    if "not found" in done.stdout:
        raise Missing(f"{path} lacks a library: {done.stdout}")
    return re.findall(r"(/\S+) \(0x", done.stdout)


class Image:
    """Paths in the guest, and what lies there: a file of this machine's, bytes, a link."""

    def __init__(self, kernel):
        self.entries = {}
        for name in MERGED:
            self.link("/" + name, "usr/" + name)
        for name in ("/dev", "/proc", "/sys", "/run", "/root"):
            self.folder(name)
        self.folder("/tmp", 0o1777)
        for path, text in FILES.items():
            self.data(path, text.encode())
        self.data("/init", (HERE / "init.sh").read_bytes(), 0o755)
        self.data("/commands", (HERE / "commands.sh").read_bytes(), 0o755)
        self.tree(kernel.modules, "/")
        self.busybox()
        for name in PROGRAMS:
            self.program(name)
        self.link("/usr/bin/sh", "dash")
        for library in LOADED:
            self.library(library)

    def path(self, path):
        parts = pathlib.PurePosixPath(path).parts[1:]
        path = pathlib.PurePosixPath("/usr" if parts[0] in MERGED and len(parts) > 1 else "/",
                                     *parts)
        for parent in path.parents:
            if str(parent) != "/":
                self.entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, b"", 0))
        return str(path)

    def folder(self, path, mode=0o755):
        self.entries[self.path(path)] = (stat.S_IFDIR | mode, b"", 0)

    def link(self, path, target):
        self.entries[self.path(path)] = (stat.S_IFLNK | 0o777, target.encode(), 0)

    def data(self, path, content, mode=0o644):
        self.entries[self.path(path)] = (stat.S_IFREG | mode, content, 0)

    def file(self, path, source):
        """A file as it is here, with its time: Python compares that with its own files'."""
        source = pathlib.Path(source)
        info = source.stat()
        self.entries[self.path(path)] = (info.st_mode, source, int(info.st_mtime))

    def tree(self, source, path):
        for file in pathlib.Path(source).rglob("*"):
            if file.is_file():
                self.file(pathlib.PurePosixPath(path) / file.relative_to(source), file)

    def binary(self, source, path=None):
        """A program or a library, with what it loads."""
        self.file(path or source, source)
        for library in libraries(source):
            self.file(library, library)

    def program(self, name):
        self.binary(find(name), f"/usr/bin/{name}")

    def library(self, name):
        """A library that programs load by name, from where the loader looks."""
        listed = output(find("ldconfig"), "-p")
        found = re.search(rf"^\s*{re.escape(name)} \(libc6,x86-64.*=> (\S+)$", listed, re.M)
        if not found:
            raise Missing(f"{name} is missing")
        self.binary(found.group(1))

    def busybox(self):
        """All of its programs in a folder of their own, that comes last in PATH."""
        path = find("busybox")
        self.binary(path, "/usr/lib/busybox/busybox")
        for name in output(path, "--list").split():
            if name != "busybox":
                self.link(f"/usr/lib/busybox/{name}", "busybox")
        self.link("/usr/sbin/modprobe", "../lib/busybox/busybox")

    def viaduct(self, command, folder="/viaduct"):
        """The command, and the library beside it."""
        self.binary(command, f"{folder}/viaduct")
        self.binary(pathlib.Path(command).parent / "libviaduct-preload.so",
                    f"{folder}/libviaduct-preload.so")

    def rdma(self):
        """The programs for RDMA, and the provider of rxe, which libibverbs loads by name."""
        for name in RDMA:
            self.program(name)
        driver = pathlib.Path("/etc/libibverbs.d/rxe.driver")
        providers = sorted(pathlib.Path("/usr/lib/x86_64-linux-gnu/libibverbs").glob(
            "librxe-rdmav*.so"))
        if not driver.exists() or not providers:
            raise Missing("the provider of rxe is missing (package ibverbs-providers)")
        self.file(driver, driver)
        self.binary(str(providers[-1]))

    def python(self, *modules):
        """This interpreter, with these modules and all that they import."""
        real = os.path.realpath(sys.executable)
        self.binary(real)
        self.link("/usr/bin/python3", real)
        shown = output(real, "-I", "-S", "-c", f"import sys, {', '.join(modules)}\n"
                       "import os, site, encodings.ascii, encodings.latin_1\n"
                       "for m in list(sys.modules.values()):\n"
                       "    for key in '__file__', '__cached__':\n"
                       "        if getattr(m, key, None):\n"
                       "            print(getattr(m, key))\n")
        # Without this folder, which may be empty, an interpreter complains at each start.
        self.folder(output(real, "-I", "-S", "-c", "import sysconfig\n"
                           "print(sysconfig.get_path('platstdlib') + '/lib-dynload')").strip())
        for path in set(shown.splitlines()):
            if path.endswith(".so"):
                self.binary(path)
            elif os.path.exists(path):
                self.file(path, path)

    def write(self, target):
        """As a cpio archive, which the kernel unpacks; all of it belongs to root."""
        with open(target, "wb") as out:
            for number, (path, entry) in enumerate(sorted(self.entries.items()), 1):
                mode, content, mtime = entry
                if isinstance(content, pathlib.Path):
                    content = content.read_bytes()
                self.record(out, number, path.lstrip("/"), mode, mtime, content)
            self.record(out, 0, "TRAILER!!!", 0, 0, b"")

    @staticmethod
    def record(out, number, name, mode, mtime, content):
        """One of the format newc: thirteen fields of eight digits, name, content."""
        fields = (number, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        for part in (b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0",
                     content):
            out.write(part + b"\0" * (-len(part) % 4))
