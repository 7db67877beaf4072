// What a row is loaded from: the alternative of the combine stage that the configuration selects.
#pragma once

#include "activated.cuh"
#include "all_reduce.cuh"
#include "branch.cuh"
#include "combine.cuh"
#include "mapping.cuh"

typedef RowSource<kCombine> Source;
typedef Source::Held HeldChunk;
