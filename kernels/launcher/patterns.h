// Remembers what the outputs of calls are allocated like, by the properties of the tensors that decide this.
class Patterns {
 public:
  using Likeness = Words<48>;

  // Adds a tensor to a description. False if there is no room.
  static bool Describe(const DLTensor& t, Likeness& likeness) {
    if (!likeness.HasRoom(2 + t.ndim)) return false;
    PushKind(likeness, t);
    for (int d = 0; d < t.ndim; ++d) likeness.Push(t.shape[d]);
    return true;
  }

  // The tuple that was remembered, if any.
  Reference Find(const Likeness& likeness) const {
    const Entry* last = last_.load(std::memory_order_acquire);  // saves the hash and the lock
    if (last != nullptr && last->first == likeness) return Reference::To(last->second);
    std::shared_lock lock(tables_lock);
    const auto known = entries_.find(likeness);
    if (known == entries_.end()) return {};
    last_.store(&*known, std::memory_order_release);
    return Reference::To(known->second);
  }

  void Remember(const Likeness& likeness, PyObject* patterns) const {
    std::unique_lock lock(tables_lock);
    if (entries_.size() < kMost && entries_.try_emplace(likeness, patterns).second) Py_IncRef(patterns);
  }

 private:
  // Enough for an engine, whose calls have few shapes; further ones take 1 us longer.
  static constexpr size_t kMost = 1024;
  using Entry = std::pair<const Likeness, PyObject*>;
  // Entries are never moved or removed.
  mutable std::unordered_map<Likeness, PyObject*, Likeness::Hash> entries_;
  mutable std::atomic<const Entry*> last_{nullptr};
};
