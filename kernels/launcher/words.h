// Words that describe something, hashed and compared as bytes.
template <int kCapacity>
class Words {
 public:
  bool HasRoom(int64_t count) const { return count_ + count <= kCapacity; }

  // There must be room.
  void Push(uint64_t word) { words_[count_++] = word; }

  // False if there is no room.
  bool Add(uint64_t word) {
    if (!HasRoom(1)) return false;
    Push(word);
    return true;
  }

  bool operator==(const Words& other) const { return bytes() == other.bytes(); }

  struct Hash {
    size_t operator()(const Words& words) const { return std::hash<std::string_view>()(words.bytes()); }
  };

 private:
  std::string_view bytes() const { return {reinterpret_cast<const char*>(words_), count_ * sizeof(words_[0])}; }

  uint64_t words_[kCapacity];
  int count_ = 0;
};

// Two words: the dtype and rank of a tensor, and its device.
template <int kCapacity>
void PushKind(Words<kCapacity>& words, const DLTensor& t) {
  words.Push(t.dtype.code | t.dtype.bits << 8 | uint64_t{t.dtype.lanes} << 16 | static_cast<uint64_t>(t.ndim) << 32);
  words.Push(static_cast<uint64_t>(t.device.device_type) | static_cast<uint64_t>(t.device.device_id) << 32);
}
