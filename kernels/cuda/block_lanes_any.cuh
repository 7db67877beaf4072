// The encode stage with a scale for each block, which divides a hidden size that only the launcher knows.
constexpr int kLanesPerBlock = kBlockSize / kChunkSize;
static_assert(kBlockSize % kChunkSize == 0, "a block is whole chunks");
static_assert(kLanesPerBlock <= kLanesPerRow, "a block's lanes are of one row");
