// Checks a call's arguments against a recipe, and converts them to what a launch needs. Nothing is written before all
// checks have passed.
struct CheckedCall {
  DLDevice device;
  int64_t grid = 0;
  std::optional<void*> stream;  // if none, the caller's current one
  // Kernel parameters, one value per slot, in the order of launch_recipe.py.
  int64_t slots[kMaxArguments * (kMaxRowDims + 1) + kMaxRowSets * (kMaxRowDims + 1) + 2];
  int slot_count = 0;
  // Outputs of one float32, written because no kernel runs.
  struct Fill {
    void* at;
    float value;
  };
  Fill fills[kMaxArguments];
  int fill_count = 0;

  void Push(int64_t value) { slots[slot_count++] = value; }
  void Push(const void* value) { Push(reinterpret_cast<int64_t>(value)); }
  void Push(float value) {
    Push(int64_t{0});
    std::memcpy(&slots[slot_count - 1], &value, sizeof(value));
  }
};

// The optional stream after a call's arguments.
inline std::optional<void*> GivenStream(ffi::PackedArgs args, size_t count) {
  if (args.size() <= static_cast<int>(count) || args[static_cast<int>(count)] == nullptr) return std::nullopt;
  const ffi::AnyView value = args[static_cast<int>(count)];
  const std::optional<int64_t> stream = value.try_cast<int64_t>();
  if (!stream) JITNORM_THROW(TypeError) << "stream: is " << KindOf(value) << "; expected an integer";
  return reinterpret_cast<void*>(*stream);
}

class CallChecker {
 public:
  explicit CallChecker(Recipe recipe) : recipe_(std::move(recipe)) {
    for (size_t i = recipe_.arguments.size(); i-- > 0;) {
      const Argument& argument = recipe_.arguments[i];
      if (!argument.has_leading_dims || argument.row_set == 0) continue;
      leaders_[argument.row_set] = i;
      row_sets_ = std::max(row_sets_, argument.row_set + 1);
    }
  }

  const Recipe& recipe() const { return recipe_; }

