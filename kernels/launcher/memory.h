// Tensors for callers whose framework cannot provide one.
struct HostAllocator {
  void AllocData(DLTensor* t) {
    const size_t bytes = (ffi::GetDataSize(*t) + 63) / 64 * 64;
    t->data = bytes == 0 ? nullptr : std::aligned_alloc(64, bytes);
    JITNORM_CHECK(bytes == 0 || t->data != nullptr, MemoryError) << "cannot allocate " << bytes << " bytes";
  }
  void FreeData(DLTensor* t) { std::free(t->data); }
};

struct CudaAllocator {
  void AllocData(DLTensor* t) {
    const Driver& driver = Driver::Get();
    const DeviceScope scope(t->device.device_id);
    const RelaxedCapture relaxed;
    uint64_t address = 0;
    const size_t bytes = ffi::GetDataSize(*t);
    if (bytes > 0) driver.Check(driver.MemAlloc(&address, bytes), "cuMemAlloc");
    t->data = reinterpret_cast<void*>(address);
  }
  // cuMemFree waits for work that uses the memory. Errors, such as those of a lost GPU, cannot be reported: the caller
  // may be built with another C++ library, where they would end the process.
  void FreeData(DLTensor* t) noexcept {
    if (t->data == nullptr) return;
    try {
      const DeviceScope scope(t->device.device_id);
      const RelaxedCapture relaxed;
      Driver::Get().MemFree(reinterpret_cast<uint64_t>(t->data));
    } catch (const ffi::Error&) {
    }
  }
};

// The dtype of a name as `DtypeName` writes it.
inline DLDataType DtypeNamed(const ffi::String& name) {
  const std::string text = name, complex = "complex";
  if (text.rfind(complex, 0) != 0) return ffi::StringToDLDataType(name);
  return {kDLComplex, static_cast<uint8_t>(std::atoi(text.c_str() + complex.size())), 1};
}

// The dtype of a name, if dense tensors of it can have the shape.
inline DLDataType DtypeOf(const ffi::Shape& shape, const ffi::String& dtype) {
  DLTensor t{};
  t.shape = const_cast<int64_t*>(shape.data());
  t.ndim = static_cast<int>(shape.size());
  t.dtype = DtypeNamed(dtype);
  CheckBounds("shape", t);
  return t.dtype;
}

// The CPU (`device` < 0) or a CUDA device.
inline DLDevice DeviceOf(int64_t device) {
  return device < 0 ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, static_cast<int>(device)};
}

// An uninitialised dense tensor.
inline ffi::Tensor Allocate(const ffi::Shape& shape, const ffi::String& dtype, int64_t device) {
  const DLDataType parsed = DtypeOf(shape, dtype);
  if (device < 0) return ffi::Tensor::FromNDAlloc(HostAllocator(), shape, parsed, DeviceOf(device));
  return ffi::Tensor::FromNDAlloc(CudaAllocator(), shape, parsed, DeviceOf(device));
}

// Addresses for tensors without memory, 16 TB apart so that none seem to overlap.
struct NoAllocator {
  void AllocData(DLTensor* t, int64_t place) { t->data = reinterpret_cast<void*>((place + 1) << 44); }
  void FreeData(DLTensor*) {}
};

// A dense tensor without memory, to ask about future calls. `place` must differ for each.
inline ffi::Tensor StandIn(const ffi::Shape& shape, const ffi::String& dtype, int64_t device, int64_t place) {
  return ffi::Tensor::FromNDAlloc(NoAllocator(), shape, DtypeOf(shape, dtype), DeviceOf(device), place);
}

// Memory that lives as long as its owner, which the tensor keeps.
struct Owner {
  ffi::Any owner;
  void AllocData(DLTensor* t, int64_t address) { t->data = reinterpret_cast<void*>(address); }
  void FreeData(DLTensor*) {}
};

