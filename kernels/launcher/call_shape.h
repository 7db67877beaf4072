// The properties of a call's tensors that decide all checks except overlap: devices, dtypes, shapes, strides,
// alignments.
class CallShape {
 public:
  // False if there is no room for the tensor: such large calls are checked every time.
  bool Add(const DLTensor& t) {
    if (t.ndim < 0 || !words_.HasRoom(3 + 2 * int64_t{t.ndim})) return false;
    PushKind(words_, t);
    words_.Push(reinterpret_cast<uint64_t>(DataOf(t)) & 15);
    for (int d = 0; d < t.ndim; ++d) words_.Push(t.shape[d]);
    for (int d = 0; d < t.ndim; ++d) words_.Push(StrideOf(t, d));
    return true;
  }

  bool operator==(const CallShape& other) const { return words_ == other.words_; }

 private:
  Words<128> words_;
};

// Results of the checks that depend on shapes alone. Calls repeat: one like the last is answered at once.
template <typename Found>
class CallMemory {
 public:
  // The results for calls like the last one, if this is one, else null.
  const Found* Find(const CallShape& shape) const {
    const Entry* last = last_.load(std::memory_order_acquire);
    return last != nullptr && last->shape == shape ? &last->found : nullptr;
  }

  // Makes this shape the last one. Remembers at most kMost shapes.
  void Remember(const CallShape& shape, const Found& found) const {
    std::unique_lock lock(memories_lock, std::try_to_lock);
    if (!lock) return;
    auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.shape == shape; });
    if (known == entries_.end()) {
      if (entries_.size() == kMost) return;
      known = entries_.insert(entries_.end(), {shape, found});
    }
    last_.store(&*known, std::memory_order_release);
  }

 private:
  static constexpr size_t kMost = 64;
  struct Entry {
    CallShape shape;
    Found found;
  };
  mutable std::deque<Entry> entries_;  // never moved or removed, because calls use them without the lock
  mutable std::atomic<const Entry*> last_{nullptr};
};
