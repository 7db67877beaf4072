// The arithmetic of the target: the same functions on GPUs and on the host.
#pragma once

#ifdef __CUDACC__
#include "../cuda/intrinsics.cuh"
#else
#include "../cpu/intrinsics.h"
#endif
