// Types: numbers by width, and what a configuration chooses between. NVRTC has no <cstdint>, and a source that includes
// nothing is its own complete cache key.
#pragma once

typedef unsigned char UInt8;
typedef unsigned short UInt16;
typedef unsigned int UInt32;
typedef unsigned long long UInt64;
typedef int Int32;
typedef long long Int64;

struct BFloat16 {
  UInt16 bits;
};
struct Float16 {
  UInt16 bits;
};
struct Float8E4M3 {
  UInt8 bits;
};

// An element of the weight for a norm without one: it counts as 1, and is not in memory.
struct One {};

constexpr float kMaxFloat = 0x1.fffffep127f;

enum class Op { kRmsNorm, kLayerNorm, kQuantize, kDequantize, kInterleave, kShuffle, kSumRows };

// What a row is computed from.
enum class Combine {
  kInput,      // the input as it is
  kRescaled,   // the input in FP8, times a scale
  kAdd,        // the input and a residual
  kGated,      // the activations of gates, times values
  kMix,        // hyper-connections (mHC): a weighted sum of streams
  kActivated,  // the activation of the input
#ifdef JITNORM_GATES
  kScaled,  // the input, times the activations of gates in a separate tensor
  kBeside,  // the input, together with such gates for its norm
#endif
#ifdef JITNORM_SANDWICH
  kSandwich,  // the norm of the input and a residual
#endif
#ifdef JITNORM_REDUCES
  kReduced,  // the inputs of all ranks, with or without a residual
#endif
#ifdef JITNORM_BRANCH
  kBranch,  // the input, optionally times a gate and a number, with or without a residual
#endif
#ifdef JITNORM_MAPS_STREAMS
  kMapped,  // such a sum of streams, with weights computed from projections
#endif
};

// Which elements of a head are rotated together.
enum class Rotation {
  kHalves,  // those at the same place in both halves, as in GPT-NeoX
  kPairs,   // neighbours, as in GPT-J
};

// What is rounded to the input's type before a norm is encoded, if anything is.
enum class Rounding {
  kOutput,    // the norm
  kProducts,  // as in vLLM's fused kernels: the products with rstd and with the weight
  kEachStep,  // as in Transformers: these, and before them the sum with a residual
};

// What follows a norm before it is encoded, if anything does.
enum class Finish {
  kActivated,  // its activation
  kGated,      // its product with the activation of a gate
  kModulated,  // its product with 1 plus a scale, plus a shift
};

// The activation of values or gates.
#ifdef JITNORM_GATES
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu2, kSwigluOai, kSwish, kClampedSwiglu, kFatRelu, kSigmoid };
#else
#ifdef JITNORM_ACTIVATION_NUMBERS
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu2, kSwigluOai, kSwish, kClampedSwiglu, kFatRelu };
#else
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu2, kSwigluOai };
#endif
#endif

// Which rows a launch visits.
enum class RowSets {
  kOne,
  kPair,      // those of two tensors
  kMatrices,  // those of each matrix of a batch
};

// What a row is written as.
enum class Encoding {
  kValues,    // its values, rounded to the input's type
  kAmax,      // only the largest magnitude of all rows
  kOneScale,  // FP8 or INT8 codes, with one scale for the row or the tensor
  kBlocks,    // codes with a scale for each block
#ifdef JITNORM_GIVEN_SCALES
  kGivenScales,  // FP8 or INT8 codes, with given scales of rows, columns or blocks
#endif
#ifdef JITNORM_PAGES
  kPages,  // queries as values, while keys and values go to pages of caches, as values or FP8 codes
#endif
};

enum class Element { kE2M1, kE4M3, kE5M2, kInt8 };

enum class ScaleFormat { kE4M3, kUE8M0, kF32 };

// What a scale belongs to.
enum class ScaleOwner { kBlock, kRow, kTensor };

enum class ScaleRounding { kUp, kFloor };

// Which scale a block has.
enum class ScaleChoice {
  kOnly,         // the one for its amax
  kFourOverSix,  // the better of amax / 6 and amax / 4
};

// Where the global scale comes from: nowhere, the caller, the amax of the row or that of the tensor.
enum class GlobalScaleKind { kNone, kGiven, kRow, kTensor };
