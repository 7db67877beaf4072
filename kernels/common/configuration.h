// A sample of the constants that a source has here, for editors: those of
// rmsnorm:hidden_size=4096,input=bfloat16,weight=bfloat16,unit_bias=false,residual=true,quant=e2m1/16/e4m3/128x4/given,keep_norm=false,row_dims=1,vector_bytes=16,pdl=false
// for sm_90a. kernels/constants.py writes them.
#pragma once

#include "types.h"

// clang-format off
typedef BFloat16 Input;
typedef BFloat16 Output;
typedef BFloat16 Weight;
typedef UInt8 Scale;
enum : int {
  kHiddenSize = 4096,
  kInputSize = 4096,
  kRowDims = 1,
  kChunkSize = 16,
  kGroupChunks = 32,
  kChunks = 256,
  kGroups = 8,
  kPaddedGroups = 8,
  kGateColumns = 1,
  kStreams = 1,
  kShuffleRows = 8,
  kMaxExponent = 2,
  kBlockSize = 16,
  kBlockRows = 1,
  kScaleColumns = 256,
  kPaddedScaleColumns = 256,
  kPaddedRowMultiple = 128,
  kAccumulators = 256,
  kMostSegments = 256,
  kRowsOfPack = 1,
  kStages = 0,
  kFoldedSegments = 1,
  kMostSummedRows = 0,
  kSummedColumns = 32,
  kSummingThreads = 256,
  kCodesAccessBytes = 8,
  kInputAccessBytes = 16,
  kWeightAccessBytes = 16,
  kBiasAccessBytes = 16,
  kPartialsAccessBytes = 16,
  kOutAccessBytes = 16,
  kThreadsPerItem = 1,
  kLanesPerRow = 32,
  kWarpsPerRow = 4,
  kThreadsPerRow = 128,
  kChunksPerLane = 2,
  kChunksAtOnce = 2,
  kMaxPrefetchedBytes = 192,
  kRowsPerBlock = 1,
  kRowsAtOnce = 1,
  kBlocksPerRow = 1,
  kThreads = 128,
  kLateBlocks = 0,
  kStagedBytes = 16384,
  kPaddingBlocks = 4,
};
enum : bool {
  kHasPowerOfTwoSize = true,
  kHasPartialChunk = false,
  kIsMasked = false,
  kAlongColumns = false,
  kHasUnitBias = false,
  kHasBias = false,
  kKeepsNorm = false,
  kKeepsMean = false,
  kKeepsRstd = false,
  kStoresSum = true,
  kAddsGrad = false,
  kNeedsRowAmax = false,
  kHasNativeE2M1 = false,
  kHasNativeFp8 = true,
  kSumsAbsoluteErrors = false,
  kPowerOfTwoScales = false,
  kInvertsGlobalScale = false,
  kScalePerMatrix = false,
  kHasAmaxBound = false,
  kHasSwizzledScales = true,
  kHasLinearScales = false,
  kHasColumnMajorScales = false,
  kHasPackedScales = false,
  kFoldsSums = false,
  kSumsGradients = false,
  kHasNarrowAccesses = false,
  kHasPdl = false,
  kHasMaxOfThree = false,
  kLateSignalsAwaitValues = false,
  kLateSignalsAwaitStores = false,
  kInClusters = false,
  kHoldsRow = true,
  kStaysShared = false,
  kStaysResident = false,
  kSkipsChunks = false,
  kKeepsUnpacked = false,
  kTakesFastPath = false,
  kFavoursLatency = false,
  kMayPrefetchWeight = true,
  kStoresTogether = true,
  kShiftsStores = true,
  kStoresSumEarly = false,
};
constexpr Op kOp = Op::kRmsNorm;
constexpr Combine kCombine = Combine::kAdd;
constexpr Activation kActivation = Activation::kSilu;
constexpr RowSets kRowSets = RowSets::kOne;
constexpr Encoding kEncoding = Encoding::kBlocks;
constexpr Element kElement = Element::kE2M1;
constexpr float kMaxCode = 6.0f;
constexpr float kReciprocalMax = 1.0f / 6.0f;
constexpr float kSmallestScale = 1.66666669e-05f;
constexpr ScaleFormat kScaleFormat = ScaleFormat::kE4M3;
constexpr ScaleOwner kScaleOwner = ScaleOwner::kBlock;
constexpr ScaleRounding kScaleRounding = ScaleRounding::kUp;
constexpr ScaleChoice kScaleChoice = ScaleChoice::kOnly;
constexpr float kMaxBlockScale = 448.0f;
constexpr GlobalScaleKind kGlobalScale = GlobalScaleKind::kGiven;
