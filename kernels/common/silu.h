// SiLU with an exponential of its own, made of additions and multiply-adds, so that its bits agree on every target.

// e^x: 2^n times the Taylor polynomial of e^r, where x = n ln 2 + r and |r| is at most half of ln 2.
JITNORM_INLINE float exp_rn(float x) {
  const float clamped = x > 104.0f ? 104.0f : x < -104.0f ? -104.0f : x;
  // Added to 1.5 * 2^23, a float is rounded to a whole number, which its lowest bits hold.
  const float shifted = fma_rn(clamped, 0x1.715476p+0f, 0x1.8p23f);
  const float n = add_rn(shifted, -0x1.8p23f);
  const float r = fma_rn(n, -0x1.7f7d1cp-20f, fma_rn(n, -0x1.62e4p-1f, clamped));
  float p = 1.0f / 5040.0f;
  p = fma_rn(p, r, 1.0f / 720.0f);
  p = fma_rn(p, r, 1.0f / 120.0f);
  p = fma_rn(p, r, 1.0f / 24.0f);
  p = fma_rn(p, r, 1.0f / 6.0f);
  p = fma_rn(p, r, 0.5f);
  p = fma_rn(p, r, 1.0f);
  p = fma_rn(p, r, 1.0f);
  // In two factors, so that results too small for a normal float or too large are rounded once, by the last product.
  const int exponent = (int)(bits_of(shifted) - 0x4b400000u);
  const int half = exponent >> 1;
  const float scaled = mul_rn(p, float_of((UInt32)(half + 127) << 23));
  return mul_rn(scaled, float_of((UInt32)(exponent - half + 127) << 23));
}

JITNORM_INLINE float silu(float x) { return div_rn(x, add_rn(1.0f, exp_rn(-x))); }

// Where the gate of output `i` stands in a row of gates and values that take turns, kGateColumns at a time.
JITNORM_INLINE int gate_position(int i) { return i + i / kGateColumns * kGateColumns; }
