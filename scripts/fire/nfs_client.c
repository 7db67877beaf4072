/* Mounts an export of an NFS server, version 3, where the kernel cannot: libnfs talks to the server, FUSE to the
 * kernel.
 *
 *     nfs_client SERVER EXPORT FOLDER SECONDS LOCKS
 *
 * As with the kernel's client, files are known by the server's handles, so that what another client has removed is
 * stale; names and attributes are trusted for SECONDS; a file that is removed while it is open here is called .nfs...
 * until it is closed; a server that is gone is waited for and asked again, even to do what it has done. Locks hold on
 * this mount alone or, if LOCKS is 1, among all by NLM; a server that is killed forgets them. SIGTERM unmounts. */
#include "nfs_calls.h"

static double seconds; /* for which the kernel trusts names and attributes */

/* ---- Answers to the kernel ---- */

/* Gives the kernel a file that it did not know; returns 0 or an error number. */
static int enter(struct found* found, struct fuse_entry_param* entry) {
  struct node* node = node_of(found);
  const int error = found->has_attributes ? 0 : get_attributes(node, found);
  node->lookups++;
  if (error) {
    forget(node, 1);
    return error;
  }
  *entry = (struct fuse_entry_param){.ino = (uintptr_t)node, .attr_timeout = seconds, .entry_timeout = seconds};
  if (node == &root) entry->ino = FUSE_ROOT_ID;
  entry->attr = stat_of(&found->attributes);
  return 0;
}

static void reply_entry(fuse_req_t request, int error, struct found* found) {
  struct fuse_entry_param entry = {.entry_timeout = seconds};
  if (!error) error = enter(found, &entry);
  if (error == ENOENT) {
    fuse_reply_entry(request, &entry); /* the kernel may remember that there is none */
  } else if (error) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

/* ---- Names ---- */

static void on_lookup(fuse_req_t request, fuse_ino_t folder, const char* name) {
  struct found found = {0};
  const int error = find(node_at(folder), name, &found);
  reply_entry(request, error, &found);
}

static void on_forget(fuse_req_t request, fuse_ino_t number, uint64_t lookups) {
  forget(node_at(number), lookups);
  fuse_reply_none(request);
}

static void on_mkdir(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode) {
  struct found found = {0};
  MKDIR3args arguments = {.where = in(node_at(folder), name)};
  arguments.attributes.mode.set_it = 1;
  arguments.attributes.mode.set_mode3_u.mode = mode & 07777;
  int error = nfs(rpc_nfs3_mkdir_async, &arguments, take_created, &found);
  if (!error && !found.length) error = EIO;
  if (error) {
    fuse_reply_err(request, error);
  } else {
    reply_entry(request, 0, &found);
  }
}

/* Hides what is about to lose its name while it is open here; whether it did. */
static int hide(struct node* folder, const char* name) {
  static unsigned number;
  struct found found = {0};
  struct node* node = find(folder, name, &found) ? NULL : known(&found);
  char hidden[sizeof node->hidden];
  if (!node || !node->opens || node->hidden[0]) return 0;
  snprintf(hidden, sizeof hidden, ".nfs%016x%08x", getpid(), ++number);
  if (rename_on_server(folder, name, folder, hidden)) return 0;
  strcpy(node->hidden, hidden);
  node->folder = folder;
  folder->lookups++;
  return 1;
}

static void on_unlink(fuse_req_t request, fuse_ino_t folder, const char* name) {
  REMOVE3args arguments = {in(node_at(folder), name)};
  const int is_hidden = hide(node_at(folder), name);
  fuse_reply_err(request, is_hidden ? 0 : nfs(rpc_nfs3_remove_async, &arguments, NULL, NULL));
}

static void on_rmdir(fuse_req_t request, fuse_ino_t folder, const char* name) {
  RMDIR3args arguments = {in(node_at(folder), name)};
  fuse_reply_err(request, nfs(rpc_nfs3_rmdir_async, &arguments, NULL, NULL));
}

static void on_rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to, const char* name_there,
                      unsigned flags) {
  if (flags) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  hide(node_at(to), name_there);
  fuse_reply_err(request, rename_on_server(node_at(from), name, node_at(to), name_there));
}

struct listing {
  fuse_req_t request;
  char* page;
  size_t size, used;
  int is_full;
  char* verifier;
};

