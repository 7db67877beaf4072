/* Calls of an NFS server, version 3, which wait for their answers, and the files that they are about. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <nfsc/libnfs.h>
/* After it. */
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-nlm.h>
#include <nfsc/libnfs-raw.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MICROSECONDS 50000
#define CHUNK 65536

/* A file or folder that the kernel knows; its address is the kernel's number of it. */
struct node {
  struct node* next;
  unsigned length;
  char handle[NFS3_FHSIZE];
  uint64_t lookups;
  int opens;
  int is_written;      /* since its last commit */
  uint64_t locked_by;  /* who has locked it on this mount; 0 for nobody */
  struct node* folder; /* where it is hidden */
  char hidden[40];     /* its name if it was removed while open, or empty */
};

/* What a call finds. */
struct found {
  unsigned length;
  char handle[NFS3_FHSIZE];
  int has_attributes;
  fattr3 attributes;
};

static const char* server;
static struct rpc_context *files, *locks; /* connections; none before they are needed, and after they break */
static struct node root = {.lookups = 1};

/* ---- Calls of the server ---- */

typedef void take_t(void* to, void* result); /* takes what is needed from a result, which does not last */
typedef int ask_t(struct rpc_context* rpc, rpc_cb finish, void* arguments, void* call);

struct call {
  int is_done, is_answered, status;
  take_t* take;
  void* to;
};

static void finish(struct rpc_context* rpc, int status, void* result, void* data) {
  struct call* call = data;
  (void)rpc;
  call->is_done = 1;
  call->is_answered = status == RPC_STATUS_SUCCESS;
  if (!call->is_answered || !result) return;
  call->status = *(int*)result; /* every result of NFS and of MOUNT begins with it */
  if (call->take && !call->status) call->take(call->to, result);
}

static int is_answered(struct rpc_context* rpc, struct call* call) {
  while (!call->is_done) {
    struct pollfd wait = {.fd = rpc_get_fd(rpc), .events = rpc_which_events(rpc)};
    if (poll(&wait, 1, 1000) < 0 || rpc_service(rpc, wait.revents) < 0) break;
  }
  return call->is_done && call->is_answered;
}

static struct rpc_context* connect_to(int program, int version) {
  for (;; usleep(RETRY_MICROSECONDS)) {
    struct rpc_context* rpc = rpc_init_context();
    struct call call = {0};
    if (!rpc_connect_program_async(rpc, server, program, version, finish, &call) && is_answered(rpc, &call)) return rpc;
    rpc_destroy_context(rpc);
  }
}

/* Asks until there is an answer, over a new connection whenever one breaks. Returns the status. */
static int ask(struct rpc_context** rpc, int program, int version, void* function, void* arguments, take_t* take,
               void* to) {
  for (;;) {
    struct call call = {.take = take, .to = to};
    if (!*rpc) *rpc = connect_to(program, version);
    if (!((ask_t*)function)(*rpc, finish, arguments, &call) && is_answered(*rpc, &call)) {
      if (program != NFS_PROGRAM || call.status != NFS3ERR_JUKEBOX) return call.status;
      usleep(RETRY_MICROSECONDS);
    } else {
      rpc_destroy_context(*rpc);
      *rpc = NULL;
    }
  }
}

/* Makes a call of NFS; returns 0 or an error number. */
static int nfs(void* function, void* arguments, take_t* take, void* to) {
  const int status = ask(&files, NFS_PROGRAM, NFS_V3, function, arguments, take, to);
  return status ? -nfsstat3_to_errno(status) : 0;
}

/* ---- What is found ---- */

static struct node* node_at(fuse_ino_t number) {
  return number == FUSE_ROOT_ID ? &root : (struct node*)(uintptr_t)number;
}

static nfs_fh3 fh(const struct node* node) { return (nfs_fh3){{node->length, (char*)node->handle}}; }

static diropargs3 in(const struct node* folder, const char* name) { return (diropargs3){fh(folder), (char*)name}; }

static struct node* known(const struct found* found) {
  struct node* node = &root;
  while (node && (node->length != found->length || memcmp(node->handle, found->handle, found->length))) {
    node = node->next;
  }
  return node;
}

static struct node* node_of(const struct found* found) {
  struct node* node = known(found);
  if (node) return node;
  node = calloc(1, sizeof *node);
  node->length = found->length;
  memcpy(node->handle, found->handle, found->length);
  node->next = root.next;
  return root.next = node;
}

static void forget(struct node* node, uint64_t lookups) {
  struct node** at = &root.next;
  node->lookups -= lookups;
  if (node->lookups || node == &root) return;
  while (*at != node) at = &(*at)->next;
  *at = node->next;
  free(node);
}

static void take_handle(struct found* found, const nfs_fh3* handle) {
  found->length = handle->data.data_len;
  memcpy(found->handle, handle->data.data_val, found->length);
}

static void take_attributes(void* to, void* result) {
  struct found* found = to;
  found->has_attributes = 1;
  found->attributes = ((GETATTR3res*)result)->GETATTR3res_u.resok.obj_attributes;
}

static void take_found(void* to, void* result) {
  struct found* found = to;
  const LOOKUP3resok* answer = &((LOOKUP3res*)result)->LOOKUP3res_u.resok;
  take_handle(found, &answer->object);
  found->has_attributes = answer->obj_attributes.attributes_follow;
  found->attributes = answer->obj_attributes.post_op_attr_u.attributes;
}

static void take_created(void* to, void* result) { /* of a file, or of a folder, whose result has the same members */
  const CREATE3resok* answer = &((CREATE3res*)result)->CREATE3res_u.resok;
  if (answer->obj.handle_follows) take_handle(to, &answer->obj.post_op_fh3_u.handle);
}

