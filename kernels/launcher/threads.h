// Threads of the CPU target. They start and end with a call: that costs about 20 us per thread, in calls of 100 us or
// more, and leaves nothing behind that a fork could lose.

// How many threads a call may use: JITNORM_CPU_THREADS, by default the processors available to this process.
inline int64_t CpuThreads() {
  static std::atomic<int64_t> known{0};  // needs no guard, unlike other statics, which could be held during a fork
  if (const int64_t threads = known.load(std::memory_order_relaxed)) return threads;
  const char* text = std::getenv("JITNORM_CPU_THREADS");
  int64_t threads = 1;
  if (text == nullptr || *text == '\0') {
    cpu_set_t processors;
    if (sched_getaffinity(0, sizeof(processors), &processors) == 0) threads = CPU_COUNT(&processors);
  } else {
    char* end;
    threads = std::strtoll(text, &end, 10);
    JITNORM_CHECK(*end == '\0' && threads >= 1, ValueError)
        << "JITNORM_CPU_THREADS: is '" << text << "'; use a whole number of at least 1";
  }
  known.store(threads, std::memory_order_relaxed);
  return threads;
}

// Runs work(first, last) on `parts` equal parts of [0, count): one on this thread, each other on its own thread. If no
// more threads can be started, this one does their work.
template <typename Work>
void InParts(int64_t count, int64_t parts, const Work& work) {
  const auto start = [&](int64_t i) { return count / parts * i + count % parts * i / parts; };
  const auto part = [&](int64_t i) { work(start(i), start(i + 1)); };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(parts));
  int64_t started = 1;
  try {
    for (; started < parts; ++started) threads.emplace_back(part, started);
  } catch (const std::system_error&) {
  }
  part(0);
  for (int64_t i = started; i < parts; ++i) part(i);
  for (std::thread& thread : threads) thread.join();
}
