// What an op on independent items does with one. A source has that of its configuration, one of dequantize.h, move.h
// and quantize_columns.h, which have the same function; editors see this one.
#pragma once

#include "dequantize.h"