// A dense tensor in memory that somebody else owns.
inline ffi::Tensor AtAddress(const ffi::Shape& shape, const ffi::String& dtype, int64_t device, int64_t address,
                             const ffi::Any& owner) {
  return ffi::Tensor::FromNDAlloc(Owner{owner}, shape, DtypeOf(shape, dtype), DeviceOf(device), address);
}

// The memory of a tensor with another description, which is copied.
inline ffi::Tensor ViewOf(const ffi::Tensor& tensor, const DLTensor& prototype) {
  TVMFFIObjectHandle view;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITensorCreateUnsafeView(ffi::details::ObjectUnsafe::TVMFFIObjectPtrFromObjectRef(tensor),
                                                       &prototype, &view));
  return ffi::Tensor(ffi::details::ObjectUnsafe::ObjectPtrFromOwned<ffi::TensorObj>(static_cast<TVMFFIObject*>(view)));
}

// A stand-in with strides, in elements, that begins `offset` elements behind its place.
inline ffi::Tensor StandInView(const ffi::Shape& shape, const ffi::Shape& strides, const ffi::String& dtype,
                               int64_t device, int64_t place, int64_t offset) {
  const ffi::Tensor dense = StandIn(shape, dtype, device, place);
  DLTensor prototype = *dense.GetDLTensorPtr();
  JITNORM_CHECK(strides.size() == shape.size(), ValueError) << "strides: are of " << strides.size() << " dimensions";
  prototype.strides = const_cast<int64_t*>(strides.data());
  prototype.data = static_cast<char*>(prototype.data) + offset * ElementBytes(prototype.dtype);
  return ViewOf(dense, prototype);
}

// The same memory with its last two dimensions, which must be dense, merged.
inline ffi::Tensor MergeLastTwo(const ffi::Tensor& tensor) {
  DLTensor prototype = *tensor.GetDLTensorPtr();
  JITNORM_CHECK(prototype.ndim >= 2, ValueError)
      << "tensor: has " << prototype.ndim << " dimensions; expected 2 or more";
  CheckBounds("tensor", prototype);
  const int last = prototype.ndim - 1;
  JITNORM_CHECK(StrideOf(prototype, last - 1) == prototype.shape[last], ValueError)
      << "tensor: its last two dimensions are not contiguous";
  std::vector<int64_t> shape(last), strides(last);
  MergeLastDims(prototype, shape.data(), strides.data());
  return ViewOf(tensor, prototype);
}

// The same memory with another dtype of the same size, for frameworks whose DLPack export lacks the dtype.
inline ffi::Tensor Reinterpret(const ffi::Tensor& tensor, const ffi::String& dtype) {
  DLTensor prototype = *tensor.GetDLTensorPtr();
  const DLDataType parsed = ffi::StringToDLDataType(dtype);
  JITNORM_CHECK(ElementBytes(parsed) == ElementBytes(prototype.dtype), ValueError)
      << "dtype: " << dtype << " differs in size from " << prototype.dtype;
  prototype.dtype = parsed;
  return ViewOf(tensor, prototype);
}

// A dense tensor reshaped to as many elements, with its dimensions then permuted.
inline ffi::Tensor Permute(const ffi::Tensor& tensor, const ffi::Shape& shape, const ffi::Shape& order) {
  DLTensor prototype = *tensor.GetDLTensorPtr();
  JITNORM_CHECK(ffi::IsContiguous(prototype) && shape.Product() == ElementCount(prototype), ValueError)
      << "shape: does not fit a dense tensor of shape " << ShapeText(prototype.shape, prototype.ndim);
  JITNORM_CHECK(shape.size() == order.size(), ValueError) << "order: names " << order.size() << " dimensions";
  std::vector<int64_t> dense(shape.size(), 1), extents, strides;
  for (size_t d = shape.size(); d-- > 1;) dense[d - 1] = dense[d] * shape[d];
  for (int64_t d : order) {
    extents.push_back(shape.at(d));
    strides.push_back(dense.at(d));
  }
  prototype.ndim = static_cast<int>(extents.size());
  prototype.shape = extents.data();
  prototype.strides = strides.data();
  return ViewOf(tensor, prototype);
}
