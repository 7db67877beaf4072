/* Has a file system answer as NFS does: preloaded into a process, which turns it on by a function call.
 *
 * A request whose answer is lost is sent again, and fails as it has been carried out. Files that are removed while they
 * are open here get another name until they are closed; those that others removed are stale. Only files that are open
 * for writing can be locked exclusively. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 1024

static unsigned one_in;
static unsigned state;
static atomic_long happened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char* renamed[FILES]; /* by descriptor: what a file that was removed is called now */

/* Have one answer of some be lost, from a seed; none if 0. Returns what has happened so far that no local disk does. */
long fire_nfs(unsigned seed, unsigned answers) {
  state = seed | 1;
  one_in = answers;
  return happened;
}

static int is_lost(int number) {
  if (!one_in) return 0;
  state = state * 1664525u + 1013904223u;
  if ((state >> 16) % one_in) return 0;
  ++happened;
  errno = number;
  return 1;
}

#define REAL(type, name, parameters) \
  static type(*real) parameters;     \
  if (!real) *(void**)(&real) = dlsym(RTLD_NEXT, #name);

int rename(const char* from, const char* to) {
  REAL(int, rename, (const char*, const char*))
  const int result = real(from, to);
  return result == 0 && is_lost(ENOENT) ? -1 : result;
}

int mkdir(const char* path, mode_t mode) {
  REAL(int, mkdir, (const char*, mode_t))
  const int result = real(path, mode);
  return result == 0 && is_lost(EEXIST) ? -1 : result;
}

int rmdir(const char* path) {
  REAL(int, rmdir, (const char*))
  const int result = real(path);
  return result == 0 && is_lost(ENOENT) ? -1 : result;
}

/* A descriptor of a file that is open here; -1 if there is none. */
static int descriptor_of(const struct stat* file) {
  struct stat found;
  for (int fd = 3; fd < FILES; ++fd) {
    if (fstat(fd, &found) == 0 && found.st_ino == file->st_ino && found.st_dev == file->st_dev) return fd;
  }
  return -1;
}

/* Give a file that is open here another name, also in an open folder; whether that was done. */
static int rename_silly(int folder, const char* path) {
  static unsigned long number;
  struct stat file;
  if (!one_in || fstatat(folder, path, &file, AT_SYMLINK_NOFOLLOW) || !S_ISREG(file.st_mode)) return 0;
  const int fd = descriptor_of(&file);
  char link[64], now[PATH_MAX], other[PATH_MAX + 64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = fd < 0 ? -1 : readlink(link, now, sizeof now - 1);
  if (size < 0) return 0;
  now[size] = 0;
  const int head = (int)(strrchr(now, '/') - now);
  snprintf(other, sizeof other, "%.*s/.nfs%d-%lu", head, now, getpid(), ++number);
  if (renameat(AT_FDCWD, now, AT_FDCWD, other)) return 0;
  free(renamed[fd]);
  renamed[fd] = strdup(other);
  ++happened;
  return 1;
}

int unlinkat(int folder, const char* path, int flags) {
  REAL(int, unlinkat, (int, const char*, int))
  pthread_mutex_lock(&lock);
  const int is_renamed = !(flags & AT_REMOVEDIR) && rename_silly(folder, path);
  pthread_mutex_unlock(&lock);
  const int result = is_renamed ? 0 : real(folder, path, flags);
  return result == 0 && is_lost(ENOENT) ? -1 : result;
}

int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

int close(int fd) {
  REAL(int, close, (int))
  char* name = NULL;
  if (fd >= 0 && fd < FILES) {
    pthread_mutex_lock(&lock);
    name = renamed[fd];
    renamed[fd] = NULL;
    pthread_mutex_unlock(&lock);
  }
  const int result = real(fd);
  if (name) {
    REAL(int, unlinkat, (int, const char*, int))
    real(AT_FDCWD, name, 0);
    free(name);
  }
  return result;
}

ssize_t read(int fd, void* data, size_t size) {
  REAL(ssize_t, read, (int, void*, size_t))
  struct stat file;
  if (one_in && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0) {
    ++happened;
    errno = ESTALE;
    return -1;
  }
  return real(fd, data, size);
}

int flock(int fd, int operation) {
  REAL(int, flock, (int, int))
  if (one_in && (operation & LOCK_EX) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
    ++happened;
    errno = EBADF;
    return -1;
  }
  return real(fd, operation);
}
