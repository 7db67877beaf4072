// What a row is loaded from: of all that the combine stage has, what the configuration chooses.
#pragma once

#include "all_reduce.cuh"
#include "branch.cuh"
#include "combine.cuh"
#include "mapping.cuh"

typedef RowSource<kCombine> Source;
typedef Source::Held HeldChunk;
