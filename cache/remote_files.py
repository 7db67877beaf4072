"""Accesses files below a URL through fsspec, with every read limited in bytes and every call in time.

The server is not trusted with this process's memory: bodies are read in pieces, never decompressed, and never beyond
the limit.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from jitnorm.cache.bounded import Deadline, too_late
from jitnorm.cache.errors import CacheError, CorruptEntryError
from jitnorm.cache.files import remove_tree
from jitnorm.cache.layout import MANIFEST, Layout
from jitnorm.cache.private import private_name, remove_stale

from jitnorm.forks import no_fork

WEB_PROTOCOLS = ("http", "https")
_PIECE_BYTES = 1 << 20
# Size limit of a web server's folder listing: room for 10,000 entries in each of 256.
_MAX_PAGE_BYTES = 1 << 20
_SHARD = re.compile("[0-9a-f]{2}")
_LINK = re.compile(rb"""href\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)


class RemotePlace:
    """A folder behind a URL. The constructor does not contact it.

    Args:
        url: the fsspec URL.
        name: the name to use in errors.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._opened: tuple[int, Any, str] | None = None

    def files(self, deadline: Deadline) -> RemoteFiles:
        """The files in the folder, for one operation.

        Opening may import a file system's package and connect to a server, so it takes time like any call.

        Raises:
            CacheError: the URL has an unknown protocol, or the package for it is not installed.
            Exception: whatever the file system raises.
        """
        opened = self._opened
        if opened is None or opened[0] != os.getpid():  # a forked child opens its own
            system, root = self._open(deadline)
            self._opened = opened = os.getpid(), system, root.rstrip("/")
        return RemoteFiles(opened[1], opened[2], deadline, self.forget)

    def forget(self) -> None:
        """Reopen the folder for the next operation, because the state of a failed connection is unknown."""
        self._opened = None

    def _open(self, deadline: Deadline) -> tuple[Any, str]:
        try:
            with no_fork():
                from fsspec.core import url_to_fs
                from fsspec.registry import get_filesystem_class

            protocol = self._url.partition("://")[0]
            for each in protocol.split("::"):
                _check_protocol(each, get_filesystem_class, self._name)
            # FTP alone blocks and has its own timeout, which ends its abandoned thread.
            options = {"timeout": deadline.rest()} if protocol == "ftp" else {}
            system, root = url_to_fs(self._url, skip_instance_cache=True, use_listings_cache=False, **options)
        except ImportError as error:
            raise CacheError(f"{self._name} cannot be opened: {error}") from error
        if protocol in WEB_PROTOCOLS:
            system.client_kwargs = _plain_bodies(system.client_kwargs)
        return system, root


class RemoteFiles:
    """The files of a `RemotePlace`, until a deadline.

    Reads of file systems that are asynchronous in fsspec, including S3 and the web, are cancelled at the deadline.

    Args:
        system: the file system.
        root: the folder in the file system.
        deadline: the time by which the operation must end.
        forget: called after a failed call.
    """

    def __init__(self, system: Any, root: str, deadline: Deadline, forget: Callable[[], None]) -> None:
        from fsspec.asyn import AsyncFileSystem

        self._system, self._root, self._deadline, self._forget = system, root, deadline, forget
        self._is_async = isinstance(system, AsyncFileSystem)
        self._protocols = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)

    @property
    def _is_web(self) -> bool:
        return not self._protocols.isdisjoint(WEB_PROTOCOLS)

    def read(self, path: str, limit: int) -> bytes | None:
        """Read a file; None if it does not exist.

        Raises:
            CorruptEntryError: it has more than ``limit`` bytes; no more were read.
        """
        place, sink = f"{self._root}/{path}", _Sink(path, limit, self._deadline)
        try:
            if self._is_web:
                self._call("get_file", place, sink, chunk_size=_PIECE_BYTES)
            elif self._is_async:
                self._run(lambda: _stream(self._system, place, sink, limit))
            else:
                self._call("info", place)  # normalizes the error for a missing file
                self._call("get_file", place, sink)
        except FileNotFoundError:
            return None
        return sink.getvalue()

    def exists(self, path: str) -> bool:
        """Whether a file exists."""
        try:
            self._call("info", f"{self._root}/{path}")
        except FileNotFoundError:
            return False
        return True

    def modified(self, path: str) -> float:
        """The modification time of a file in seconds since the epoch; 0 if the file system does not provide it."""
        if self._is_web:
            return 0.0
        try:
            found = self._call("info", f"{self._root}/{path}")
        except FileNotFoundError:
            return 0.0
        moment = found.get("LastModified", found.get("mtime"))
        if isinstance(moment, datetime):
            return moment.timestamp()
        return float(moment) if isinstance(moment, (int, float)) else 0.0

    def manifests(self) -> Iterator[str]:
        """Yield the paths of all manifests; for web servers, of all listed folders that could have one.

        Raises:
            FileNotFoundError: the web server lists nothing, which most do not.
        """
        if self._is_web:
            for shard in filter(_SHARD.fullmatch, self._links("v1")):
                yield from (f"{self._root}/v1/{shard}/{name}/{MANIFEST}" for name in self._links(f"v1/{shard}"))
            return
        # By default, an unreadable folder would be skipped and look empty.
        strictly = {"on_error": "raise"} if "file" in self._protocols else {}
        try:
            found = self._call("find", f"{self._root}/v1", **strictly)
        except FileNotFoundError:
            return
        yield from (path for path in found if path.endswith(f"/{MANIFEST}"))

    def write(self, path: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        place = f"{self._root}/{path}"
        # Object stores show only complete objects; in a folder this takes a rename.
        if "file" not in self._protocols:
            self._call("pipe_file", place, data)
            return
        parent = Layout(Path(self._root)).private
        for folder in (place.rpartition("/")[0], str(parent)):
            self._call("makedirs", folder, exist_ok=True)
        remove_stale(parent)
        private = private_name(parent)
        try:
            self._call("pipe_file", str(private), data)
            self._call("mv", str(private), place)
        finally:
            remove_tree(private)

    def _links(self, folder: str) -> list[str]:
        """The last path components of the links in a folder listing."""
        try:
            page = self.read(f"{folder}/", _MAX_PAGE_BYTES)
        except CorruptEntryError as error:  # the server is at fault here, not an entry
            raise ValueError(f"the web server's list of a folder is too long: {error}") from error
        if page is None:
            raise FileNotFoundError(f"the web server has no list of the folder {folder}")
        links = (link.decode("utf-8", "replace").rstrip("/").rpartition("/")[2] for link in _LINK.findall(page))
        return list(dict.fromkeys(links))

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the file system."""
        if self._is_async:
            return self._run(lambda: getattr(self._system, f"_{method}")(*arguments, **options))
        self._deadline.rest()
        try:
            return getattr(self._system, method)(*arguments, **options)
        except FileNotFoundError:
            raise
        except BaseException:
            self._forget()
            raise

    def _run(self, begin: Callable[[], Any]) -> Any:
        """Run a coroutine of the file system, and cancel it at the deadline."""
        from fsspec.asyn import FSTimeoutError, sync

        try:
            return sync(self._system.loop, begin, timeout=self._deadline.rest())
        except FileNotFoundError:
            raise
        except FSTimeoutError:
            self._forget()
            raise too_late(self._deadline.seconds) from None
        except BaseException:
            self._forget()
            raise


