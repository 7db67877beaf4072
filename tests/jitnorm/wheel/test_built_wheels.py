"""What scripts/build_wheels builds: reproducible wheels that serve a machine without compilers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from jitnorm.kernels.target import Target
from wheels import ROOT, SPEC, TARGETS, build

import jitnorm
from jitnorm.commands import wheel as commands
from jitnorm.warm.plan import jobs_of
from jitnorm.warm.spec import load_entries

# Asks for the kernels of a specification, and runs some.
PROGRAM = """
import json, sys
import numpy as np
from ml_dtypes import bfloat16
import jitnorm
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.manager import load_or_build_kernel
from jitnorm.reference import quantize_fp4, rmsnorm_f32, round_to
from jitnorm.store import user_cache

def attempt(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"

served = 0
for text, target in json.loads(sys.argv[1]):
    load_or_build_kernel(KernelConfig.parse(text), Target(target), user_cache())
    served += 1
for config, target in json.loads(sys.argv[1]):
    if target == "cpu":
        jitnorm.get_kernel(config, target)
rng = np.random.default_rng(0)
for size in (64, 4096):
    x, w = rng.normal(size=(3, size)).astype(bfloat16), rng.normal(size=size).astype(bfloat16)
    normed = jitnorm.rmsnorm(x, w)
    assert normed.tobytes() == round_to(rmsnorm_f32(x, w), "bfloat16").tobytes()
    codes, scales = jitnorm.rmsnorm_fp4quant(x, w)
    expected = quantize_fp4(rmsnorm_f32(x, w), block_size=16, scale_format="e4m3", global_scale=None)
    assert codes.tobytes() == expected[0].tobytes() and scales.tobytes() == expected[1].tobytes()
print(json.dumps({
    "file": jitnorm.__file__,
    "served": served,
    "tiers": [tier.name for tier in user_cache().tiers],
    "stored": len(list(user_cache().store.entries())),
    "wrong shape": attempt(lambda: jitnorm.rmsnorm(x, w[:3])),
    "no driver": attempt(lambda: __import__("jitnorm.launcher").launcher.launcher().load_kernel("{", b"")),
    "not there": attempt(lambda: jitnorm.get_kernel("rmsnorm:hidden_size=96")),
    "other target": attempt(lambda: jitnorm.get_kernel("rmsnorm:hidden_size=64", "sm_120a")),
}))
"""


def wheel_of(dist: Path, start: str) -> Path:
    (found,) = (path for path in dist.glob("*.whl") if path.name.startswith(start) and "x86_64" in path.name)
    return found


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (path for path in archive.namelist() if path.endswith(f".dist-info/{name}"))
        return archive.read(path).decode()


def jobs(*targets: str) -> list[tuple[str, str]]:
    return [
        (str(job.config), str(job.target)) for job in jobs_of(load_entries(SPEC), [Target(name) for name in targets])
    ]


def wanted() -> list[tuple[str, str]]:
    """The targets of the wheels' kernels, and those of the same family."""
    return jobs(*TARGETS, "sm_100a", "sm_103a")


def ask(python: Path, folder: Path, mode: str) -> dict[str, Any]:
    """Run PROGRAM on a machine that has only Python and the wheels, and return its output."""
    environment = {"PATH": "", "HOME": str(folder), "JITNORM_JIT": mode}
    done = subprocess.run(
        [python, "-c", PROGRAM, json.dumps(wanted())],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("mode", ["deny", "auto"])
def test_a_machine_without_compilers_runs_what_the_wheels_bring(bare_python: Path, tmp_path: Path, mode: str) -> None:
    answer = ask(bare_python, tmp_path, mode)
    assert Path(answer["file"]).is_relative_to(bare_python.parents[1])
    assert answer["tiers"][:4] == [
        "wheel jitnorm",
        *(f"wheel jitnorm-kernels-{name}" for name in ("cpu", "sm100f", "sm90a")),
    ]
    assert answer["served"] == len(wanted()) >= 20
    assert answer["stored"] == 0
    if mode == "deny":
        # What was asked for in vain is noted; nothing else is written.
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["misses.jsonl"]
    assert answer["wrong shape"] == "ValueError: weight: shape is (3,), expected (4096,)"
    assert answer["no driver"].startswith("ValueError: recipe: is not JSON")
    missing = "KernelNotWarmError: rmsnorm:hidden_size=" if mode == "deny" else "ToolchainMissingError"
    assert answer["not there"].startswith(missing)
    assert answer["other target"].startswith(missing)


def test_a_home_that_cannot_be_written_is_enough(bare_python: Path, tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("no folder")
    assert ask(bare_python, tmp_path, "deny")["served"] == len(wanted())
    assert os.listdir(tmp_path) == [".cache"]


@pytest.mark.exhaustive
def test_the_same_kernels_give_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """The second build goes to another folder, with an empty cache, by one process instead of two.

    Each run shows it of compilers, in tests/jitnorm/toolchains/, and of archives, in test_wheel_archive.py.
    """
    caches = {"JITNORM_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    build(tmp_path / "dist", "--arch", "sm_90a,cpu", "--only-kernels", "-j", "1", **caches)
    again = sorted((tmp_path / "dist").glob("*.whl"))
    assert len(again) == 2
    for path in again:
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256((dist / path.name).read_bytes()).digest()


def test_wheels_are_called_after_target_version_and_platform(dist: Path) -> None:
    version = jitnorm.__version__
    assert {path.name for path in dist.iterdir()} == {
        f"jitnorm-{version}.tar.gz",
        f"jitnorm-{version}-py3-none-any.whl",
        f"jitnorm-{version}-py3-none-manylinux_2_28_x86_64.whl",
        f"jitnorm_kernels_cpu-{version}-py3-none-manylinux_2_28_x86_64.whl",
        f"jitnorm_kernels_sm100f-{version}-py3-none-manylinux_2_28_x86_64.whl",
        f"jitnorm_kernels_sm90a-{version}-py3-none-manylinux_2_28_x86_64.whl",
    }


def test_the_metadata_says_what_it_is_for(dist: Path) -> None:
    wheel = wheel_of(dist, "jitnorm_kernels_sm90a")
    fields = Parser().parsestr(metadata(wheel, "METADATA"))
    assert (fields["Name"], fields["Version"]) == ("jitnorm-kernels-sm90a", jitnorm.__version__)
    assert fields["Requires-Dist"] == f"jitnorm=={jitnorm.__version__}"
    assert "sm_90a" in fields["Summary"]
    assert metadata(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert metadata(wheel, "entry_points.txt") == "[jitnorm.kernels]\nsm90a = jitnorm_kernels_sm90a\n"
    assert "Tag: py3-none-manylinux_2_28_x86_64\n" in metadata(wheel, "WHEEL")


def test_the_source_distribution_and_the_wheel_have_every_source(dist: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "jitnorm", "kernels", "cache"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    sources = set(listed.stdout.split())
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert sources - packed == set()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= packed
    with zipfile.ZipFile(next(dist.glob("jitnorm-*-any.whl"))) as archive:
        installed = {
            name.replace("jitnorm/kernels/", "kernels/").replace("jitnorm/cache/", "cache/")
            for name in archive.namelist()
        }
    assert sources - installed == set()
    assert any(name.endswith("licenses/LICENSE") for name in installed)


def test_a_wheel_that_is_too_large_is_refused(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_BYTES", 1000)
    pure = next(dist.glob("*-any.whl"))
    with pytest.raises(RuntimeError, match=r"jitnorm-.*-any.whl would have [\d,]+ bytes; at most 1,000 are allowed"):
        commands.build_own_wheels(pure, tmp_path, machines=[], headers=[])
    assert list(tmp_path.iterdir()) == []


def test_only_a_pure_wheel_of_jitnorm_gets_a_launcher(dist: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"jitnorm_kernels_cpu.*; expected a wheel of jitnorm tagged py3-none-any"):
        commands.build_own_wheels(wheel_of(dist, "jitnorm_kernels_cpu"), tmp_path, machines=[], headers=[])


def test_a_large_wheel_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "LARGE_BYTES", 10)
    commands.show([commands.Built(tmp_path / "w.whl", 11, "00", 1, 20)], as_json=False)
    assert "warning: larger than 10 bytes" in capsys.readouterr().out


def test_what_was_written_can_be_read_by_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands.show([commands.Built(tmp_path / "w.whl", 11, "00", 1, 20)], as_json=True)
    (built,) = json.loads(capsys.readouterr().out)
    assert built == {"path": f"{tmp_path}/w.whl", "size": 11, "sha256": "00", "kernels": 1, "payload_bytes": 20}
