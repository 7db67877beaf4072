// The launcher: turns an artifact into a tvm_ffi.Function. It is compiled as one text, the files of this folder one
// after another in the order of launcher_source.py.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ffi = tvm::ffi;

// Throws what is written to it. Unlike TVM-FFI's own, the error has no backtrace: it would tell callers nothing, and
// the first one took 1.2 s, for which the debugging information of all libraries is read, torch's among them.
class ErrorMessage {
 public:
  explicit ErrorMessage(const char* kind) : kind_(kind) {}
  [[noreturn]] ~ErrorMessage() noexcept(false) { throw ffi::Error(kind_, stream_.str(), ""); }
  ErrorMessage(const ErrorMessage&) = delete;
  ErrorMessage& operator=(const ErrorMessage&) = delete;

  std::ostringstream& stream() { return stream_; }

 private:
  const char* kind_;
  std::ostringstream stream_;
};

#define JITNORM_THROW(ErrorKind) ErrorMessage(#ErrorKind).stream()

// Like TVM_FFI_CHECK, but the message says only what the caller has to know, not the condition that failed.
#define JITNORM_CHECK(condition, ErrorKind) \
  if (!(condition)) JITNORM_THROW(ErrorKind)

// Like Function::FromPacked, but errors leave it by TVM-FFI's C interface only: an exception of one C++ library would
// not survive a caller that was built with another.
template <typename Callable>
ffi::Function MakeFunction(Callable callable) {
  const auto call = [](void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) -> int {
    TVM_FFI_SAFE_CALL_BEGIN();
    (*static_cast<Callable*>(self))(ffi::PackedArgs(reinterpret_cast<const ffi::AnyView*>(args), count),
                                    reinterpret_cast<ffi::Any*>(result));
    TVM_FFI_SAFE_CALL_END();
  };
  return ffi::Function::FromExternC(new Callable(std::move(callable)), call,
                                    [](void* self) { delete static_cast<Callable*>(self); });
}
