// Codes in FP8, one a byte.
JITNORM_INLINE UInt32 encode_lane_word(const float* y, float factor) { return encode_word(y, factor); }
