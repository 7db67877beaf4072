// The arithmetic of the target, the same functions on GPUs and on the host; and arrays between memory and registers.
#pragma once

#ifdef __CUDACC__
#include "../cuda/float_pair.cuh"
#else
#include "../cpu/intrinsics.h"
#endif

#ifdef __CUDACC__
// In accesses of `kAccessBytes`, to which the memory is aligned.
template <int kAccessBytes, typename T, int kCount>
JITNORM_INLINE void load_array(T (&to)[kCount], const T* from) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount * (int)sizeof(T); i += kAccessBytes) {
    load_bytes<kAccessBytes>((UInt8*)to + i, (const UInt8*)from + i);
  }
}

template <int kAccessBytes, typename T, int kCount>
JITNORM_INLINE void store_array(T* to, const T (&from)[kCount]) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount * (int)sizeof(T); i += kAccessBytes) {
    store_bytes<kAccessBytes>((UInt8*)to + i, (const UInt8*)from + i);
  }
}
#else
// At once: vectors would wait for what was loaded in pieces.
template <int kAccessBytes, typename T, int kCount>
JITNORM_INLINE void load_array(T (&to)[kCount], const T* from) {
  __builtin_memcpy(to, from, sizeof(to));
}

template <int kAccessBytes, typename T, int kCount>
JITNORM_INLINE void store_array(T* to, const T (&from)[kCount]) {
  __builtin_memcpy(to, from, sizeof(from));
}
#endif
