// Copies between the host and a CUDA device through the driver, loaded at run time.
#pragma once

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstdint>

class Device {
 public:
  // Makes the device's primary context current, which the launcher uses too.
  explicit Device(int ordinal) {
    library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) TVM_FFI_THROW(RuntimeError) << "there is no CUDA driver: " << dlerror();
    Call<unsigned>("cuInit", 0);
    void* context = nullptr;
    Call<void**, int>("cuDevicePrimaryCtxRetain", &context, ordinal);
    Call<void*>("cuCtxSetCurrent", context);
  }

  void CopyTo(void* device, const void* host, size_t bytes) const {
    Call<uint64_t, const void*, size_t>("cuMemcpyHtoD_v2", reinterpret_cast<uint64_t>(device), host, bytes);
  }

  // Waits for the default stream.
  void CopyFrom(void* host, const void* device, size_t bytes) const {
    Call<void*, uint64_t, size_t>("cuMemcpyDtoH_v2", host, reinterpret_cast<uint64_t>(device), bytes);
  }

 private:
  template <typename... Arguments>
  void Call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    if (function == nullptr) TVM_FFI_THROW(RuntimeError) << "the CUDA driver has no " << name;
    if (const int status = function(arguments...)) TVM_FFI_THROW(RuntimeError) << name << ": CUDA error " << status;
  }

  void* library_;
};
