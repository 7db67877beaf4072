// Checks tensors before anything is computed from their shapes and strides, so that products and sums stay far within
// 64 bits. Frameworks guarantee this for their tensors, but a tensor may also be described by hand.

// Nothing is ever mapped at the lowest addresses, but a view's offset may have moved a null pointer there.
constexpr uintptr_t kLowestAddress = 1 << 16;

inline bool HasAddress(const DLTensor& t) {
  return reinterpret_cast<uintptr_t>(t.data) >= kLowestAddress && t.byte_offset <= static_cast<uint64_t>(kMostBytes);
}

// Multiplies a product by a nonnegative factor (0 counts as 1), and returns whether it is at most kMostBytes.
inline bool IsBounded(int64_t factor, int64_t& product) {
  return !__builtin_mul_overflow(product, std::max<int64_t>(1, factor), &product) && product <= kMostBytes;
}

inline bool HasBoundedShape(const DLTensor& t) {
  int64_t bytes = std::max<int64_t>(1, ElementBytes(t.dtype));
  return std::all_of(t.shape, t.shape + t.ndim, [&](int64_t extent) { return IsBounded(extent, bytes); });
}

inline bool HasBoundedStrides(const DLTensor& t) {
  int64_t all = 0;
  for (int d = 0; t.strides != nullptr && d < t.ndim; ++d) {
    if (t.shape[d] < 2) continue;
    if (t.strides[d] < -kMostBytes || t.strides[d] > kMostBytes) return false;
    int64_t reach = std::max<int64_t>(1, ElementBytes(t.dtype));
    if (!IsBounded(t.shape[d], reach) || !IsBounded(std::abs(t.strides[d]), reach)) return false;
    all += reach;
    if (all > kMostBytes) return false;
  }
  return true;
}

inline void CheckBounds(const std::string& name, const DLTensor& t) {
  JITNORM_CHECK(t.ndim >= 0, ValueError) << name << ": has " << t.ndim << " dimensions";
  JITNORM_CHECK(std::all_of(t.shape, t.shape + t.ndim, [](int64_t extent) { return extent >= 0; }), ValueError)
      << name << ": shape is " << ShapeText(t.shape, t.ndim) << "; extents must not be negative";
  JITNORM_CHECK(HasBoundedShape(t), ValueError)
      << name << ": shape is " << ShapeText(t.shape, t.ndim) << " of dtype " << DtypeName(t.dtype) << "; at most "
      << kMostBytes << " bytes have addresses";
  JITNORM_CHECK(HasBoundedStrides(t), ValueError)
      << name << ": strides are " << ShapeText(t.strides, t.ndim) << " and shape is " << ShapeText(t.shape, t.ndim)
      << "; at most " << kMostBytes << " bytes have addresses";
}

// Costs two comparisons if all is well, because every call checks this.
inline void CheckMemory(const std::string& name, const DLTensor& t) {
  if (HasAddress(t) || IsEmpty(t)) return;
  JITNORM_THROW(ValueError) << name << ": has no memory (its data pointer is "
                            << (t.data == nullptr ? "null" : "no address") << "), but its shape is "
                            << ShapeText(t.shape, t.ndim) << "; pass a tensor with data";
}
