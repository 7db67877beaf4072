"""Packs wheel files reproducibly: the same content gives the same bytes on any machine."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
import zipfile
from collections.abc import Mapping
from io import BytesIO
from typing import NamedTuple

# The earliest time that a zip file can store, and the default; SOURCE_DATE_EPOCH overrides it.
_FIRST_SECOND = 315532800
_LAST_SECOND = 4354819198
_MODE = 0o100644
_PLAIN_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?")


class WheelName(NamedTuple):
    """The parts of a wheel's file name.

    Attributes:
        distribution: with underscores, such as ``jitnorm_kernels_sm90a``.
        version: the version of the distribution.
        tag: the compatibility tag, such as ``py3-none-any``.
    """

    distribution: str
    version: str
    tag: str

    @property
    def file(self) -> str:
        """The file name."""
        return f"{self.distribution}-{self.version}-{self.tag}.whl"

    @property
    def info(self) -> str:
        """The metadata folder."""
        return f"{self.distribution}-{self.version}.dist-info"


def pack(name: WheelName, files: Mapping[str, bytes], metadata: Mapping[str, bytes]) -> bytes:
    """Pack a wheel file.

    Args:
        name: its name; one tag only.
        files: the files to install, by path.
        metadata: files of the ``.dist-info`` folder; WHEEL and RECORD are added.

    Raises:
        ValueError: a part of the name or SOURCE_DATE_EPOCH is invalid.
    """
    for part in (name.distribution, name.version):
        if not _PLAIN_NAME.fullmatch(part):
            raise ValueError(f"wheel: {part!r} cannot be a part of its name; use letters, digits, dots, underscores")
    is_pure = "true" if name.tag.endswith("-any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: jitnorm\nRoot-Is-Purelib: {is_pure}\nTag: {name.tag}\n".encode()
    described = {f"{name.info}/{path}": data for path, data in {**metadata, "WHEEL": wheel}.items()}
    # Metadata comes last, as the specification recommends, and the record at the end.
    content = [*sorted(files.items()), *sorted(described.items())]
    record = f"{name.info}/RECORD"
    content.append((record, "".join([*(_record_line(*item) for item in content), f"{record},,\n"]).encode()))
    moment = _moment()
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in content:
            info = zipfile.ZipInfo(path, moment)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, _MODE << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _record_line(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def _moment() -> tuple[int, int, int, int, int, int]:
    text = os.environ.get("SOURCE_DATE_EPOCH") or str(_FIRST_SECOND)
    if not text.isdecimal():
        raise ValueError(f"SOURCE_DATE_EPOCH: is {text!r}; expected a number of seconds since 1970, or unset it")
    moment = time.gmtime(min(max(int(text), _FIRST_SECOND), _LAST_SECOND))
    return moment[0], moment[1], moment[2], moment[3], moment[4], moment[5]
