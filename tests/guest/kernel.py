# SPDX-License-Identifier: Apache-2.0
"""Debian's kernel for the guests: fetched with apt, unpacked into a folder, not installed."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess

# What a guest may load, with all that it needs. Most are loaded by the kernel when they are
# first asked for, by alias: what sock_diag, TCP_ULP, `tc`, and `nft` need.
MODULES = ["virtio_pci", "virtio_net", "virtio_console", "crc32_generic", "crc32-pclmul",
           "rdma_rxe", "ib_uverbs", "rdma_ucm", "veth", "sch_netem", "sch_prio", "cls_u32",
           "inet_diag", "tcp_diag", "udp_diag", "unix_diag", "tls", "nft_numgen",
           "nft_chain_nat", "nft_redir"]
META = "linux-image-amd64"
# The Debian package of each program that the guests, or their making, need.
PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static",
            "depmod": "kmod", "modprobe": "kmod", "apt-get": "apt", "apt-cache": "apt",
            "dpkg-deb": "dpkg", "setpriv": "util-linux", "ldd": "libc-bin",
            "ip": "iproute2", "tc": "iproute2", "ss": "iproute2", "rdma": "iproute2",
            "ibv_rc_pingpong": "ibverbs-utils", "ibv_devinfo": "ibverbs-utils",
            "rping": "rdmacm-utils", "ib_write_lat": "perftest", "ib_write_bw": "perftest",
            "nft": "nftables", "prlimit": "util-linux",
            "redis-cli": "redis-tools", "redis-benchmark": "redis-tools",
            "nginx": "nginx-light", "mpirun": "openmpi-bin", "orted": "openmpi-bin",
            "mpicc": "libopenmpi-dev"}


class Missing(Exception):
    """Something that this machine does not have: the reason to skip a test."""


def find(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{program} is missing (package {PACKAGES.get(program, program)})")
    return path


class Kernel:
    """A kernel and its modules: `image` is what QEMU boots, `modules` what the guest gets."""

    def __init__(self, folder):
        self.image = folder / "vmlinuz"
        self.modules = folder / "modules"
        self.version = (folder / "version").read_text().strip()


def apt(folder, own_lists, command, *args):
    """apt's output. With lists of our own, which need no root, or with the machine's."""
    options = ["-o", "APT::Sandbox::User=root"]
    if own_lists:
        state = folder / "apt"
        (state / "lists/partial").mkdir(parents=True, exist_ok=True)
        (state / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
        options += ["-o", f"Dir::State={state}", "-o", f"Dir::Cache={state}/cache",
                    "-o", "Dir::State::status=/var/lib/dpkg/status"]
    return subprocess.run([find(command), *options, *args], cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False).stdout


def download(folder):
    """The kernel's package, by the machine's lists of packages or else by fresh ones."""
    said = ""
    for own_lists in (False, True):
        if own_lists:
            said += apt(folder, own_lists, "apt-get", "-q", "update")
        depends = apt(folder, own_lists, "apt-cache", "depends", META)
        name = re.search(r"Depends: (linux-image-[^\s:]+)", depends)
        if not name:
            said += f"apt knows no package {META}\n"
            continue
        said += apt(folder, own_lists, "apt-get", "-q", "download", name.group(1))
        for package in folder.glob(name.group(1) + "_*.deb"):
            return package
    last = " / ".join(said.strip().splitlines()[-3:])
    raise Missing(f"the kernel's package ({META}) cannot be had: {last}")


def needed(root, version):
    """The files of MODULES and of what they need, as modprobe finds them."""
    files = []
    for module in MODULES:
        shown = subprocess.run([find("modprobe"), "-d", root, "-S", version, "--show-depends",
                                module], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, check=False)
        if shown.returncode != 0:
            raise Missing(f"kernel {version} has no module {module}: {shown.stdout.strip()}")
        files += re.findall(r"^insmod (\S+)", shown.stdout, re.M)
    return sorted(set(files))


def unpack(package, folder):
    """Leaves in the folder the kernel, its version and the modules that are needed."""
    full = folder / "full"
    shutil.rmtree(full, ignore_errors=True)
    if subprocess.run([find("dpkg-deb"), "-x", package, full], check=False).returncode != 0:
        package.unlink()  # cut short, or the disk is full
        raise Missing(f"{package.name} cannot be unpacked")
    if not (full / "lib").exists():  # since Debian 13
        (full / "usr/lib").rename(full / "lib")
    version = next((full / "lib/modules").iterdir()).name
    subprocess.run([find("depmod"), "-b", full, version], check=True)
    chosen = folder / "modules"
    shutil.rmtree(chosen, ignore_errors=True)
    tree = pathlib.Path("lib/modules", version)
    for path in needed(full, version):
        target = chosen / pathlib.Path(path).resolve().relative_to(full.resolve())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy2(full / tree / name, chosen / tree / name)
    subprocess.run([find("depmod"), "-b", chosen, version], check=True)
    shutil.copy2(full / f"boot/vmlinuz-{version}", folder / "vmlinuz")
    (folder / "version").write_text(version + "\n")
    shutil.rmtree(full)


def kernel(cache):
    """The kernel kept in this folder; the first to ask has it fetched, others wait."""
    folder = pathlib.Path(cache).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "unpacked"
    wanted = " ".join(MODULES) + "\n"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            kept = sorted(folder.glob("linux-image-*.deb"))
            unpack(kept[-1] if kept else download(folder), folder)
            shutil.rmtree(folder / "apt", ignore_errors=True)
            done.write_text(wanted)
    return Kernel(folder)