static int get_attributes(const struct node* node, struct found* found) {
  GETATTR3args arguments = {fh(node)};
  return nfs(rpc_nfs3_getattr_async, &arguments, take_attributes, found);
}

static int find(const struct node* folder, const char* name, struct found* found) {
  LOOKUP3args arguments = {in(folder, name)};
  return nfs(rpc_nfs3_lookup_async, &arguments, take_found, found);
}

static struct stat stat_of(const fattr3* from) {
  static const mode_t kinds[] = {0, S_IFREG, S_IFDIR, S_IFBLK, S_IFCHR, S_IFLNK, S_IFSOCK, S_IFIFO};
  return (struct stat){
      .st_mode = kinds[from->type] | from->mode,
      .st_nlink = from->nlink,
      .st_uid = from->uid,
      .st_gid = from->gid,
      .st_size = from->size,
      .st_blocks = (from->used + 511) / 512,
      .st_blksize = CHUNK,
      .st_ino = from->fileid,
      .st_atim = {from->atime.seconds, from->atime.nseconds},
      .st_mtim = {from->mtime.seconds, from->mtime.nseconds},
      .st_ctim = {from->ctime.seconds, from->ctime.nseconds},
  };
}

/* ---- Changes ---- */

static nfstime3 time_of(struct timespec time) { return (nfstime3){time.tv_sec, time.tv_nsec}; }

static sattr3 changes(const struct stat* to, int which) {
  sattr3 change = {0};
  change.mode.set_it = !!(which & FUSE_SET_ATTR_MODE);
  change.mode.set_mode3_u.mode = to->st_mode & 07777;
  change.uid.set_it = !!(which & FUSE_SET_ATTR_UID);
  change.uid.set_uid3_u.uid = to->st_uid;
  change.gid.set_it = !!(which & FUSE_SET_ATTR_GID);
  change.gid.set_gid3_u.gid = to->st_gid;
  change.size.set_it = !!(which & FUSE_SET_ATTR_SIZE);
  change.size.set_size3_u.size = to->st_size;
  if (which & FUSE_SET_ATTR_ATIME) change.atime.set_it = SET_TO_CLIENT_TIME;
  if (which & FUSE_SET_ATTR_ATIME_NOW) change.atime.set_it = SET_TO_SERVER_TIME;
  change.atime.set_atime_u.atime = time_of(to->st_atim);
  if (which & FUSE_SET_ATTR_MTIME) change.mtime.set_it = SET_TO_CLIENT_TIME;
  if (which & FUSE_SET_ATTR_MTIME_NOW) change.mtime.set_it = SET_TO_SERVER_TIME;
  change.mtime.set_mtime_u.mtime = time_of(to->st_mtim);
  return change;
}

static int set_attributes(const struct node* node, const struct stat* to, int which) {
  SETATTR3args arguments = {.object = fh(node), .new_attributes = changes(to, which)};
  return nfs(rpc_nfs3_setattr_async, &arguments, NULL, NULL);
}

static int rename_on_server(const struct node* from, const char* name, const struct node* to, const char* name_there) {
  RENAME3args arguments = {in(from, name), in(to, name_there)};
  return nfs(rpc_nfs3_rename_async, &arguments, NULL, NULL);
}

/* Creates a file; one that must be new bears a mark, by which the server knows the request if it comes again. */
static int create(const struct node* folder, const char* name, mode_t mode, int is_new, struct found* found) {
  const struct stat wanted = {.st_mode = mode};
  CREATE3args arguments = {.where = in(folder, name), .how = {.mode = is_new ? EXCLUSIVE : UNCHECKED}};
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (is_new) {
    const uint64_t mark = (uint64_t)getpid() << 40 ^ (uint64_t)now.tv_sec * 1000000000u ^ now.tv_nsec;
    memcpy(arguments.how.createhow3_u.verf, &mark, sizeof mark);
  } else {
    arguments.how.createhow3_u.obj_attributes = changes(&wanted, FUSE_SET_ATTR_MODE);
  }
  int error = nfs(rpc_nfs3_create_async, &arguments, take_created, found);
  if (error) return error;
  if (!found->length) return EIO;
  const int which = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
  return is_new ? set_attributes(node_of(found), &wanted, which) : 0;
}

static void take_lock(void* to, void* result) { /* called as cookies, with which results begin, are empty */
  *(nlmstat4*)to = ((NLM4_LOCKres*)result)->status;
}

/* Locks a file on the server, or frees it; returns 0 or an error number. */
static int lock_on_server(const struct node* node, uint64_t owner, int is_wanted) {
  char host[65] = "", name[32];
  nlmstat4 status = NLM4_FAILED;
  gethostname(host, sizeof host - 1);
  snprintf(name, sizeof name, "%d", getpid());
  const nlm4_lock lock = {host, {{node->length, (char*)node->handle}}, name, (unsigned)owner, 0, 0};
  if (is_wanted) {
    NLM4_LOCKargs arguments = {.exclusive = 1, .lock = lock};
    ask(&locks, NLM_PROGRAM, NLM_V4, rpc_nlm4_lock_async, &arguments, take_lock, &status);
  } else {
    NLM4_UNLOCKargs arguments = {.lock = lock};
    ask(&locks, NLM_PROGRAM, NLM_V4, rpc_nlm4_unlock_async, &arguments, take_lock, &status);
  }
  if (status == NLM4_GRANTED) return 0;
  return status == NLM4_DENIED || status == NLM4_BLOCKED ? EAGAIN : status == NLM4_STALE_FH ? ESTALE : ENOLCK;
}
