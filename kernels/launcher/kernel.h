// A kernel: a recipe and its code.
class Kernel {
 public:
  explicit Kernel(Recipe recipe) : checker_(std::move(recipe)) {}
  virtual ~Kernel() = default;

  // Gets ready for calls on a CUDA device.
  virtual void LoadOn(int) const {
    JITNORM_THROW(TypeError) << "the kernel is called with a device alone, but is built for cpu";
  }

  void Call(ffi::PackedArgs args) const {
    CheckedCall call = checker_.Check(args);
    if (call.grid == 0 && call.fill_count == 0) return;
    void* parameters[sizeof(call.slots) / sizeof(call.slots[0])];
    for (int i = 0; i < call.slot_count; ++i) parameters[i] = &call.slots[i];
    Launch(call, parameters);
  }

 protected:
  const Recipe& recipe() const { return checker_.recipe(); }

 private:
  virtual void Launch(const CheckedCall& call, void** parameters) const = 0;

  CallChecker checker_;
};

// CPU machine code: a shared object that stays loaded for the life of the process.
class CpuKernel : public Kernel {
 public:
  CpuKernel(Recipe recipe, const ffi::Bytes& payload) : Kernel(std::move(recipe)) {
    void* library = LoadLibrary(payload);
    entry_ = reinterpret_cast<Entry>(dlsym(library, this->recipe().entry.c_str()));
    JITNORM_CHECK(entry_ != nullptr, RuntimeError) << "the kernel has no entry point " << this->recipe().entry;
  }

 private:
  using Entry = void (*)(void* const* parameters, int64_t first, int64_t last);

  void Launch(const CheckedCall& call, void** parameters) const final {
    for (int i = 0; i < call.fill_count; ++i) std::memcpy(call.fills[i].at, &call.fills[i].value, sizeof(float));
    const int64_t parts = call.grid / recipe().grain;
    if (parts < 2) {
      Run(parameters, 0, call.grid);
    } else {
      InParts(call.grid, std::min(parts, CpuThreads()),
              [&](int64_t first, int64_t last) { Run(parameters, first, last); });
    }
  }

  // Runs in the default floating-point environment, because callers may have enabled flushing of denormals.
  void Run(void** parameters, int64_t first, int64_t last) const {
    std::fenv_t callers;
    std::fegetenv(&callers);
    std::fesetenv(FE_DFL_ENV);
    entry_(parameters, first, last);
    std::fesetenv(&callers);
  }

  Entry entry_;
};

