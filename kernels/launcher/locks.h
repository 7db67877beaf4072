// The launcher's locks. They are few and global, so that a fork can take them all: its child has none of the threads
// that would release one, or complete what they were changing.
inline std::shared_mutex tables_lock;  // of what dispatchers have learned
inline std::mutex memories_lock;       // of what is remembered of calls

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
