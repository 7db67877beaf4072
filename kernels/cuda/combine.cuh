// The combine stage: what a row is loaded from, and what its threads hold of it from one pass to the next. A source has
// that of its configuration, one of combine_{input,rescaled,add,silu,mix}.cuh, which have the same types; editors see
// this one.
#pragma once

#include "combine_add.cuh"
