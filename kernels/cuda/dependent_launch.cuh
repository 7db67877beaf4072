// Programmatic dependent launch: a kernel may begin while the one before still runs, and write what this one reads.
#pragma once

#include "../common/configuration.h"
#include "../common/intrinsics.h"

JITNORM_INLINE void wait_for_inputs() {
  if constexpr (kHasPdl) asm volatile("griddepcontrol.wait;" ::: "memory");
}

JITNORM_INLINE void launch_dependents() {
  if constexpr (kHasPdl) asm volatile("griddepcontrol.launch_dependents;");
}