// Machine code for one GPU generation: a cubin that stays loaded for the life of the process.
class CudaKernel : public Kernel {
 public:
  CudaKernel(Recipe recipe, const ffi::Bytes& payload) : Kernel(std::move(recipe)) {
    const Driver& driver = Driver::Get();
    const RelaxedCapture relaxed;
    CUlibrary library;
    driver.Check(driver.LibraryLoadData(&library, payload.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "cuLibraryLoadData");
    driver.Check(driver.LibraryGetKernel(&kernel_, library, this->recipe().entry.c_str()), "cuLibraryGetKernel");
  }

  void LoadOn(int device) const final {
    const DeviceScope scope(device);
    Load(device);
  }

 private:
  void Launch(const CheckedCall& call, void** parameters) const final {
    const int device = call.device.device_id;
    const DeviceScope scope(device);
    void* stream = call.stream ? *call.stream : TVMFFIEnvGetStream(kDLCUDA, device);
    const CUfunction function = FunctionOn(device, stream);
    JITNORM_CHECK(call.grid <= 0x7fffffff, ValueError)
        << recipe().arguments[0].name << ": has more rows than one launch supports";
    const Driver& driver = Driver::Get();
    for (int i = 0; i < call.fill_count; ++i) {
      const uint64_t address = reinterpret_cast<uint64_t>(call.fills[i].at);
      unsigned bits;
      std::memcpy(&bits, &call.fills[i].value, sizeof(bits));
      driver.Check(driver.MemsetD32Async(address, bits, 1, static_cast<CUstream>(stream)), "cuMemsetD32Async");
    }
    if (call.grid == 0) return;
    CUlaunchAttribute attributes[2] = {};
    CUlaunchConfig config{{static_cast<unsigned>(call.grid), 1, 1},
                          {recipe().block, 1, 1},
                          recipe().shared_bytes,
                          static_cast<CUstream>(stream),
                          attributes,
                          0};
    if (recipe().pdl) {
      CUlaunchAttribute& attribute = attributes[config.attribute_count++];
      attribute.id = kProgrammaticStreamSerialization;
      attribute.value.programmatic_stream_serialization = 1;
    }
    if (recipe().cluster > 1) {
      CUlaunchAttribute& attribute = attributes[config.attribute_count++];
      attribute.id = kClusterDimension;
      attribute.value.cluster[0] = recipe().cluster;
      attribute.value.cluster[1] = attribute.value.cluster[2] = 1;
    }
    driver.Check(driver.LaunchKernelEx(&config, function, parameters, nullptr), "cuLaunchKernelEx");
  }

  // The function in the device's context, loaded there on first use.
  CUfunction FunctionOn(int device, void* stream) const {
    const CUfunction function = functions_[device].load(std::memory_order_acquire);
    if (function != nullptr) return function;
    JITNORM_CHECK(!IsCapturing(device, stream), RuntimeError)
        << "the kernel is not loaded on cuda:" << device
        << " yet, and loading it would break the graph capture; call it once before capturing";
    return Load(device);
  }

  // The device's context is current.
  CUfunction Load(int device) const {
    const Driver& driver = Driver::Get();
    const RelaxedCapture relaxed;
    CUfunction function;
    int major = 0, minor = 0;
    driver.Check(driver.DeviceGetAttribute(&major, kCapabilityMajor, device), "cuDeviceGetAttribute");
    driver.Check(driver.DeviceGetAttribute(&minor, kCapabilityMinor, device), "cuDeviceGetAttribute");
    JITNORM_CHECK(recipe().RunsOn(major, minor), ValueError)
        << recipe().arguments[0].name << ": is on a device of compute capability " << major << "." << minor
        << ", this kernel is built for " << recipe().capability_major << "." << recipe().capability_minor
        << (recipe().is_family ? " and later minor versions" : "");
    driver.Check(driver.KernelGetFunction(&function, kernel_), "cuKernelGetFunction");
    // More than 48 KiB, including what the kernel declares itself, must be requested.
    if (recipe().shared_bytes > 0) {
      const int bytes = static_cast<int>(recipe().shared_bytes);
      driver.Check(driver.FuncSetAttribute(function, kMaxDynamicSharedBytes, bytes), "cuFuncSetAttribute");
    }
    functions_[device].store(function, std::memory_order_release);
    return function;
  }

  CUkernel kernel_;
  mutable std::atomic<CUfunction> functions_[kMaxDevices] = {};
};

inline ffi::Function LoadKernel(const ffi::String& recipe_text, const ffi::Bytes& payload) {
  Recipe recipe = ReadRecipe(recipe_text);
  std::shared_ptr<const Kernel> kernel;
  if (recipe.is_cuda) {
    kernel = std::make_shared<CudaKernel>(std::move(recipe), payload);
  } else {
    kernel = std::make_shared<CpuKernel>(std::move(recipe), payload);
  }
  return MakeFunction([kernel = std::move(kernel)](ffi::PackedArgs args, ffi::Any*) {
    // A number alone is a CUDA device to get ready for.
    if (std::optional<int64_t> device; args.size() == 1 && (device = args[0].try_cast<int64_t>())) {
      kernel->LoadOn(static_cast<int>(*device));
    } else {
      kernel->Call(args);
    }
  });
}

// Raises the errors that a kernel of this recipe would raise for a call; launches nothing.
inline ffi::Function MakeChecker(const ffi::String& recipe_text) {
  auto checker = std::make_shared<const CallChecker>(ReadRecipe(recipe_text));
  return MakeFunction([checker](ffi::PackedArgs args, ffi::Any*) { checker->Check(args); });
}

// A kernel with the calling convention of whole-program compilers: its argument i is argument order[i] of the call,
// followed by the numbers.
inline ffi::Function Bind(const ffi::Function& kernel, const ffi::Shape& order, const ffi::Array<double>& numbers) {
  JITNORM_CHECK(order.size() + numbers.size() <= kMaxArguments, ValueError) << "order: names too many arguments";
  return MakeFunction([=](ffi::PackedArgs args, ffi::Any* result) {
    JITNORM_CHECK(static_cast<size_t>(args.size()) == order.size(), TypeError)
        << "expected " << order.size() << " arguments; got " << args.size();
    ffi::AnyView all[kMaxArguments];
    int32_t count = 0;
    for (int64_t position : order) all[count++] = args[static_cast<int>(position)];
    for (double number : numbers) all[count++] = number;
    kernel.CallPacked(all, count, result);
  });
}
