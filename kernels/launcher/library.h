// Shared objects, loaded from memory so that exactly the verified bytes run, and never unloaded.

// A file in memory, open for a scope.
class MemoryFile {
 public:
  explicit MemoryFile(const ffi::Bytes& content) : descriptor_(memfd_create("jitnorm", MFD_CLOEXEC)) {
    JITNORM_CHECK(descriptor_ >= 0, RuntimeError) << "cannot load the kernel: memfd_create: " << std::strerror(errno);
    for (size_t done = 0; done < content.size();) {
      const ssize_t written = write(descriptor_, content.data() + done, content.size() - done);
      const int error = errno;
      if (written <= 0) close(descriptor_);
      JITNORM_CHECK(written > 0, RuntimeError) << "cannot copy the kernel to memory: " << std::strerror(error);
      done += static_cast<size_t>(written);
    }
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Unique each time. The dynamic linker identifies libraries by name, and the numbers of closed descriptors are
  // reused. A prefix therefore encodes, in binary, the number of this path and the address of the counter, which
  // differs between launchers: "/." is a one and "/" is a zero.
  std::string UniquePath() const {
    static std::atomic<uint64_t> paths{0};
    std::string path = "/proc/self/fd";
    for (const uint64_t number : {++paths, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&paths))}) {
      for (int bit = 0; bit < 64; ++bit) path += (number >> bit & 1) != 0 ? "/." : "/";
    }
    return path + "/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

// The dynamic linker's last error, without the meaningless path.
inline std::string LinkerError(const std::string& path) {
  if (access("/proc/self/fd", F_OK) != 0) return "/proc is not mounted, but code in memory is loaded through it";
  const std::string text = dlerror(), prefix = path + ": ";
  return text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : text;
}

inline void* LoadLibrary(const ffi::Bytes& content) {
  const MemoryFile file(content);
  const std::string path = file.UniquePath();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  JITNORM_CHECK(library != nullptr, RuntimeError) << "cannot load the kernel: " << LinkerError(path);
  // The linker also identifies libraries by inode numbers, which wrap around after four billion.
  const link_map* loaded = nullptr;
  JITNORM_CHECK(dlinfo(library, RTLD_DI_LINKMAP, &loaded) == 0 && path == loaded->l_name, RuntimeError)
      << "cannot load the kernel: the dynamic linker mistakes it for another library; try again";
  return library;
}
