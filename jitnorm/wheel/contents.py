"""Lays out artifacts as the files of a package, in the layout of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from jitnorm.cache import Artifact
from jitnorm.cache.aliases import encode_alias, source_key_of
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.layout import MANIFEST, PAYLOAD, Layout


def cache_files(folder: str, artifacts: Mapping[str, Artifact]) -> dict[str, bytes]:
    """The files of a cache folder with the given artifacts, and the aliases of their sources.

    Args:
        folder: the folder's path in the package, such as ``jitnorm_kernels_sm90a/cache``.
        artifacts: by key.

    Example:
        >>> sorted(path.split("/")[-1] for path in cache_files("cache", {"0" * 64: Artifact(b"code", {})}))
        ['manifest.json', 'payload']
    """
    root = Path("/")  # layouts are absolute
    layout, files, aliases = Layout(root), {}, dict[str, list[str]]()
    for key, artifact in sorted(artifacts.items()):
        files[layout.entry(key) / PAYLOAD] = artifact.payload
        files[layout.entry(key) / MANIFEST] = encode_manifest(key, artifact)
        if source_key := source_key_of(artifact):
            aliases.setdefault(source_key, []).append(key)
    files |= {layout.alias(source_key): encode_alias(tuple(keys)) for source_key, keys in aliases.items()}
    return {str(PurePosixPath(folder) / path.relative_to(root)): data for path, data in files.items()}
