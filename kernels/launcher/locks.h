// The launcher's locks, few and global, so that a fork can take them all: a child has none of the threads that would
// release a lock, or complete their changes.
inline std::shared_mutex tables_lock;  // guards what dispatchers have learned
inline std::mutex memories_lock;       // guards what is remembered about calls

inline void TakeLocks() {
  tables_lock.lock();
  memories_lock.lock();
}

inline void ReleaseLocks() {
  memories_lock.unlock();
  tables_lock.unlock();
}

// Not released: one of them knows its holder by the thread, which is another one in the child.
inline void RenewLocks() {
  new (&tables_lock) std::shared_mutex;
  new (&memories_lock) std::mutex;
}

[[maybe_unused]] static const int fork_handlers = pthread_atfork(TakeLocks, ReleaseLocks, RenewLocks);
