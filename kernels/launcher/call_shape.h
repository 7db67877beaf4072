// What of a call's tensors decides all its checks but those of overlap: devices, dtypes, shapes, strides, alignments.
class CallShape {
 public:
  // False if there is no room for the tensor: calls so large are checked anew each time.
  bool Add(const DLTensor& t) {
    if (count_ + 3 + 2 * t.ndim > kCapacity) return false;
    words_[count_++] = t.dtype.code | t.dtype.bits << 8 | int64_t{t.dtype.lanes} << 16 | int64_t{t.ndim} << 32;
    words_[count_++] = t.device.device_type | int64_t{t.device.device_id} << 32;
    words_[count_++] = reinterpret_cast<int64_t>(DataOf(t)) & 15;
    for (int d = 0; d < t.ndim; ++d) words_[count_++] = t.shape[d];
    for (int d = 0; d < t.ndim; ++d) words_[count_++] = StrideOf(t, d);
    return true;
  }

  bool operator==(const CallShape& other) const {
    return count_ == other.count_ && std::memcmp(words_, other.words_, count_ * sizeof(words_[0])) == 0;
  }

 private:
  static constexpr int kCapacity = 128;
  int64_t words_[kCapacity];
  int count_ = 0;
};
