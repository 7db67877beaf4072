// E4M3 by the instruction (Ada and later): round to nearest even, saturating at 448, NaN to 0x7f.
JITNORM_INLINE UInt32 encode_e4m3(float v) {
  UInt16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return (UInt32)pair & 0xffu;
}
