// A dispatcher finds the kernel of a call by the tensors' metadata, with one hash lookup. A new combination is a miss,
// reported as facts, from which the caller gets a kernel and teaches it to the dispatcher.
class Dispatcher {
 public:
  explicit Dispatcher(const ffi::String& text) {
    const auto signature = ValueOf<JsonObject>(ParseJson(text), "signature");
    hidden_size_ = NumberField(signature, "hidden_size", 1, kMostBytes);
    columns_ = NumberField(signature, "columns", 1, kMostBytes);
    for (const ffi::Any& json : Field<JsonArray>(signature, "arguments")) {
      const auto object = ValueOf<JsonObject>(json, "signature");
      Role role{Field<ffi::String>(object, "name"), Field<ffi::String>(object, "kind") == "tensor"};
      if (role.is_tensor) {
        role.row_set = ReadRowSet(object);
        role.is_strided = Field<bool>(object, "strided");
        role.chunk_bytes = Field<int64_t>(object, "chunk_bytes");
      }
      roles_.push_back(std::move(role));
    }
    JITNORM_CHECK(roles_.size() <= kMaxArguments, ValueError) << "signature: has too many arguments";
  }

  // Runs the call; on a miss, writes nothing and returns its facts.
  ffi::Any Call(ffi::PackedArgs args) const {
    const ffi::Function* kernel = KernelOf(args);
    if (kernel == nullptr) return Facts(args);
    ffi::Any nothing;
    kernel->CallPacked(args, &nothing);
    return nothing;
  }

  // The kernel of a call; null on a miss.
  const ffi::Function* KernelOf(ffi::PackedArgs args) const {
    CallShape shape;
    const bool fits = ShapeOf(args, shape);
    const ffi::Function* const* known = fits ? known_.Find(shape) : nullptr;
    if (known != nullptr) return *known;
    const ffi::Function* kernel = Find(KeyOf(args));
    if (kernel != nullptr && fits) known_.Remember(shape, kernel);
    return kernel;
  }

  // Returns the facts of a call without running it.
  ffi::Any Facts(ffi::PackedArgs args) const { return FactsOf(KeyOf(args), args); }

  // Makes calls like this one run `kernel`, unless another thread was first to teach one.
  void Learn(ffi::Function kernel, ffi::PackedArgs args) {
    const Key key = KeyOf(args);
    std::unique_lock lock(tables_lock);
    kernels_.try_emplace(key, std::move(kernel));
  }

 private:
  struct Role {
    std::string name;
    bool is_tensor;
    int row_set = 0;
    bool is_strided = false;
    int64_t chunk_bytes = 0;
  };

  // Hashed and compared as bytes, so it has no padding.
  struct Key {
    DLDevice device;
    int64_t columns;  // of the first tensor
    int row_dims;
    int16_t vector_bytes, row_class;
    uint32_t dtypes[kMaxArguments];  // code, bits and lanes; 0 for non-tensors

    bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof(Key)) == 0; }
  };

  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&key), sizeof(Key)});
    }
  };

  // False if the number of arguments is wrong, an argument is not the tensor it must be, or a tensor is too large to
  // remember.
  bool ShapeOf(ffi::PackedArgs args, CallShape& shape) const {
    const int count = static_cast<int>(roles_.size());
    if (args.size() != count && args.size() != count + 1) return false;
    for (int i = 0; i < count; ++i) {
      if (!roles_[i].is_tensor) continue;
      const std::optional<DLTensor*> tensor = args[i].try_cast<DLTensor*>();
      if (!tensor || !shape.Add(**tensor)) return false;
    }
    return true;
  }

  Key KeyOf(ffi::PackedArgs args) const {
    const int count = static_cast<int>(roles_.size());
    if (args.size() != count && args.size() != count + 1) {
      JITNORM_THROW(TypeError) << "expected " << count << " arguments and, optionally, a stream; got " << args.size();
    }
    Key key{};
    const DLTensor* strided[kMaxRowSets][kMaxArguments];
    int strided_count[kMaxRowSets] = {};
    int64_t vector_bytes = 16;
    for (size_t i = 0; i < roles_.size(); ++i) {
      std::optional<DLTensor*> tensor = args[static_cast<int>(i)].try_cast<DLTensor*>();
      if (i == 0 && !tensor) {
        JITNORM_THROW(TypeError) << roles_[0].name << ": is " << KindOf(args[0]) << "; expected a tensor";
      }
      if (!tensor || !roles_[i].is_tensor) continue;
      const DLTensor& t = **tensor;
      CheckBounds(roles_[i].name, t);
      key.dtypes[i] = t.dtype.code | t.dtype.bits << 8 | static_cast<uint32_t>(t.dtype.lanes) << 16 | kPresent;
      if (roles_[i].chunk_bytes > 0) vector_bytes = std::min(vector_bytes, WidestAccess(t, roles_[i].chunk_bytes));
      const int set = roles_[i].row_set;
      if (roles_[i].is_strided && HasLeadingShape(t, strided[set], strided_count[set])) {
        strided[set][strided_count[set]++] = &t;
      }
      if (i == 0) {
        key.device = t.device;
        key.columns = t.ndim > 0 ? t.shape[t.ndim - 1] : 0;
      }
    }
    key.vector_bytes = static_cast<int16_t>(vector_bytes);
    key.row_dims = 1;
    int64_t all_rows = 0;
    for (int set = 0; set < kMaxRowSets; ++set) {
      if (strided_count[set] == 0) continue;
      MergedRows rows;
      MergeRows(strided[set], strided_count[set], rows);
      key.row_dims = std::max(key.row_dims, rows.dims);
      int64_t rows_of_set = rows.dims <= kMaxRowDims;
      for (int d = 0; d < rows.dims && d < kMaxRowDims; ++d) rows_of_set *= rows.extents[d];
      all_rows += rows_of_set;
    }
    key.row_class = ClassOf(all_rows, key.columns * hidden_size_ / columns_);
    return key;
  }

  // The same as class_of in kernels/row_classes.py.
  static RowClass ClassOf(int64_t rows, int64_t hidden_size) {
    const int64_t elements = rows * hidden_size;
    if (hidden_size <= kSmallRow) {
      return elements <= kFewSmallElements ? kFew : elements < kManySmallElements ? kUsual : kMany;
    }
    const int64_t many_rows = hidden_size <= kShorterRow ? kManyShorterRows : kManyRows;
    if (elements >= kManyElements || (hidden_size <= kShortRow && rows >= many_rows)) return kMany;
    if (rows <= kFewRows) return rows <= kFewestRows && hidden_size > kLongRow ? kFewest : kFew;
    return rows <= kSomeRows ? kSome : rows <= kSeveralRows ? kSeveral : kUsual;
  }

  // Tensors whose leading shape differs from the first's are left to the checker, which rejects them.
  static bool HasLeadingShape(const DLTensor& t, const DLTensor* const* strided, int count) {
    return t.ndim > 0 &&
           (count == 0 || (t.ndim == strided[0]->ndim && std::equal(t.shape, t.shape + t.ndim - 1, strided[0]->shape)));
  }

  // Bytes per access of the input for which the proportional accesses of this tensor are aligned.
  static int64_t WidestAccess(const DLTensor& t, int64_t chunk_bytes) {
    if (IsEmpty(t)) return 16;
    const int64_t alignment = RowAlignment(t), element = ElementBytes(t.dtype);
    int64_t vector_bytes = 16;
    while (vector_bytes > 1 && std::max(element, chunk_bytes * vector_bytes / 16) > alignment) vector_bytes /= 2;
    return vector_bytes;
  }

  const ffi::Function* Find(const Key& key) const {
    std::shared_lock lock(tables_lock);
    auto it = kernels_.find(key);
    return it == kernels_.end() ? nullptr : &it->second;
  }

  // dtypes ("" for non-tensors), columns of the first tensor, row dims, vector bytes, the class of its rows, whether on
  // a CUDA device, its ordinal, whether the stream is capturing.
  ffi::Any FactsOf(const Key& key, ffi::PackedArgs args) const {
    const bool is_cuda = IsCuda(key.device);
    JITNORM_CHECK(is_cuda || IsHost(key.device), ValueError)
        << roles_[0].name << ": is on " << DeviceName(key.device) << "; allowed are cpu and cuda";
    ffi::Array<ffi::String> dtypes;
    for (size_t i = 0; i < roles_.size(); ++i) {
      const uint32_t packed = key.dtypes[i];
      const DLDataType dtype{static_cast<uint8_t>(packed), static_cast<uint8_t>(packed >> 8),
                             static_cast<uint16_t>((packed & ~kPresent) >> 16)};
      dtypes.push_back(packed ? DtypeName(dtype) : "");
    }
    const std::optional<void*> stream = GivenStream(args, roles_.size());
    const int device = key.device.device_id;
    const bool is_capturing = is_cuda && IsCapturing(device, stream ? *stream : TVMFFIEnvGetStream(kDLCUDA, device));
    return ffi::Array<ffi::Any>{dtypes,  key.columns, key.row_dims, int{key.vector_bytes}, int{key.row_class},
                                is_cuda, device,      is_capturing};
  }

  static constexpr uint32_t kPresent = 1u << 31;
  std::vector<Role> roles_;
  int64_t hidden_size_, columns_;  // the ratio between the hidden size of a call and the columns of its first tensor
  // Never moved, replaced or removed, because calls use them without the lock.
  std::unordered_map<Key, const ffi::Function, KeyHash> kernels_;
  CallMemory<const ffi::Function*> known_;
};
