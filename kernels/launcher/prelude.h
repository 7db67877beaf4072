// The launcher turns an artifact into a tvm_ffi.Function. It is compiled as one text, the files of this folder joined
// in the order of launcher_source.py.
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

// Throws what is written to it. Unlike TVM-FFI's own errors, these have no backtrace: it would not help callers, and
// the first one took 1.2 s to read the debugging information of all libraries, including torch's.
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

// Like TVM_FFI_CHECK, but the message is only for the caller, without the failed condition.
#define JITNORM_CHECK(condition, ErrorKind) \
  if (!(condition)) JITNORM_THROW(ErrorKind)

// Like Function::FromPacked, but passes errors only through TVM-FFI's C interface: an exception of one C++ library does
// not survive in a caller built with another.
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
