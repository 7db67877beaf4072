// The parts of the CUDA driver API that a launch needs, looked up at run time, so that the launcher loads on machines
// without a driver and CUDA calls there say what is missing. Types follow the driver's documented ABI.
using CUresult = int;
using CUdevice = int;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

struct CUlaunchAttribute {
  int id;
  int padding;
  union {
    char bytes[64];
    unsigned cluster[3];
    int programmatic_stream_serialization;
  } value;
};
constexpr int kClusterDimension = 4, kProgrammaticStreamSerialization = 6;

struct CUlaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

constexpr int kCaptureModeRelaxed = 2;                       // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int kMaxDynamicSharedBytes = 8;                    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kMaxDevices = 64;

struct Driver {
  CUresult (*Init)(unsigned);
  CUresult (*DriverGetVersion)(int*);
  CUresult (*GetErrorString)(CUresult, const char**);
  CUresult (*DeviceGetCount)(int*);
  CUresult (*DeviceGetName)(char*, int, CUdevice);
  CUresult (*DeviceGetAttribute)(int*, int, CUdevice);
  CUresult (*DevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*CtxGetCurrent)(CUcontext*);
  CUresult (*CtxPushCurrent)(CUcontext);
  CUresult (*CtxPopCurrent)(CUcontext*);
  CUresult (*LibraryLoadData)(CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned);
  CUresult (*LibraryGetKernel)(CUkernel*, CUlibrary, const char*);
  CUresult (*KernelGetFunction)(CUfunction*, CUkernel);
  CUresult (*FuncSetAttribute)(CUfunction, int, int);
  CUresult (*LaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*StreamIsCapturing)(CUstream, int*);
  CUresult (*ThreadExchangeStreamCaptureMode)(int*);
  CUresult (*MemsetD32Async)(uint64_t, unsigned, size_t, CUstream);
  CUresult (*MemAlloc)(uint64_t*, size_t);
  CUresult (*MemFree)(uint64_t);

  // The driver, loaded and initialised on first use; RuntimeError if there is none.
  static const Driver& Get() {
    static const std::string error = Load(Instance());
    if (!error.empty()) JITNORM_THROW(RuntimeError) << error;
    return Instance();
  }

  void Check(CUresult result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    GetErrorString(result, &text);
    JITNORM_THROW(RuntimeError) << "CUDA driver: " << what << " failed with error " << result << ": "
                                << (text ? text : "unknown");
  }

 private:
  static Driver& Instance() {
    static Driver driver{};
    return driver;
  }

  static std::string Load(Driver& driver) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return "CUDA driver: libcuda.so.1 was not found; install NVIDIA's display driver, or pass CPU tensors";
    }
    std::string missing;
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
    };
    find(driver.Init, "cuInit");
    find(driver.DriverGetVersion, "cuDriverGetVersion");
    find(driver.GetErrorString, "cuGetErrorString");
    find(driver.DeviceGetCount, "cuDeviceGetCount");
    find(driver.DeviceGetName, "cuDeviceGetName");
    find(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
    find(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(driver.CtxGetCurrent, "cuCtxGetCurrent");
    find(driver.CtxPushCurrent, "cuCtxPushCurrent_v2");
    find(driver.CtxPopCurrent, "cuCtxPopCurrent_v2");
    find(driver.LibraryLoadData, "cuLibraryLoadData");
    find(driver.LibraryGetKernel, "cuLibraryGetKernel");
    find(driver.KernelGetFunction, "cuKernelGetFunction");
    find(driver.FuncSetAttribute, "cuFuncSetAttribute");
    find(driver.LaunchKernelEx, "cuLaunchKernelEx");
    find(driver.StreamIsCapturing, "cuStreamIsCapturing");
    find(driver.ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
    find(driver.MemsetD32Async, "cuMemsetD32Async");
    find(driver.MemAlloc, "cuMemAlloc_v2");
    find(driver.MemFree, "cuMemFree_v2");
    if (!missing.empty()) return "CUDA driver: has no " + missing + "; update it to CUDA 12.0 or later";
    if (const CUresult result = driver.Init(0)) {
      const char* text = nullptr;
      driver.GetErrorString(result, &text);
      return std::string("CUDA driver: cuInit failed: ") + (text ? text : std::to_string(result));
    }
    return "";
  }
};

// While any stream of the process captures a graph, allocating, freeing, loading code and retaining a context may break
// the capture, even if unrelated, such as garbage collection. In this mode the driver allows them.
class RelaxedCapture {
 public:
  RelaxedCapture() { Driver::Get().ThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { Driver::Get().ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = kCaptureModeRelaxed;  // each exchange stores the previous mode
};

// The primary context of a device, shared by all frameworks and retained for the life of the process.
inline CUcontext PrimaryContext(int device) {
  static std::atomic<CUcontext> contexts[kMaxDevices];
  JITNORM_CHECK(device >= 0 && device < kMaxDevices, ValueError) << "device: cuda:" << device << " is out of range";
  CUcontext context = contexts[device].load(std::memory_order_acquire);
  if (context == nullptr) {
    const Driver& driver = Driver::Get();
    const RelaxedCapture relaxed;
    driver.Check(driver.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    contexts[device].store(context, std::memory_order_release);
  }
  return context;
}

// Makes a device's primary context current for a scope, unless it already is.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : driver_(Driver::Get()) {
    const CUcontext wanted = PrimaryContext(device);
    CUcontext current = nullptr;
    driver_.Check(driver_.CtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == wanted) return;
    driver_.Check(driver_.CtxPushCurrent(wanted), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~DeviceScope() {
    CUcontext popped;
    if (pushed_) driver_.CtxPopCurrent(&popped);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// Whether a device's `stream` is being captured into a graph, which loading code would break.
inline bool IsCapturing(int device, void* stream) {
  const Driver& driver = Driver::Get();
  const DeviceScope scope(device);  // which a thread may lack, such as those of torch's autograd
  int status = 0;
  // An error means that this is the legacy stream, while another stream captures in global mode.
  return driver.StreamIsCapturing(static_cast<CUstream>(stream), &status) != 0 || status != 0;
}
