"""An NFS server and two mounts of its export, which stand for two hosts, in namespaces that end with their process."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fire.trial import Unavailable

_NEEDED = ("ganesha.nfsd", "rpcbind", "rpc.statd", "gcc", "pkg-config")
_LIBRARIES = ("fuse3", "libnfs")
_START_SECONDS = 20.0
_NEWNS, _NEWUTS, _NEWNET = 0x20000, 0x4000000, 0x40000000
_REC_SLAVE = 0x4000 | 0x80000
_DETACH = 2
_PORTS = {"portmapper": 111, "server": 2049}
_CONFIGURATION = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = 2049; Enable_NLM = true; Enable_UDP = false; Enable_RQUOTA = false;
  mount_path_pseudo = true; }}
NFSV4 {{ Graceless = true; RecoveryRoot = "{folder}/recovery"; }}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3; Transports = TCP; }}
EXPORT {{ Export_Id = 1; Path = "{folder}/export"; Pseudo = "/export"; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
"""


@dataclass
class Host:
    """A host that has mounted the export.

    Attributes:
        name: its name, which its processes see.
        folder: where it has mounted the export.
    """

    name: str
    folder: Path

    def start(self, command: Sequence[object], **arguments: object) -> subprocess.Popen[str]:
        """Start a process of this host."""
        return subprocess.Popen(list(map(str, command)), text=True, preexec_fn=self._enter, **arguments)  # type: ignore[call-overload,no-any-return]

    def _enter(self) -> None:
        _unshare(_NEWUTS)
        socket.sethostname(self.name)


@dataclass
class Mounts:
    """The server, and the hosts that have mounted what it exports.

    Attributes:
        folder: where all lies; ``export`` in it is exported.
        hosts: two of them.
        seconds: for how long they trust names and attributes.
        locks: whether the locks of one hold on the other.
    """

    folder: Path
    seconds: float
    locks: bool
    hosts: tuple[Host, ...] = ()
    _server: subprocess.Popen[bytes] | None = None
    _clients: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def export(self) -> Path:
        """The exported folder, on the server."""
        return self.folder / "export"

    def start_server(self) -> None:
        """Start the server, and wait until it answers."""
        log, mark, configuration = self.folder / "server.log", self.folder / "server.pid", self.folder / "server.conf"
        configuration.write_text(_CONFIGURATION.format(folder=self.folder))
        command = ["ganesha.nfsd", "-F", "-f", configuration, "-L", log, "-p", mark]
        self._server = subprocess.Popen(command)
        _await(lambda: _listens("server"), "the server does not answer")

    def kill_server(self) -> None:
        """Kill the server; processes with pending requests wait until it is started again."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def signal_server(self, number: int) -> None:
        """Stop the server, or let it go on."""
        assert self._server is not None
        self._server.send_signal(number)

    def start(self) -> None:
        """Start the server and mount its export twice.

        Raises:
            Unavailable: the machine lacks something for that.
        """
        client = _compiled(self.folder / "nfs_client")
        for name in ("export", "recovery", "statd/sm", "statd/sm.bak"):
            (self.folder / name).mkdir(parents=True)
        _isolate()
        self._others.append(subprocess.Popen(["rpcbind", "-f"], stderr=subprocess.DEVNULL))
        _await(lambda: _listens("portmapper"), "the portmapper does not answer")
        self._others.append(subprocess.Popen(["rpc.statd", "-F", "-L", "-P", self.folder / "statd"]))
        self.start_server()
        self.hosts = tuple(Host(name, self.folder / name) for name in ("host-a", "host-b"))
        for host in self.hosts:
            host.folder.mkdir()
            mount = [client, "127.0.0.1", "/export", host.folder, self.seconds, int(self.locks)]
            self._clients[host.name] = host.start(mount)
        for host in self.hosts:
            _await(lambda host=host: os.path.ismount(host.folder), f"{host.name} has not mounted the export")  # type: ignore[misc]

    def lose(self, host: Host) -> None:
        """Make a host crash: the server does not hear from it again."""
        self._clients[host.name].kill()
        self._clients[host.name].wait()

    def settle(self) -> None:
        """Wait until files that were removed while they were open are gone."""
        _await(lambda: not list(self.export.rglob(".nfs*")), "files that nobody has open have hidden names")

    def stop(self) -> None:
        """End the mounts and the server."""
        # Clients first: whoever waits for them gets an error then, even if the server is stopped.
        for host in self.hosts:
            if host.name in self._clients:
                self.lose(host)
                ctypes.CDLL(None).umount2(os.fsencode(host.folder), _DETACH)
        self.kill_server()
        for process in self._others:
            process.kill()
            process.wait()


@contextlib.contextmanager
def mounted(folder: Path, *, seconds: float, locks: bool) -> Iterator[Mounts]:
    """An export mounted on two hosts; see `Mounts`. This process must have no threads, and sees nothing else after.

    Raises:
        Unavailable: the machine lacks something for that.
    """
    mounts = Mounts(folder, seconds, locks)
    try:
        mounts.start()
        yield mounts
    finally:
        mounts.stop()


def _compiled(client: Path) -> Path:
    """The client of NFS.

    Raises:
        Unavailable: it cannot be compiled, or not be used.
    """
    if os.geteuid() != 0:
        raise Unavailable("mounting needs root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("there is no /dev/fuse")
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"there is no {missing[0]}")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", *_LIBRARIES], capture_output=True, text=True)
    if flags.returncode != 0:
        raise Unavailable(f"one of the libraries {', '.join(_LIBRARIES)} is not installed")
    source = Path(__file__).with_name("nfs_client.c")
    subprocess.run(["gcc", "-O1", "-o", client, source, *flags.stdout.split()], check=True)
    return client


def _isolate() -> None:
    """Give this process a network, a name and mounts of its own.

    Raises:
        Unavailable: it must not.
    """
    try:
        _unshare(_NEWNS | _NEWUTS | _NEWNET)
    except OSError as error:
        raise Unavailable(f"namespaces cannot be made: {error}") from error
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/", None, _REC_SLAVE, None) or libc.mount(b"none", b"/run", b"tmpfs", 0, None):
        raise Unavailable(f"nothing can be mounted: {os.strerror(ctypes.get_errno())}")
    for name in ("ganesha", "rpcbind"):
        Path("/run", name).mkdir()
    with socket.socket() as any_socket:
        up = struct.pack("16sh", b"lo", 1)
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _listens(name: str) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", _PORTS[name])) == 0


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