class _Sink(io.BytesIO):
    """A buffer to read a file into, which raises beyond the limit or after the deadline."""

    def __init__(self, path: str, limit: int, deadline: Deadline) -> None:
        super().__init__()
        self._path, self._limit, self._deadline = path, limit, deadline

    def write(self, data: Any) -> int:
        self._deadline.rest()
        if self.tell() + len(data) > self._limit:
            raise CorruptEntryError(f"{self._path} has more than {self._limit} bytes")
        return super().write(data)


async def _stream(system: Any, place: str, sink: _Sink, limit: int) -> None:
    """Read a file of an object store in pieces."""
    try:
        file = await system.open_async(place, "rb")
    except NotImplementedError:
        # One byte above the limit suffices to detect that there is too much.
        sink.write(await system._cat_file(place, start=0, end=limit + 1))
        return
    try:
        while piece := await file.read(_PIECE_BYTES):
            sink.write(piece)
    finally:
        # Closing fsspec's file would leave the connection, and its pending data, to the garbage collector.
        body = getattr(file, "r", None)
        if body is not None:
            body.close()


def _check_protocol(protocol: str, find_class: Callable[[str], object], name: str) -> None:
    try:
        find_class(protocol)
    except ValueError as error:
        raise CacheError(f"{name} cannot be opened: fsspec knows no protocol {protocol!r}") from error


def _plain_bodies(client_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Options of aiohttp's client that disable decompression, because a small body can decompress to any size."""
    headers = {**client_kwargs.get("headers", {}), "Accept-Encoding": "identity"}
    return {**client_kwargs, "headers": headers, "auto_decompress": False, "raise_for_status": _refuse_encoded}


async def _refuse_encoded(response: Any) -> None:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        response.close()
        raise ValueError(f"the web server sends files encoded ({encoding!r}); configure it to send them as they are")
