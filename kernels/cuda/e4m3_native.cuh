// E4M3 by the instruction (Ada and later): round to nearest even, saturating at 448, NaN to 0x7f.
JITNORM_INLINE UInt32 encode_e4m3x2(float low, float high) {
  UInt16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

JITNORM_INLINE UInt32 encode_e4m3(float v) { return encode_e4m3x2(v, 0.0f); }
