// E5M2 by the instruction (Ada and later): round to nearest even, saturating at 57344, NaN to 0x7f.
JITNORM_INLINE UInt32 encode_e5m2x2(float low, float high) {
  UInt16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