static void take_names(void* to, void* result) {
  struct listing* list = to;
  const READDIR3resok* answer = &((READDIR3res*)result)->READDIR3res_u.resok;
  memcpy(list->verifier, answer->cookieverf, NFS3_COOKIEVERFSIZE);
  for (const entry3* each = answer->reply.entries; each && !list->is_full; each = each->nextentry) {
    const struct stat attributes = {.st_ino = each->fileid};
    const size_t left = list->size - list->used;
    const size_t length =
        fuse_add_direntry(list->request, list->page + list->used, left, each->name, &attributes, each->cookie);
    list->is_full = length > left;
    if (!list->is_full) list->used += length;
  }
}

static void on_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  (void)number;
  file->fh = (uintptr_t)calloc(1, NFS3_COOKIEVERFSIZE);
  fuse_reply_open(request, file);
}

static void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info* file) {
  struct listing list = {request, malloc(size), size, .verifier = (char*)(uintptr_t)file->fh};
  READDIR3args arguments = {.dir = fh(node_at(number)), .cookie = offset, .count = 8192};
  memcpy(arguments.cookieverf, list.verifier, NFS3_COOKIEVERFSIZE);
  const int error = nfs(rpc_nfs3_readdir_async, &arguments, take_names, &list);
  if (error) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_buf(request, list.page, list.used);
  }
  free(list.page);
}

static void on_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  (void)number;
  free((void*)(uintptr_t)file->fh);
  fuse_reply_err(request, 0);
}

static void on_fsyncdir(fuse_req_t request, fuse_ino_t number, int data, struct fuse_file_info* file) {
  (void)number, (void)data, (void)file; /* servers answer when a name is on the disk */
  fuse_reply_err(request, 0);
}

/* ---- Attributes ---- */

static void reply_attributes(fuse_req_t request, int error, const struct node* node) {
  struct found found = {0};
  if (!error) error = get_attributes(node, &found);
  if (error) {
    fuse_reply_err(request, error);
  } else {
    const struct stat attributes = stat_of(&found.attributes);
    fuse_reply_attr(request, &attributes, seconds);
  }
}

static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  (void)file;
  reply_attributes(request, 0, node_at(number));
}

static void on_setattr(fuse_req_t request, fuse_ino_t number, struct stat* to, int which, struct fuse_file_info* file) {
  (void)file;
  reply_attributes(request, set_attributes(node_at(number), to, which), node_at(number));
}

static void take_space(void* to, void* result) {
  const FSSTAT3resok* answer = &((FSSTAT3res*)result)->FSSTAT3res_u.resok;
  *(struct statvfs*)to = (struct statvfs){
      .f_bsize = 4096,
      .f_frsize = 4096,
      .f_blocks = answer->tbytes / 4096,
      .f_bfree = answer->fbytes / 4096,
      .f_bavail = answer->abytes / 4096,
      .f_files = answer->tfiles,
      .f_ffree = answer->ffiles,
      .f_favail = answer->afiles,
      .f_namemax = 255,
  };
}

static void on_statfs(fuse_req_t request, fuse_ino_t number) {
  struct statvfs space;
  FSSTAT3args arguments = {fh(node_at(number))};
  const int error = nfs(rpc_nfs3_fsstat_async, &arguments, take_space, &space);
  if (error) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_statfs(request, &space);
  }
}

/* ---- Files ---- */

static void on_create(fuse_req_t request, fuse_ino_t folder, const char* name, mode_t mode,
                      struct fuse_file_info* file) {
  struct found found = {0};
  struct fuse_entry_param entry;
  int error = create(node_at(folder), name, mode, !!(file->flags & O_EXCL), &found);
  if (!error) error = enter(&found, &entry);
  if (error) {
    fuse_reply_err(request, error);
  } else {
    node_at(entry.ino)->opens++;
    fuse_reply_create(request, &entry, file);
  }
}

static void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  struct found found = {0};
  const int error = get_attributes(node_at(number), &found);
  if (error) {
    fuse_reply_err(request, error);
  } else {
    node_at(number)->opens++;
    fuse_reply_open(request, file);
  }
}

struct piece {
  char* bytes;
  size_t length;
  int is_last;
};

static void take_bytes(void* to, void* result) {
  struct piece* piece = to;
  const READ3resok* answer = &((READ3res*)result)->READ3res_u.resok;
  memcpy(piece->bytes + piece->length, answer->data.data_val, answer->data.data_len);
  piece->length += answer->data.data_len;
  piece->is_last = answer->eof || !answer->data.data_len;
}

static void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info* file) {
  struct piece piece = {.bytes = malloc(size)};
  int error = 0;
  (void)file;
  while (!error && !piece.is_last && piece.length < size) {
    const size_t left = size - piece.length;
    READ3args arguments = {fh(node_at(number)), offset + piece.length, left < CHUNK ? left : CHUNK};
    error = nfs(rpc_nfs3_read_async, &arguments, take_bytes, &piece);
  }
  if (error) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_buf(request, piece.bytes, piece.length);
  }
  free(piece.bytes);
}

