// Finds the function that makes a call by the call's options, 0.5 us faster than a dict with tuples as keys.
class Known {
 public:
  // A call has `passed` arguments for the function that makes it, then options. Of the arguments at `kinds` it matters
  // whether they are None, a certain text, or anything else.
  // `objects`: None, str, and a function that takes the call and returns a table of functions, the key of the one
  // that makes the call, and what must be kept: texts and options, so that no other object gets their addresses.
  Known(intptr_t passed, std::vector<int64_t> kinds, PyObject* objects) : passed_(passed), kinds_(std::move(kinds)) {
    Py_IncRef(objects);
    int place = 0;
    for (PyObject** field : {&none_, &text_, &find_}) *field = PyTuple_GetItem(objects, place++);
  }

  PyObject* Run(PyObject* const* given, intptr_t count) const {
    Key key;
    const Reference found = Describe(given, count, key) ? FindOrLearn(key, given, count) : CallOf(find_, given, count);
    if (!found) return nullptr;
    const Reference make(PyObject_GetItem(PyTuple_GetItem(found.get(), 0), PyTuple_GetItem(found.get(), 1)));
    return make ? CallOf(make.get(), given, passed_).Release() : nullptr;
  }

 private:
  // Compared as bytes.
  struct Key {
    static constexpr int kCapacity = 32;
    uint64_t words[kCapacity];
    int count = 0;

    Key() {}  // leaves what is read only after it was written
    std::string_view bytes() const { return {reinterpret_cast<const char*>(words), count * sizeof(words[0])}; }
    bool operator==(const Key& other) const { return bytes() == other.bytes(); }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return std::hash<std::string_view>()(key.bytes()); }
  };

  // Arguments are described by two bits each, and texts also by their addresses, as options are. True is thus not 1.
  bool Describe(PyObject* const* given, intptr_t count, Key& key) const {
    if (count < passed_ || count - passed_ + kinds_.size() >= Key::kCapacity) return false;
    uint64_t& kinds = key.words[key.count++];
    kinds = 0;
    for (const int64_t place : kinds_) {
      const bool is_text = given[place] != none_ && IsOf(given[place], text_);
      if (is_text) key.words[key.count++] = AddressOf(given[place]);
      kinds = kinds << 2 | (given[place] == none_ ? 0 : is_text ? 2 : 1);
    }
    for (intptr_t i = passed_; i < count; ++i) key.words[key.count++] = AddressOf(given[i]);
    return true;
  }

  static uint64_t AddressOf(PyObject* object) { return reinterpret_cast<uint64_t>(object); }

  // Options may be created for each call, so only the last ones are kept.
  Reference FindOrLearn(const Key& key, PyObject* const* given, intptr_t count) const {
    {
      std::shared_lock lock(tables_lock);
      const auto known = known_.find(key);
      if (known != known_.end()) return Reference::To(known->second.get());
    }
    Reference found = CallOf(find_, given, count);
    if (!found) return found;
    Table forgotten;  // destroyed without the lock, because Python then runs
    std::unique_lock lock(tables_lock);
    if (known_.size() >= kMost) known_.swap(forgotten);
    known_.try_emplace(key, Reference::To(found.get()));
    return found;
  }

  using Table = std::unordered_map<Key, Reference, KeyHash>;
  static constexpr size_t kMost = 1024;
  intptr_t passed_;
  std::vector<int64_t> kinds_;
  PyObject *none_, *text_, *find_;
  mutable Table known_;
};

// The address of a function of Python for the parameters of `Known`, the last by its address.
inline int64_t MakeKnown(int64_t passed, const ffi::Array<int64_t>& kinds, int64_t objects) {
  const WithPython held;
  return FunctionOf(
      new Known(passed, std::vector<int64_t>(kinds.begin(), kinds.end()), reinterpret_cast<PyObject*>(objects)));
}
