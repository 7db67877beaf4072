// Properties of tensors: where their bytes are, and how few strides suffice to walk their rows.

inline bool IsCuda(DLDevice device) { return device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged; }

inline bool IsHost(DLDevice device) { return device.device_type == kDLCPU || device.device_type == kDLCUDAHost; }

inline bool IsSameDevice(DLDevice a, DLDevice b) {
  return (IsHost(a) && IsHost(b)) || (IsCuda(a) && IsCuda(b) && a.device_id == b.device_id);
}

// The device as frameworks write it: "cpu", "cuda:0".
inline std::string DeviceName(DLDevice device) {
  if (IsHost(device)) return "cpu";
  if (IsCuda(device)) return "cuda:" + std::to_string(device.device_id);
  return "device type " + std::to_string(device.device_type) + ":" + std::to_string(device.device_id);
}

// What a caller passed that is no tensor or number, in Python's words.
inline std::string KindOf(const ffi::AnyView& value) {
  const std::string key = value.GetTypeKey();
  if (key == "None") return key;
  if (key == "ffi.SmallStr" || key == "ffi.String") return "a str";
  if (key == "ffi.BigInt") return "an integer of more than 64 bits";
  if (key == "ffi.Tensor" || key == "DLTensor*") return "a tensor";
  return key == "ffi.OpaquePyObject" ? "an object of Python" : "a " + key;
}

// The dtype as frameworks write it; TVM-FFI throws for complex numbers.
inline std::string DtypeName(DLDataType dtype) {
  return dtype.code == kDLComplex ? "complex" + std::to_string(dtype.bits)
                                  : std::string(ffi::DLDataTypeToString(dtype));
}

inline char* DataOf(const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; }

inline int64_t ElementBytes(DLDataType dtype) { return (dtype.bits * dtype.lanes + 7) / 8; }

inline bool IsEmpty(const DLTensor& t) {
  bool is_empty = false;
  for (int d = 0; d < t.ndim; ++d) is_empty = is_empty || t.shape[d] == 0;
  return is_empty;
}

// The product of the extents of dimensions [first, end).
inline int64_t ExtentProduct(const DLTensor& t, int first, int end) {
  int64_t product = 1;
  for (int d = first; d < end; ++d) product *= t.shape[d];
  return product;
}

inline int64_t ElementCount(const DLTensor& t) { return ExtentProduct(t, 0, t.ndim); }

inline int64_t StrideOf(const DLTensor& t, int dim) {
  if (t.strides != nullptr) return t.strides[dim];
  uint64_t stride = 1;  // unsigned, because shapes may not be known to be bounded yet
  for (int d = t.ndim - 1; d > dim; --d) stride *= static_cast<uint64_t>(t.shape[d]);
  return static_cast<int64_t>(stride);
}

// Describes the last two dimensions, which must be dense, as one. The new shape and strides, which the tensor refers
// to, have room for one dimension less than it has.
inline void MergeLastDims(DLTensor& t, int64_t* shape, int64_t* strides) {
  const int last = t.ndim - 1;
  for (int d = 0; d < last; ++d) {
    shape[d] = t.shape[d];
    strides[d] = StrideOf(t, d);
  }
  shape[last - 1] *= t.shape[last];
  strides[last - 1] = StrideOf(t, last);
  t.ndim = last;
  t.shape = shape;
  t.strides = strides;
}

inline std::string ShapeText(const int64_t* shape, int ndim) {
  std::ostringstream text;
  text << "(";
  for (int d = 0; d < ndim; ++d) text << (d ? ", " : "") << shape[d];
  text << (ndim == 1 ? ",)" : ")");
  return text.str();
}

// The common leading dimensions of several tensors, merged where one stride can walk both.
struct MergedRows {
  int dims;
  int64_t extents[kMaxRowDims];
  int64_t strides[kMaxArguments][kMaxRowDims];
};

// Merges the leading dimensions (all but the last) of `count` tensors whose leading shapes are equal; dims is more
// than kMaxRowDims if they cannot be merged that far.
inline void MergeRows(const DLTensor* const* tensors, int count, MergedRows& merged) {
  const DLTensor& first = *tensors[0];
  int64_t extents[kMaxRowDims];  // innermost first
  int64_t strides[kMaxArguments][kMaxRowDims];
  int dims = 0;
  for (int d = first.ndim - 2; d >= 0; --d) {
    const int64_t extent = first.shape[d];
    if (extent == 1) continue;
    bool merges = dims > 0;
    for (int t = 0; merges && t < count; ++t) {
      merges = StrideOf(*tensors[t], d) == strides[t][dims - 1] * extents[dims - 1];
    }
    if (merges) {
      extents[dims - 1] *= extent;
      continue;
    }
    if (dims == kMaxRowDims) {
      merged.dims = kMaxRowDims + 1;
      return;
    }
    extents[dims] = extent;
    for (int t = 0; t < count; ++t) strides[t][dims] = StrideOf(*tensors[t], d);
    ++dims;
  }
  if (dims == 0) {  // a single row
    extents[dims] = 1;
    for (int t = 0; t < count; ++t) strides[t][dims] = 0;
    dims = 1;
  }
  merged.dims = dims;
  for (int d = 0; d < dims; ++d) {
    merged.extents[dims - 1 - d] = extents[d];
    for (int t = 0; t < count; ++t) merged.strides[t][dims - 1 - d] = strides[t][d];
  }
}

