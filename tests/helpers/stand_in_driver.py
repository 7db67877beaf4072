"""A CUDA driver that stands in for NVIDIA's: it knows its devices' compute capabilities and tells what is launched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from jitnorm.toolchains.cxx import find_cxx

# The functions that do nothing but succeed.
_SILENT = (
    "cuInit",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuLibraryGetKernel",
    "cuMemsetD32Async",
)
# Those that would break the capture of a graph unless the thread is in the relaxed mode, outside of which they fail.
_RELAXED = (
    "cuLibraryLoadData",
    "cuFuncSetAttribute",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
)
_SOURCE = """
#include <cstdio>
extern "C" {
struct Attribute { int id, padding; unsigned value[16]; };
struct Launch { unsigned grid[3], block[3], shared_bytes; void* stream; const Attribute* attributes; unsigned count; };
static const int capabilities[][2] = {%s};
static int code;
static thread_local int mode;
static int relaxed() { return mode == 2 ? 0 : 900; }
int cuThreadExchangeStreamCaptureMode(int* other) { const int own = mode; mode = *other; *other = own; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuGetErrorString(int, const char** text) { *text = "none"; return 0; }
int cuDeviceGetCount(int* count) { *count = sizeof(capabilities) / sizeof(capabilities[0]); return 0; }
int cuDeviceGetName(char* name, int, int) { *name = 0; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != 75 && attribute != 76) return 1;
  *value = capabilities[device][attribute - 75];
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = (void*)&capabilities[device];
  return relaxed();
}
int cuCtxGetCurrent(void** context) { *context = 0; return 0; }
int cuKernelGetFunction(void** function, void*) { *function = &code; return relaxed(); }
// A line of the standard error: blocks, threads, bytes of shared memory, and the attributes as id:value.
int cuLaunchKernelEx(const Launch* launch, void*, void**, void**) {
  std::fprintf(stderr, "launch %%u %%u %%u", launch->grid[0], launch->block[0], launch->shared_bytes);
  for (unsigned i = 0; i < launch->count; ++i) {
    std::fprintf(stderr, " %%d:%%u", launch->attributes[i].id, launch->attributes[i].value[0]);
  }
  std::fputs("\\n", stderr);
  return 0;
}
int cuStreamIsCapturing(void*, int* status) { *status = 0; return 0; }
%s
}
"""


def build_stand_in_driver(folder: Path, capabilities: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Build it into a folder; returns the environment in which a process finds it before any other.

    Args:
        folder: where it is put.
        capabilities: of its devices.
    """
    devices = ", ".join(f"{{{major}, {minor}}}" for major, minor in capabilities)
    silent = "\n".join(f"int {name}() {{ return 0; }}" for name in _SILENT)
    silent += "\n".join(f"int {name}() {{ return relaxed(); }}" for name in _RELAXED)
    source = folder / "driver.cc"
    source.write_text(_SOURCE % (devices, silent))
    command = [str(find_cxx()), "-shared", "-fPIC", str(source), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True, timeout=60)
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))}
