// As many floats as an instruction of the target adds or multiplies. Functions of `Floats` take one or several.
#pragma once

#include "configuration.h"
#include "intrinsics.h"

#ifdef JITNORM_PACKS_FLOATS
typedef FloatPair Packed;

JITNORM_INLINE Packed packed_at(const float* values) { return {values[0], values[1]}; }

JITNORM_INLINE void unpack(Packed packed, float* values) {
  values[0] = packed.first;
  values[1] = packed.second;
}
#else
typedef float Packed;

JITNORM_INLINE Packed packed_at(const float* values) { return *values; }

JITNORM_INLINE void unpack(Packed packed, float* values) { *values = packed; }
#endif
constexpr int kPacked = sizeof(Packed) / sizeof(float);

// function(a, others...), for each float of pairs.
template <typename Function, typename... Others>
JITNORM_INLINE float of_each(Function function, float a, Others... others) {
  return function(a, others...);
}

// The products of values with a factor.
template <int kCount>
JITNORM_INLINE void multiply(float (&products)[kCount], const float* values, float factor) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; i += kPacked) unpack(mul_rn(packed_at(values + i), Packed(factor)), products + i);
}
