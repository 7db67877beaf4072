// The functions that the launcher exports through TVM-FFI.
namespace {

ffi::Array<int64_t> DeviceCapability(int64_t device) {
  const Driver& driver = Driver::Get();
  int count = 0, major = 0, minor = 0;
  driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount");
  JITNORM_CHECK(device >= 0 && device < count, ValueError)
      << "device: cuda:" << device << " does not exist; there are " << count;
  driver.Check(driver.DeviceGetAttribute(&major, kCapabilityMajor, static_cast<int>(device)), "cuDeviceGetAttribute");
  driver.Check(driver.DeviceGetAttribute(&minor, kCapabilityMinor, static_cast<int>(device)), "cuDeviceGetAttribute");
  return {major, minor};
}

ffi::String DeviceNameOf(int64_t device) {
  const Driver& driver = Driver::Get();
  char name[256] = {};
  driver.Check(driver.DeviceGetName(name, sizeof(name) - 1, static_cast<int>(device)), "cuDeviceGetName");
  return name;
}

int64_t DeviceCount() {
  int count = 0;
  Driver::Get().Check(Driver::Get().DeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

int64_t DriverVersion() {
  int version = 0;
  Driver::Get().Check(Driver::Get().DriverGetVersion(&version), "cuDriverGetVersion");
  return version;
}

// Five functions: one dispatches a call and returns None or the facts of a miss; one learns (kernel, *call); one
// returns the facts of a call; one its kernel, or None on a miss; one makes a function of Python for torch's calls.
ffi::Array<ffi::Function> MakeDispatcher(const ffi::String& signature) {
  auto dispatcher = std::make_shared<Dispatcher>(signature);
  return {MakeFunction([dispatcher](ffi::PackedArgs args, ffi::Any* result) { *result = dispatcher->Call(args); }),
          MakeFunction([dispatcher](ffi::PackedArgs args, ffi::Any*) {
            dispatcher->Learn(args[0].cast<ffi::Function>(), args.Slice(1));
          }),
          MakeFunction([dispatcher](ffi::PackedArgs args, ffi::Any* result) { *result = dispatcher->Facts(args); }),
          MakeFunction([dispatcher](ffi::PackedArgs args, ffi::Any* result) {
            if (const ffi::Function* kernel = dispatcher->KernelOf(args)) *result = *kernel;
          }),
          MakeFunction(
              [dispatcher](ffi::PackedArgs args, ffi::Any* result) { *result = MakeTorchCall(dispatcher, args); })};
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(load_kernel, LoadKernel)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(make_checker, MakeChecker)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(make_dispatcher, MakeDispatcher)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(make_known, MakeKnown)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bind, Bind)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(allocate, Allocate)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in, StandIn)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stand_in_view, StandInView)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(at_address, AtAddress)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(merge_last_two, MergeLastTwo)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reinterpret, Reinterpret)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(permute, Permute)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(device_count, DeviceCount)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(device_name, DeviceNameOf)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(device_capability, DeviceCapability)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(driver_version, DriverVersion)
