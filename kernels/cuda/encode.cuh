// The encode stage: what becomes of the chunks of a row. A source has that of its configuration, one of
// encode_values.cuh, encode_fp8.cuh and encode_blocks.cuh, which have the same functions; editors see this one.
#pragma once

#include "encode_blocks.cuh"
