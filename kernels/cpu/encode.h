// The encode stage: what becomes of the tiles of a row. A source has that of its configuration, one of encode_values.h,
// encode_fp8.h and encode_blocks.h, which have the same functions; editors see this one.
#pragma once

#include "encode_blocks.h"
