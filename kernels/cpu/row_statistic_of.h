// The statistic of a row in the cache.
JITNORM_INLINE RowStatistic statistic_of(const Arguments& a, Int64 row, const Tile* h) {
  RowStatistic statistic{0.0f, 1.0f};
  if constexpr (kCenters) statistic.mean = mean_of(row_sum(h));
  if constexpr (kNormalizes) statistic.rstd = reciprocal_rms(row_sum_of_squares(h, statistic.mean), eps_of(a));
  if constexpr (kKeepsRstd) inv_rms_of(a)[row] = with_positive_nan(statistic.rstd);
  return statistic;
}
