// OCP's rule: the exponent of amax less that of the largest code, biased.
JITNORM_INLINE UInt32 scale_exponent(float amax) {
  const UInt32 exponent = bits_of(amax) >> 23, of_code = kMaxExponent;
  return exponent > of_code ? exponent - of_code : 0u;
}