  CheckedCall Check(ffi::PackedArgs args) const {
    CheckedCall call;
    CheckCount(args);
    const DLTensor* tensors[kMaxArguments] = {};
    CallShape shape;
    bool fits = true;
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      tensors[i] = TensorAt(i, args);
      if (tensors[i] != nullptr) fits = fits && shape.Add(*tensors[i]);
    }
    call.device = tensors[0]->device;
    CheckDevice(call.device);
    call.stream = GivenStream(args, recipe_.arguments.size());
    JITNORM_CHECK(recipe_.is_cuda || !call.stream, ValueError)
        << "stream: is given, but " << recipe_.arguments[0].name << " is on the cpu; pass None";
    // What passed once passes again; remembering it saves a sixth of a microsecond.
    const Passed* passed = fits ? passed_.Find(shape) : nullptr;
    if (passed != nullptr) {
      CheckOverlaps(tensors, passed->spans);
      FillSlots(args, tensors, *passed, call);
      return call;
    }
    Passed now;
    CheckShapes(tensors, now);
    CheckOverlaps(tensors, now.spans);
    FillSlots(args, tensors, now, call);
    if (fits) passed_.Remember(shape, now);
    return call;
  }

 private:
  // The results of a call's checks, which it passed.
  struct Passed {
    MergedRows rows[kMaxRowSets];
    ByteRange spans[kMaxArguments];
    Sizes sizes;
    int64_t grid = 0;
  };

  void CheckShapes(const DLTensor* const* tensors, Passed& found) const {
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      if (tensors[i] != nullptr) CheckBounds(recipe_.arguments[i].name, *tensors[i]);
    }
    const DLTensor* strided[kMaxRowSets][kMaxArguments];
    int strided_count[kMaxRowSets] = {};
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      const Argument& argument = recipe_.arguments[i];
      CheckTensor(argument, *tensors[i], tensors);
      if (argument.is_strided) strided[argument.row_set][strided_count[argument.row_set]++] = tensors[i];
    }
    CheckMatrices(*tensors[0]);
    CheckHeads(tensors);
    for (int set = 0; set < row_sets_; ++set) {
      MergeRows(strided[set], strided_count[set], found.rows[set]);
      JITNORM_CHECK(found.rows[set].dims <= recipe_.row_dims, ValueError)
          << recipe_.arguments[leaders_[set]].name << ": its leading dimensions need " << found.rows[set].dims
          << " strides, this kernel walks " << recipe_.row_dims
          << "; use a kernel with row_dims=" << found.rows[set].dims;
    }
    found.sizes = SizesOf(tensors);
    CheckRows(found.sizes);
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) CheckExtents(i, tensors, found.sizes);
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      found.spans[i] = SpanOf(*tensors[i]);
      JITNORM_CHECK(!recipe_.arguments[i].is_output || IsInjective(*tensors[i]), ValueError)
          << NameOf(i, tensors) << ": its strides make elements share memory";
    }
    found.grid = recipe_.grid.Evaluate(found.sizes);
  }

  void CheckCount(ffi::PackedArgs args) const {
    const int count = static_cast<int>(recipe_.arguments.size());
    if (args.size() == count || args.size() == count + 1) return;
    JITNORM_THROW(TypeError) << "the kernel takes " << count << " arguments and, optionally, a stream; got "
                             << args.size();
  }

  const DLTensor* TensorAt(size_t i, ffi::PackedArgs args) const {
    const Argument& argument = recipe_.arguments[i];
    const ffi::AnyView value = args[static_cast<int>(i)];
    if (argument.kind == Argument::Kind::kFloat32) {
      if (!value.try_cast<double>()) {
        JITNORM_THROW(TypeError) << argument.name << ": is " << KindOf(value) << "; expected a number";
      }
      return nullptr;
    }
    std::optional<DLTensor*> tensor = value.try_cast<DLTensor*>();
    if (!tensor) {
      JITNORM_THROW(TypeError) << argument.name << ": is " << KindOf(value) << "; expected a tensor";
    }
    CheckMemory(argument.name, **tensor);  // not in CheckShapes, because calls of one shape may differ in memory
    return *tensor;
  }

  void CheckDevice(DLDevice device) const {
    const char* allowed = recipe_.is_cuda ? "a CUDA device" : "cpu";
    JITNORM_CHECK(recipe_.is_cuda ? IsCuda(device) : IsHost(device), ValueError)
        << recipe_.arguments[0].name << ": is on " << DeviceName(device) << ", this kernel is built for " << allowed;
  }

  void CheckMatrices(const DLTensor& first) const {
    JITNORM_CHECK(!recipe_.is_batched || first.ndim > 1, ValueError)
        << recipe_.arguments[0].name << ": shape is " << ShapeText(first.shape, first.ndim)
        << ", expected (matrices, ..., hidden size)";
  }

  // All row sets have heads of the same tokens.
  void CheckHeads(const DLTensor* const* tensors) const {
    if (!recipe_.has_heads) return;
    for (int set = 0; set < row_sets_; ++set) {
      const DLTensor& t = *tensors[leaders_[set]];
      const std::string& name = recipe_.arguments[leaders_[set]].name;
      JITNORM_CHECK(t.ndim > 1, ValueError)
          << name << ": shape is " << ShapeText(t.shape, t.ndim) << ", expected (..., heads, head size)";
      JITNORM_CHECK(TokenCount(t) == TokenCount(*tensors[0]), ValueError)
          << name << ": has heads of " << TokenCount(t) << " tokens, " << recipe_.arguments[0].name << " of "
          << TokenCount(*tensors[0]);
    }
  }

  static int64_t TokenCount(const DLTensor& t) { return ExtentProduct(t, 0, t.ndim - 2); }

  static int64_t RowCount(const DLTensor& t, int first_dim) { return ExtentProduct(t, first_dim, t.ndim - 1); }

  Sizes SizesOf(const DLTensor* const* tensors) const {
    Sizes sizes;
    sizes.rows = RowCount(*tensors[0], recipe_.is_batched ? 1 : 0);
    if (row_sets_ > 1) sizes.second_rows = RowCount(*tensors[leaders_[1]], 0);
    if (recipe_.is_batched) sizes.matrices = tensors[0]->shape[0];
    if (recipe_.has_heads) sizes.tokens = TokenCount(*tensors[0]);
    return sizes;
  }

  // Rows with several strides are found by divisions of 32 bits.
  void CheckRows(const Sizes& sizes) const {
    const int64_t rows = std::max(sizes.rows * sizes.matrices, sizes.second_rows);
    JITNORM_CHECK(recipe_.row_dims == 1 || rows <= UINT32_MAX, ValueError)
        << recipe_.arguments[0].name << ": there are " << rows << " rows, whose strides this kernel walks up to "
        << UINT32_MAX << "; pass contiguous tensors, or fewer rows";
  }

  void CheckTensor(const Argument& argument, const DLTensor& t, const DLTensor* const* tensors) const {
    const DLTensor& first = *tensors[leaders_[argument.row_set]];
    JITNORM_CHECK(IsSameDevice(t.device, tensors[0]->device), ValueError)
        << argument.name << ": is on " << DeviceName(t.device) << ", expected " << DeviceName(tensors[0]->device)
        << ", where " << recipe_.arguments[0].name << " is";
    const bool is_allowed =
        std::any_of(argument.dtypes.begin(), argument.dtypes.end(), [&](DLDataType dtype) { return dtype == t.dtype; });
    JITNORM_CHECK(is_allowed, ValueError)
        << argument.name << ": dtype is " << DtypeName(t.dtype) << ", expected " << DtypeText(argument);
    if (argument.is_single) {
      if (ElementCount(t) != 1) ThrowShape(argument, t, tensors);
      return;
    }
    if (argument.is_flat && t.ndim > 0) return;
    const int inner_dims = static_cast<int>(argument.extents.size());
    const int leading_dims = argument.has_leading_dims ? std::max(0, first.ndim - 1) : 0;
    bool has_rank = t.ndim == leading_dims + argument.table_dims + inner_dims;
    for (int d = 0; has_rank && d < leading_dims; ++d) has_rank = t.shape[d] == first.shape[d];
    if (!has_rank) ThrowShape(argument, t, tensors);
  }

  void CheckExtents(size_t i, const DLTensor* const* tensors, const Sizes& sizes) const {
    if (tensors[i] == nullptr) return;
    const Argument& argument = recipe_.arguments[i];
    const DLTensor& t = *tensors[i];
    if (argument.is_flat && ElementCount(t) != ExpectedCount(argument, sizes)) ThrowShape(argument, t, tensors);
    const int inner_dims = argument.is_single || argument.is_flat ? 0 : static_cast<int>(argument.extents.size());
    for (int d = 0; d < inner_dims; ++d) {
      if (t.shape[t.ndim - inner_dims + d] != argument.extents[d].Evaluate(sizes)) ThrowShape(argument, t, tensors);
    }
    if (IsEmpty(t)) return;
    const int64_t inner_stride = t.ndim > 0 ? StrideOf(t, t.ndim - 1) : 1;
    JITNORM_CHECK(t.ndim == 0 || t.shape[t.ndim - 1] == 1 || inner_stride == 1, ValueError)
        << argument.name << ": the stride of its last dimension is " << inner_stride
        << ", expected 1; make its rows contiguous";
    const bool is_strided = argument.is_strided || argument.table_dims > 0;
    JITNORM_CHECK(is_strided || ffi::IsContiguous(t), ValueError)
        << argument.name << ": is not contiguous; only " << recipe_.arguments[0].name
        << " and outputs of its shape may be non-contiguous";
    const int64_t alignment = is_strided ? RowAlignment(t) : PointerAlignment(t);
    JITNORM_CHECK(alignment >= argument.alignment, ValueError)
        << argument.name << ": its rows are aligned to " << alignment << " bytes, this kernel needs "
        << argument.alignment
        << (argument.alignment == ElementBytes(argument.dtypes[0]) ? ", the size of an element"
                                                                   : "; use a kernel with a smaller vector_bytes");
  }

  static int64_t ExpectedCount(const Argument& argument, const Sizes& sizes) {
    int64_t count = argument.has_leading_dims ? sizes.rows * sizes.matrices : 1;
    for (const Extent& extent : argument.extents) count = Extent::Product(count, extent.Evaluate(sizes));
    return count;
  }

  void CheckOverlaps(const DLTensor* const* tensors, const ByteRange* spans) const {
    ByteRange ranges[kMaxArguments];
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      if (tensors[i] != nullptr) ranges[i] = RangeOf(*tensors[i], spans[i]);
    }
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      const Argument& output = recipe_.arguments[i];
      if (tensors[i] == nullptr || !output.is_output) continue;
      for (size_t j = 0; j < recipe_.arguments.size(); ++j) {
        const Argument& other = recipe_.arguments[j];
        if (j == i || tensors[j] == nullptr || (other.is_output && j < i)) continue;
        if (ranges[i].end <= ranges[j].begin || ranges[j].end <= ranges[i].begin) continue;
        if (other.name == output.may_be && IsSame(*tensors[i], *tensors[j])) continue;
        JITNORM_CHECK(!MayOverlap(*tensors[i], *tensors[j]), ValueError)
            << NameOf(i, tensors) << ": overlaps the memory of " << NameOf(j, tensors) << "; give it memory of its own";
      }
    }
  }

  // The name of an argument, or that of the input which it replaces: the caller may have passed only that.
  const std::string& NameOf(size_t i, const DLTensor* const* tensors) const {
    for (size_t j = 0; j < recipe_.arguments.size(); ++j) {
      if (tensors[j] == nullptr || recipe_.arguments[j].name != recipe_.arguments[i].may_be) continue;
      if (IsSame(*tensors[i], *tensors[j])) return recipe_.arguments[j].name;
    }
    return recipe_.arguments[i].name;
  }

  static bool IsSame(const DLTensor& a, const DLTensor& b) {
    bool same = DataOf(a) == DataOf(b) && a.ndim == b.ndim;
    for (int d = 0; same && d < a.ndim; ++d) same = a.shape[d] == 1 || StrideOf(a, d) == StrideOf(b, d);
    return same;
  }

  void FillSlots(ffi::PackedArgs args, const DLTensor* const* tensors, const Passed& found, CheckedCall& call) const {
    call.grid = found.grid;
    // If a call needs fewer row dimensions than the kernel walks, prepend extents of 1.
    int missing[kMaxRowSets] = {}, strided[kMaxRowSets] = {};
    for (int set = 0; set < row_sets_; ++set) missing[set] = recipe_.row_dims - found.rows[set].dims;
    for (size_t i = 0; i < recipe_.arguments.size(); ++i) {
      const Argument& argument = recipe_.arguments[i];
      if (argument.kind == Argument::Kind::kFloat32)
        call.Push(static_cast<float>(args[static_cast<int>(i)].cast<double>()));
      if (argument.kind != Argument::Kind::kTensor) continue;
      call.Push(DataOf(*tensors[i]));
      // Without rows, no kernel runs that could write the output.
      if (argument.is_output && argument.is_single && call.grid == 0) {
        call.fills[call.fill_count++] = {DataOf(*tensors[i]), argument.if_empty};
      }
      for (int d = 0; d < argument.table_dims; ++d) call.Push(StrideOf(*tensors[i], d));
      for (int d = 0; d < argument.table_dims; ++d) call.Push(tensors[i]->shape[d]);
      if (!argument.is_strided) continue;
      const int set = argument.row_set, at = strided[set]++, skip = missing[set];
      for (int d = 0; d < recipe_.row_dims; ++d) call.Push(d < skip ? 0 : found.rows[set].strides[at][d - skip]);
    }
    for (int set = 0; set < row_sets_; ++set) {
      const int skip = missing[set];
      call.Push(set == 0 ? found.sizes.rows : found.sizes.second_rows);
      for (int d = 1; d < recipe_.row_dims; ++d) call.Push(d < skip ? 1 : found.rows[set].extents[d - skip]);
      const DLTensor& leader = *tensors[leaders_[set]];
      if (recipe_.has_heads) call.Push(leader.shape[leader.ndim - 2]);
    }
    if (recipe_.is_batched) call.Push(found.sizes.matrices);
    if (recipe_.items) call.Push(recipe_.items->Evaluate(found.sizes));
  }

  static std::string DtypeText(const Argument& argument) {
    std::string text;
    for (DLDataType dtype : argument.dtypes) {
      text += (text.empty() ? "" : " or ") + DtypeName(dtype);
    }
    return text;
  }

  [[noreturn]] void ThrowShape(const Argument& argument, const DLTensor& t, const DLTensor* const* tensors) const {
    CheckMatrices(*tensors[0]);
    const DLTensor& first = *tensors[leaders_[argument.row_set]];
    std::vector<int64_t> expected;
    if (argument.has_leading_dims) expected.assign(first.shape, first.shape + std::max(0, first.ndim - 1));
    for (int d = 0; d < argument.table_dims; ++d) expected.push_back(d < t.ndim - 1 ? t.shape[d] : 1);
    const Sizes sizes = SizesOf(tensors);
    for (const Extent& extent : argument.extents) expected.push_back(extent.Evaluate(sizes));
    JITNORM_THROW(ValueError) << argument.name << ": shape is " << ShapeText(t.shape, t.ndim) << ", expected "
                              << ShapeText(expected.data(), static_cast<int>(expected.size()));
    TVM_FFI_UNREACHABLE();
  }

  Recipe recipe_;
  int row_sets_ = 1;
  size_t leaders_[kMaxRowSets] = {};  // the first argument of each row set; the others share its leading shape
  CallMemory<Passed> passed_;
};