// The largest power of two, up to 16, that divides the address of a tensor and these other distances.
inline int64_t PointerAlignment(const DLTensor& t, uint64_t distances = 0) {
  const uint64_t bits = reinterpret_cast<uint64_t>(DataOf(t)) | distances | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// The same for the address of every row of `t`.
inline int64_t RowAlignment(const DLTensor& t) {
  uint64_t strides = 0;
  for (int d = 0; d < t.ndim - 1; ++d) {
    if (t.shape[d] > 1) strides |= static_cast<uint64_t>(StrideOf(t, d) * ElementBytes(t.dtype));
  }
  return PointerAlignment(t, strides);
}

// The bytes [begin, end) that contain a tensor's elements.
struct ByteRange {
  int64_t begin, end;
};

// From the tensor's data on; of no bytes if it is empty.
inline ByteRange SpanOf(const DLTensor& t, int first_dim = 0) {
  if (IsEmpty(t)) return {0, 0};
  ByteRange range{0, ElementBytes(t.dtype)};
  for (int d = first_dim; d < t.ndim; ++d) {
    const int64_t reach = (t.shape[d] - 1) * StrideOf(t, d) * ElementBytes(t.dtype);
    (reach < 0 ? range.begin : range.end) += reach;
  }
  return range;
}

inline ByteRange RangeOf(const DLTensor& t, ByteRange span) {
  const int64_t address = reinterpret_cast<int64_t>(DataOf(t));
  return {address + span.begin, address + span.end};
}

// One dimension of the distances between the runs of two tensors: from -below to above strides.
struct DistanceDim {
  int64_t stride, below, above;  // stride in bytes, positive
};

// Whether a run of `width_b` bytes that starts `distance` after a run of `width_a` bytes can be made to overlap it by
// steps along `dims`, largest stride first. True if in doubt.
inline bool CanMeet(int64_t distance, int64_t width_a, int64_t width_b, const DistanceDim* dims, size_t count) {
  if (count == 0) return distance < width_a && -distance < width_b;
  int64_t reach = std::max(width_a, width_b);
  for (size_t d = 1; d < count; ++d) reach += dims[d].stride * std::max(dims[d].below, dims[d].above);
  const DistanceDim& dim = dims[0];
  const int64_t first = std::max(-dim.below, (-distance - reach) / dim.stride - 1);
  const int64_t last = std::min(dim.above, (-distance + reach) / dim.stride + 1);
  if (last - first > 8) return true;
  for (int64_t steps = first; steps <= last; ++steps) {
    if (CanMeet(distance + steps * dim.stride, width_a, width_b, dims + 1, count - 1)) return true;
  }
  return false;
}

// The distances that steps along the leading dimensions of two tensors cover, by stride.
struct DistanceDims {
  DistanceDim dims[kMaxRowDims];
  int count = 0;

  // Adds those of `t`, where distances start or end; false if there are too many, or a stride is negative.
  bool Add(const DLTensor& t, bool is_from) {
    for (int d = 0; d < t.ndim - 1; ++d) {
      const int64_t stride = StrideOf(t, d) * ElementBytes(t.dtype), steps = t.shape[d] - 1;
      if (steps == 0 || stride == 0) continue;
      DistanceDim* dim = std::find_if(dims, dims + count, [&](const DistanceDim& x) { return x.stride == stride; });
      if (stride < 0 || dim == dims + kMaxRowDims) return false;
      if (dim == dims + count) dims[count++] = {stride, 0, 0};
      (is_from ? dim->below : dim->above) += steps;
    }
    return true;
  }
};

// Whether two tensors whose ranges meet may share a byte. Views of one buffer that interleave, such as q and k cut out
// of a packed QKV tensor, do not: no steps along their strides lead from one to the other.
inline bool MayOverlap(const DLTensor& a, const DLTensor& b) {
  if (IsEmpty(a) || IsEmpty(b)) return false;
  if (a.ndim == 0 || b.ndim == 0) return true;
  DistanceDims distances;
  if (!distances.Add(a, true) || !distances.Add(b, false)) return true;
  DistanceDim* dims = distances.dims;
  std::sort(dims, dims + distances.count, [](auto& x, auto& y) { return x.stride > y.stride; });
  const ByteRange run_a = RangeOf(a, SpanOf(a, a.ndim - 1)), run_b = RangeOf(b, SpanOf(b, b.ndim - 1));
  return CanMeet(run_b.begin - run_a.begin, run_a.end - run_a.begin, run_b.end - run_b.begin, dims, distances.count);
}

// Whether distinct elements of `t` have distinct addresses: by ascending stride, each dimension steps over everything
// that the smaller ones reach.
inline bool IsInjective(const DLTensor& t) {
  if (ffi::IsContiguous(t)) return true;
  if (IsEmpty(t)) return true;           // NumPy exports empty arrays with strides of 0
  std::pair<int64_t, int64_t> dims[64];  // stride, extent
  int count = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 1) continue;
    if (count == 64) return false;  // 64 dimensions of two elements exceed the address space
    dims[count++] = {std::abs(StrideOf(t, d)), t.shape[d]};
  }
  std::sort(dims, dims + count);
  int64_t reach = 1;
  for (int d = 0; d < count; ++d) {
    const auto [stride, extent] = dims[d];
    if (stride < reach) return false;
    reach = stride * (extent - 1) + reach;
  }
  return true;
}
