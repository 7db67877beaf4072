"""A CUDA driver that stands in for NVIDIA's: it knows its devices' compute capabilities and tells what is launched.

It keeps the contexts of each thread, and refuses launches in a wrong one, or on a stream of another device: a stream's
number is its device's, from 1, times 1000, plus any below. Functions fail as STAND_IN_FAILS says at the moment of the
call, "cuInit:100" or "*:999"; with STAND_IN_COUNTS set, launches are counted, by `stand_in_launches`, and not told.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from jitnorm.toolchains.cxx import find_cxx

# The functions that do nothing but succeed.
_SILENT = (
    "cuInit",
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
# All that the launcher checks the results of.
CHECKED = (
    "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLibraryLoadData",
    "cuLibraryGetKernel", "cuKernelGetFunction", "cuFuncSetAttribute", "cuLaunchKernelEx",
)  # fmt: skip
_SOURCE = """
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
extern "C" {
struct Attribute { int id, padding; unsigned value[16]; };
struct Launch { unsigned grid[3], block[3], shared_bytes; void* stream; const Attribute* attributes; unsigned count; };
static const int capabilities[][2] = {%s};
static const int devices = sizeof(capabilities) / sizeof(capabilities[0]);
static int code;
static thread_local int mode;
static thread_local std::vector<const void*> contexts;
static std::atomic<long> launches[devices];
// The error that a function must give now.
static int fault(const char* name) {
  const char* text = std::getenv("STAND_IN_FAILS");
  const char* colon = text ? std::strchr(text, ':') : nullptr;
  if (!colon) return 0;
  const size_t size = colon - text;
  const bool meant = *text == '*' || (std::strlen(name) == size && std::strncmp(text, name, size) == 0);
  return meant ? std::atoi(colon + 1) : 0;
}
static int fault_or_mode(const char* name) {
  const int error = fault(name);
  return error ? error : mode == 2 ? 0 : 900;
}
#define ENTER if (const int error = fault(__func__)) return error;
#define ENTER_RELAXED if (const int error = fault_or_mode(__func__)) return error;
long stand_in_launches(int device) { return launches[device]; }
int stand_in_depth() { return contexts.size(); }
int stand_in_mode() { return mode; }
int cuThreadExchangeStreamCaptureMode(int* other) { const int own = mode; mode = *other; *other = own; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuGetErrorString(int, const char** text) { *text = "none"; return 0; }
int cuDeviceGetCount(int* count) { *count = devices; return 0; }
int cuDeviceGetName(char* name, int, int) { *name = 0; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER
  if (attribute != 75 && attribute != 76) return 1;
  *value = capabilities[device][attribute - 75];
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER_RELAXED
  *context = (void*)&capabilities[device];
  return 0;
}
int cuCtxGetCurrent(const void** context) { ENTER *context = contexts.empty() ? 0 : contexts.back(); return 0; }
int cuCtxPushCurrent_v2(void* context) { ENTER contexts.push_back(context); return 0; }
int cuCtxPopCurrent_v2(const void** context) {
  ENTER
  if (contexts.empty()) return 201;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
int cuKernelGetFunction(void** function, void*) { ENTER_RELAXED *function = &code; return 0; }
// A line of the standard error: blocks, threads, bytes of shared memory, and the attributes as id:value.
int cuLaunchKernelEx(const Launch* launch, void*, void**, void**) {
  ENTER
  if (contexts.empty()) return 201;
  const int device = (const int(*)[2])contexts.back() - capabilities;
  if (launch->stream && (intptr_t)launch->stream / 1000 != device + 1) return 400;
  ++launches[device];
  if (std::getenv("STAND_IN_COUNTS")) return 0;
  std::fprintf(stderr, "launch %%u %%u %%u", launch->grid[0], launch->block[0], launch->shared_bytes);
  for (unsigned i = 0; i < launch->count; ++i) {
    std::fprintf(stderr, " %%d:%%u", launch->attributes[i].id, launch->attributes[i].value[0]);
  }
  std::fputs("\\n", stderr);
  return 0;
}
int cuStreamIsCapturing(void*, int* status) { ENTER *status = 0; return contexts.empty() ? 201 : 0; }
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
    silent = "\n".join(f"int {name}() {{ ENTER return 0; }}" for name in _SILENT)
    silent += "\n".join(f"int {name}() {{ ENTER_RELAXED return 0; }}" for name in _RELAXED)
    source = folder / "driver.cc"
    source.write_text(_SOURCE % (devices, silent))
    command = [str(find_cxx()), "-shared", "-fPIC", str(source), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True, timeout=60)
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))}
