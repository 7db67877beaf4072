// Chunks of a row that are whole; the one after them may hold a few elements, those past it none.
constexpr int kWholeChunks = kHiddenSize / kChunkSize;