static void take_count(void* to, void* result) { *(size_t*)to += ((WRITE3res*)result)->WRITE3res_u.resok.count; }

static void on_write(fuse_req_t request, fuse_ino_t number, const char* bytes, size_t size, off_t offset,
                     struct fuse_file_info* file) {
  struct node* node = node_at(number);
  struct found found = {0};
  size_t written = 0;
  int error = 0;
  if (file->flags & O_APPEND) { /* at the end that the file has now; two clients may think the same of it */
    error = get_attributes(node, &found);
    offset = found.attributes.size;
  }
  while (!error && written < size) {
    const size_t left = size - written, length = left < CHUNK ? left : CHUNK;
    WRITE3args arguments = {fh(node), offset + written, length, UNSTABLE, {length, (char*)bytes + written}};
    error = nfs(rpc_nfs3_write_async, &arguments, take_count, &written);
  }
  node->is_written = 1;
  if (error) {
    fuse_reply_err(request, error);
  } else {
    fuse_reply_write(request, written);
  }
}

/* Has what was written kept. A server that is killed keeps it anyway, as its machine goes on. */
static int commit(struct node* node) {
  COMMIT3args arguments = {.file = fh(node)};
  const int error = node->is_written ? nfs(rpc_nfs3_commit_async, &arguments, NULL, NULL) : 0;
  node->is_written = 0;
  return error;
}

static void on_flush(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  (void)file;
  fuse_reply_err(request, commit(node_at(number)));
}

static void on_fsync(fuse_req_t request, fuse_ino_t number, int data, struct fuse_file_info* file) {
  (void)data, (void)file;
  fuse_reply_err(request, commit(node_at(number)));
}

/* ---- Locks ---- */

static int unlock(struct node* node, uint64_t owner) {
  if (node->locked_by != owner) return 0;
  node->locked_by = 0;
  return lock_on_server(node, owner, 0);
}

static void on_flock(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file, int operation) {
  struct node* node = node_at(number);
  int error = 0;
  if (operation & LOCK_UN) {
    error = unlock(node, file->lock_owner);
  } else if (node->locked_by != file->lock_owner) {
    /* There are neither shared locks nor waits: the cache has none. */
    if (operation != (LOCK_EX | LOCK_NB)) {
      error = ENOTSUP;
    } else if (node->locked_by) {
      error = EAGAIN;
    } else {
      error = lock_on_server(node, file->lock_owner, 1);
    }
    if (!error) node->locked_by = file->lock_owner;
  }
  fuse_reply_err(request, error);
}

static void on_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info* file) {
  struct node* node = node_at(number);
  if (file->flock_release) unlock(node, file->lock_owner);
  if (!--node->opens && node->hidden[0]) {
    REMOVE3args arguments = {in(node->folder, node->hidden)};
    nfs(rpc_nfs3_remove_async, &arguments, NULL, NULL);
    forget(node->folder, 1);
    node->hidden[0] = 0;
  }
  fuse_reply_err(request, 0);
}

/* ---- The mount ---- */

static struct fuse_lowlevel_ops operations = {
    .lookup = on_lookup,
    .forget = on_forget,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .rename = on_rename,
    .opendir = on_opendir,
    .readdir = on_readdir,
    .releasedir = on_releasedir,
    .fsyncdir = on_fsyncdir,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .statfs = on_statfs,
    .create = on_create,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .flush = on_flush,
    .fsync = on_fsync,
    .release = on_release,
};

static void take_root(void* to, void* result) {
  struct node* node = to;
  const fhandle3* handle = &((mountres3*)result)->mountres3_u.mountinfo.fhandle;
  node->length = handle->fhandle3_len;
  memcpy(node->handle, handle->fhandle3_val, node->length);
}

int main(int count, char** words) {
  if (count != 6) return 2;
  char* arguments[] = {words[0], "-odefault_permissions,fsname=nfs_client"};
  struct fuse_args options = FUSE_ARGS_INIT(2, arguments);
  struct rpc_context* mounts = NULL;
  server = words[1];
  seconds = atof(words[4]);
  if (atoi(words[5])) operations.flock = on_flock;
  if (ask(&mounts, MOUNT_PROGRAM, MOUNT_V3, rpc_mount3_mnt_async, words[2], take_root, &root)) return 3;
  struct fuse_session* session = fuse_session_new(&options, &operations, sizeof operations, NULL);
  if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, words[3])) return 4;
  const int status = fuse_session_loop(session); /* one request after the other */
  fuse_session_unmount(session);
  return status;
}
