// The exponent of the least normal power of two that is not below amax / (largest code), biased.
JITNORM_INLINE UInt32 scale_exponent(float amax) {
  const UInt32 bits = bits_of(mul_rn(amax, kReciprocalMax));
  return (bits >> 23) + ((bits & 0x7fffffu) != 0);
}
