// Runs RMSNorm + NVFP4 on a buffer with kernels built by jitnorm, without Python.
//
//   quantize CACHE [TARGET]
//
// CACHE: a cache folder of a user, a read-only tier or an unpacked wheel of kernels. TARGET: cpu (the default), or the
// first GPU's target, such as sm_90a. Prints the digests of codes and scales; exit status 0 if they are right, which
// is the same on every target.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "artifacts.h"
#include "device.h"
#include "sha256.h"

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kRows = 5, kHiddenSize = 4096, kBlockSize = 16;
// Other fields are those of contiguous, aligned tensors.
const char* const kConfig =
    "rmsnorm:hidden_size=4096,input=bfloat16,weight=bfloat16,unit_bias=false,residual=false,"
    "quant=e2m1/16/e4m3/linear/none,keep_norm=false,row_dims=1,vector_bytes=16,";
const char* const kCodesDigest = "1b7673c84e2c47696163dc5f3dfb0a42bbcfbab650b60c1d17371a268268f644";
const char* const kScalesDigest = "17ed92d898ee6719d72a75d4f7677b586bf3b512ef1a62252a89142489c2303d";

class Launcher {
 public:
  // Loaded from memory, so that exactly the verified bytes run.
  explicit Launcher(const Artifact& artifact) {
    const int file = memfd_create("jitnorm-launcher", 0);
    const std::string& bytes = artifact.payload;
    if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      TVM_FFI_THROW(RuntimeError) << "the launcher cannot be copied to memory";
    }
    library_ = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) TVM_FFI_THROW(RuntimeError) << "the launcher cannot be loaded: " << dlerror();
  }

  ffi::Function operator[](const std::string& name) const {
    const auto call = reinterpret_cast<TVMFFISafeCallType>(dlsym(library_, ("__tvm_ffi_" + name).c_str()));
    if (call == nullptr) TVM_FFI_THROW(RuntimeError) << "the launcher has no function " << name;
    return ffi::Function::FromExternC(nullptr, call, nullptr);
  }

 private:
  void* library_;
};

uint16_t BFloat16(float value) {  // exact for representable values
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

std::vector<uint16_t> Inputs() {
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < kRows * kHiddenSize; ++i)
    values.push_back(BFloat16(static_cast<float>(i * 37 % 251 - 125) / 16));
  return values;
}

std::vector<uint16_t> Weights() {
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < kHiddenSize; ++i) values.push_back(BFloat16(1 + static_cast<float>(i % 7) / 8));
  return values;
}

std::string MachineName() {
  utsname name;
  uname(&name);
  return name.machine;
}

bool RunsHere(const Artifact& artifact) {
  const auto found = artifact.manifest.find(ffi::String("requires"));
  if (found == artifact.manifest.end()) return true;
  return (*found).second.cast<ffi::json::Object>().at("machine").cast<ffi::String>() == MachineName();
}

bool Run(const std::string& cache, const std::string& target) {
  const Artifact launcher_artifact = FindArtifact(
      cache, "the launcher", [](const Artifact& a) { return a.Field("kind") == "launcher" && RunsHere(a); });
  const Artifact kernel_artifact = FindArtifact(cache, "the kernel", [&target](const Artifact& a) {
    return a.Field("config").rfind(kConfig, 0) == 0 && a.Field("target") == target && RunsHere(a);
  });
  const Launcher launcher(launcher_artifact);
  const ffi::Function kernel =
      launcher["load_kernel"](kernel_artifact.Field("recipe"), ffi::Bytes(kernel_artifact.payload))
          .cast<ffi::Function>();

  const std::unique_ptr<Device> device = target == "cpu" ? nullptr : std::make_unique<Device>(0);
  const ffi::Function allocate = launcher["allocate"];
  const auto make = [&](ffi::Shape shape, const char* dtype) {
    return allocate(shape, dtype, device ? 0 : -1).cast<ffi::Tensor>();
  };
  const auto write = [&](const ffi::Tensor& tensor, const std::vector<uint16_t>& values) {
    const size_t bytes = values.size() * sizeof(uint16_t);
    device ? device->CopyTo(tensor.data_ptr(), values.data(), bytes)
           : static_cast<void>(std::memcpy(tensor.data_ptr(), values.data(), bytes));
  };
  const auto digest = [&](const ffi::Tensor& tensor) {
    std::string bytes(static_cast<size_t>(tensor.numel()), '\0');
    device ? device->CopyFrom(bytes.data(), tensor.data_ptr(), bytes.size())
           : static_cast<void>(std::memcpy(bytes.data(), tensor.data_ptr(), bytes.size()));
    return Sha256(bytes);
  };

  const ffi::Tensor x = make({kRows, kHiddenSize}, "bfloat16"), weight = make({kHiddenSize}, "bfloat16");
  const ffi::Tensor codes = make({kRows, kHiddenSize / 2}, "uint8");
  const ffi::Tensor scales = make({kRows, kHiddenSize / kBlockSize}, "uint8");
  write(x, Inputs());
  write(weight, Weights());

  // In the order of jitnorm.kernels.interface, without the absent ones; the last is eps.
  kernel(x, weight, codes, scales, 1e-6);

  const std::string codes_digest = digest(codes), scales_digest = digest(scales);
  std::printf("codes  %s\nscales %s\n", codes_digest.c_str(), scales_digest.c_str());
  return codes_digest == kCodesDigest && scales_digest == kScalesDigest;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s CACHE [TARGET]\n", argv[0]);
    return 2;
  }
  try {
    if (Run(argv[1], argc == 3 ? argv[2] : "cpu")) return 0;
    std::fprintf(stderr, "error: the bytes differ from those of the reference\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
