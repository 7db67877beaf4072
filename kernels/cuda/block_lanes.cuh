// The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups.
constexpr int kLanesPerBlock = kBlockSize / kChunkSize;
static_assert(kBlockSize % kChunkSize == 0 && kHiddenSize % kBlockSize == 0, "a block is whole chunks");
static_assert(kLanesPerBlock <= kLanesPerRow, "a block's lanes are of one row");
