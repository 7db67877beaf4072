// Threads of the CPU target. They are started for a call and end with it: that costs some 20 us a thread, of calls that
// take 100 us and more, and leaves nothing behind that a fork could lose.

// How many a call may use: JITNORM_CPU_THREADS, by default the processors that this process may run on.
inline int64_t CpuThreads() {
  static std::atomic<int64_t> known{0};  // without the guard of other statics, which could be held during a fork
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
        << "JITNORM_CPU_THREADS: is '" << text << "'; use a whole number from 1 on";
  }
  known.store(threads, std::memory_order_relaxed);
  return threads;
}

// Runs work(first, last) on `parts` equal parts of [0, count): one on this thread, the others each on its own. Where no
// more threads can be had, this one does their work.
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
