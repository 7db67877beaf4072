// How kernels take arguments: as views of what a call has, which torch would make in 0.7 to 1.5 us.
struct View {
  // With the last two dimensions as one; as `count` heads of `size` elements, which begin at `start` of the last
  // dimension; as whole columns, padded to 4 rows, of which it has the rows; with all heads as one; or as bytes, of the
  // first rows alone: tiles of `size` for all rows of the first tensor, which `count` groups divide.
  enum Kind { kMerged, kHeads, kColumns, kJoined, kTiles };
  int64_t place, kind, start, count, size;

  static constexpr int kMaxDims = 16;

  // Describes the tensor so; it then refers to `shape` and `strides`. False if that would take a copy, or if it has
  // other heads, columns or fewer rows. Whether there is memory behind the last row of columns is not checked.
  bool Take(DLTensor& t, const DLTensor& first, int64_t* shape, int64_t* strides) const {
    if (t.ndim < 1 || t.ndim >= kMaxDims) return false;
    if (kind == kTiles) return TakeTiles(t, first, shape);
    if (kind == kHeads) return TakeHeads(t, shape, strides);
    if (kind == kColumns) return TakeColumns(t, shape);
    if (!TakeMerged(t, shape, strides)) return false;
    if (kind == kJoined) AsHead(t, shape, strides);
    return true;
  }

 private:
  static bool TakeMerged(DLTensor& t, int64_t* shape, int64_t* strides) {
    const int last = t.ndim - 1;
    if (last < 1 || StrideOf(t, last) != 1) return false;
    if (t.shape[last - 1] != 1 && StrideOf(t, last - 1) != t.shape[last]) return false;
    MergeLastDims(t, shape, strides);
    return true;
  }

  // Describes rows as a head each; the tensor already refers to `shape` and `strides`.
  static void AsHead(DLTensor& t, int64_t* shape, int64_t* strides) {
    const int last = t.ndim++;
    shape[last] = shape[last - 1];
    strides[last] = 1;
    strides[last - 1] = shape[last];
    shape[last - 1] = 1;
  }

  bool TakeHeads(DLTensor& t, int64_t* shape, int64_t* strides) const {
    const int last = t.ndim - 1;
    if (t.shape[last] < start + count * size) return false;
    const int64_t stride = StrideOf(t, last);
    for (int d = 0; d < last; ++d) {
      shape[d] = t.shape[d];
      strides[d] = StrideOf(t, d);
    }
    shape[last] = count;
    shape[last + 1] = size;
    strides[last] = size * stride;
    strides[last + 1] = stride;
    t.byte_offset += static_cast<uint64_t>(start * stride * ElementBytes(t.dtype));
    t.ndim = last + 2;
    t.shape = shape;
    t.strides = strides;
    return true;
  }

  static bool TakeColumns(DLTensor& t, int64_t* shape) {
    if (t.ndim != 2 || t.shape[0] == 0) return false;
    const int64_t length = (t.shape[0] + 3) / 4 * 4;
    if (StrideOf(t, 0) != 1 || StrideOf(t, 1) != length) return false;
    shape[0] = t.shape[1];
    shape[1] = length;
    t.shape = shape;
    t.strides = nullptr;
    return true;
  }

  bool TakeTiles(DLTensor& t, const DLTensor& first, int64_t* shape) const {
    if (t.ndim != 2 || first.ndim != 2 || t.dtype.code == kDLComplex || !ffi::IsContiguous(t)) return false;
    const int64_t rows = ((first.shape[0] + size - 1) / size + count) * size;
    if (t.shape[0] < rows) return false;
    shape[0] = rows;
    shape[1] = t.shape[1] * ElementBytes(t.dtype);
    t.dtype = {kDLUInt, 8, 1};
    t.shape = shape;
    t.strides = nullptr;
    return true;
  }
};
