// What a kernel takes: the tensors of one row set, or of all items. Those that a configuration does not have are null.
#pragma once

#include "configuration.h"
#include "slots.h"
#include "types.h"

#ifdef JITNORM_PAGES
// The cache of keys or of values: pages (pages, tokens per page, heads), and the scales of their codes, one or one per
// head.
struct Cache {
  Page* pages;
  Int64 pages_strides[3], pages_extents[3];
  const float* scales;
  Int64 scales_strides[1], scales_extents[1];
};

#endif
struct Arguments {
  // Rows at any stride, in elements; by leading dimension, the outermost first.
  const Input* input;
  Int64 input_strides[kRowDims];
  const Input* residual;
  Int64 residual_strides[kRowDims];
  Input* residual_out;
  Int64 residual_out_strides[kRowDims];
#ifdef JITNORM_GATES
  const Input* gate;
  Int64 gate_strides[kRowDims];
#endif
  Input* y_out;  // the normalized rows, beside their codes
  Int64 y_out_strides[kRowDims];
  const Input* grad;  // of the output of a norm
  Int64 grad_strides[kRowDims];
  Output* out;
  Output* bias_out;
  Int64 out_strides[kRowDims];
  UInt8* codes;
  Int64 codes_strides[kRowDims];

#ifdef JITNORM_BRANCH
  const Input* branch_gate;
  Int64 branch_gate_strides[kRowDims];
  const float* gate_bias;
  const float* branch_scale;  // a number
#endif
#ifdef JITNORM_MODULATES
  const Input* modulation_scale;
  Int64 modulation_scale_strides[kRowDims];
  const Input* modulation_shift;
  Int64 modulation_shift_strides[kRowDims];
  const float* scale_bias;
  const float* shift_bias;
#endif
#ifdef JITNORM_GATHERS
  const Int32* input_rows;  // the input row that each row is computed from
  Int64 input_rows_strides[kRowDims];
  Int64 input_count;  // the rows of the input

#endif
  // Parameters of a norm.
  const Weight* weight;
  const Weight* bias;
#ifdef JITNORM_SANDWICH
  const Weight* input_weight;
#endif
  float eps;
#ifdef JITNORM_ROTATES

  // For tokens whose heads are the rows.
  const Angle* angles;  // a table of cosines followed by sines
  Int64 angles_strides[1], angles_extents[1];
  const Position* positions;  // the position of each token in the table
  Int64 heads;                // rows of a token
#endif
#ifdef JITNORM_PAGES

  bool has_pages;  // whether the rows are keys, which go to a cache, as values do
  const Input* values;
  Output* values_out;
  Int64 values_strides[kRowDims], values_out_strides[kRowDims];
  Cache key_cache, value_cache;
  const Slot* slots;  // the slot of each token in both caches
  Int64 slots_strides[1], slots_extents[1];
#endif
#ifdef JITNORM_EXPERTS
  UInt32 rows_to_scales;  // from the number of a row to that of its swizzled scales, modulo 2^32
#endif

  // One element, or one for each row or matrix.
  const Int32* mask;  // the number of rows of each matrix
  const float* mix;   // the factors of each row's streams
  float* mean;
  float* rstd;
#ifdef JITNORM_MIXES_LAYER
  const float* layer_mix;  // the factors of the layer's output, for each stream
#endif
#ifdef JITNORM_MAPS_STREAMS

  // Hyper-connections (mHC) before a layer: what the factors of each row's streams are computed from, and the factors
  // after it.
  const float* dot_mix;    // projections, per split
  const float* sqrsum;     // sums of squares, per split
  const float* mhc_scale;  // for the three kinds of factors
  const float* mhc_base;
  float* post_mix;
  float* comb_mix;
  float k, pre_eps, sinkhorn_eps, post_factor;

#endif
#ifdef JITNORM_REDUCES
  Int64* workspace;  // the control block of this rank
  Slots slots;       // what never changes of it
  UInt64 progress;   // as the call began
#endif
#ifdef JITNORM_SCATTERS
  const Input* whole;  // the input with the rows of all ranks: the other tensors have only this one's
  Int64 whole_strides[kRowDims], whole_rows;
#endif
#ifdef JITNORM_DIVIDES
  Int64 first, end;    // the rows that this rank works on
  const Input* whole;  // the input with the rows of all ranks, if the other tensors have only these
  Int64 whole_strides[kRowDims], whole_rows;
#endif
  float* amax;  // of the tensor, or of its parts
  const float* amax_parts;
  float* partials;  // sums over the rows of each segment

  // Scales.
  Scale* block_scale;  // swizzled, if both layouts are written
  Scale* block_scale_unswizzled;
  const float* scale;         // of FP8, for the tensor or a matrix
  const float* global_scale;  // for the tensor or a matrix
  float* row_scale;
  float* tensor_scale;
  const float* scale_ub;  // the upper bound of amax

#ifdef JITNORM_TWO_SIZES
  int size;  // of the row set's rows
#endif
  Int64 rows, extents[kRowDims];
  Int64 matrices, items;
};
