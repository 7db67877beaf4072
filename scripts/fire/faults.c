/* Makes one of the next system calls fail: preloaded into a process, which arms it by a function call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long countdown;
static int error_number;

/* Have the n-th call from now on fail; 0 to let all succeed. Returns how many were still to come. */
long fire_arm(long n, int number) {
  error_number = number;
  return atomic_exchange(&countdown, n);
}

static int fails(void) {
  if (atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1) return 0;
  errno = error_number;
  return 1;
}

#define WRAP(type, name, parameters, arguments)             \
  type name parameters {                                    \
    static type(*real) parameters;                          \
    if (!real) *(void**)(&real) = dlsym(RTLD_NEXT, #name);  \
    if (fails()) return (type)-1;                           \
    return real arguments;                                  \
  }

WRAP(ssize_t, read, (int fd, void* data, size_t size), (fd, data, size))
WRAP(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, flock, (int fd, int operation), (fd, operation))
WRAP(int, rename, (const char* from, const char* to), (from, to))
WRAP(int, mkdir, (const char* path, mode_t mode), (path, mode))
WRAP(int, unlink, (const char* path), (path))
WRAP(int, unlinkat, (int fd, const char* path, int flags), (fd, path, flags))
WRAP(int, rmdir, (const char* path), (path))
WRAP(int, fstat64, (int fd, struct stat64* found), (fd, found))
WRAP(int, fstat, (int fd, struct stat* found), (fd, found))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size))

#define WRAP_OPEN(name, parameters, arguments)              \
  int name parameters {                                     \
    static int(*real) parameters;                           \
    mode_t mode = 0;                                        \
    va_list rest;                                           \
    va_start(rest, flags);                                  \
    if (flags & O_CREAT) mode = va_arg(rest, mode_t);       \
    va_end(rest);                                           \
    if (!real) *(void**)(&real) = dlsym(RTLD_NEXT, #name);  \
    if (fails()) return -1;                                 \
    return real arguments;                                  \
  }

WRAP_OPEN(open, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int fd, const char* path, int flags, ...), (fd, path, flags, mode))
WRAP_OPEN(openat64, (int fd, const char* path, int flags, ...), (fd, path, flags, mode))
