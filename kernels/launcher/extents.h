// The values of the symbols in extents.
struct Sizes {
  int64_t rows = 0;         // "M": rows; with several matrices, rows of each
  int64_t second_rows = 0;  // "M2": rows of the second row set
  int64_t matrices = 1;     // "B"
  int64_t tokens = 1;       // "T": of which the rows are heads
};

// An extent of a launch recipe: a number, a symbol, or [operator, operand, operand]. Extents are never negative,
// divisors are positive numbers, and values beyond 64 bits are errors.
class Extent {
 public:
  // `name` is the recipe's field, for errors.
  Extent(const ffi::Any& json, const char* name) {
    if (json.try_cast<int64_t>()) {
      number_ = NumberIn(json, name, 0, kMostNumber);
    } else if (std::optional<JsonArray> list = json.try_cast<JsonArray>()) {
      JITNORM_CHECK(list->size() == 3, ValueError) << "recipe: " << name << " has an extent of " << list->size()
                                                   << " parts; expected an operator and two operands";
      operator_ = OperatorOf(ValueOf<ffi::String>((*list)[0], name));
      for (size_t i = 1; i < list->size(); ++i) operands_.emplace_back((*list)[i], name);
      const Extent& last = operands_.back();
      JITNORM_CHECK(!Divides() || (last.operator_ == Operator::kNumber && last.number_ > 0), ValueError)
          << "recipe: " << name << " has an extent whose divisor is not a positive number";
    } else {
      operator_ = SymbolOf(ValueOf<ffi::String>(json, name));
    }
  }

  int64_t Evaluate(const Sizes& sizes) const {
    if (operator_ == Operator::kNumber) return number_;
    if (operator_ == Operator::kRows) return sizes.rows;
    if (operator_ == Operator::kSecondRows) return sizes.second_rows;
    if (operator_ == Operator::kMatrices) return sizes.matrices;
    if (operator_ == Operator::kTokens) return sizes.tokens;
    const int64_t a = operands_[0].Evaluate(sizes), b = operands_[1].Evaluate(sizes);
    if (operator_ == Operator::kMin) return std::min(a, b);
    if (operator_ == Operator::kRemainder) return a % b;
    const int64_t quotient = Divides() ? a / b + (a % b != 0) : 0;
    if (operator_ == Operator::kCeilDiv) return quotient;
    if (operator_ == Operator::kRoundUp) return Product(quotient, b);
    return operator_ == Operator::kAdd ? Sum(a, b) : Product(a, b);
  }

  static int64_t Product(int64_t a, int64_t b) {
    int64_t product;
    JITNORM_CHECK(!__builtin_mul_overflow(a, b, &product), ValueError) << kTooLarge;
    return product;
  }

 private:
  enum class Operator {
    kNumber,
    kRows,
    kSecondRows,
    kMatrices,
    kTokens,
    kAdd,
    kMultiply,
    kRemainder,
    kMin,
    kCeilDiv,
    kRoundUp
  };
  static constexpr int64_t kMostNumber = int64_t{1} << 40;
  static constexpr const char* kTooLarge = "recipe: an extent is beyond 64 bits for tensors of these shapes";

  static Operator SymbolOf(const ffi::String& name) {
    if (name == "M") return Operator::kRows;
    if (name == "M2") return Operator::kSecondRows;
    if (name == "B") return Operator::kMatrices;
    if (name == "T") return Operator::kTokens;
    JITNORM_THROW(ValueError) << "recipe: symbol " << name << " is unknown; allowed are M, M2, B, T";
    TVM_FFI_UNREACHABLE();
  }

  static Operator OperatorOf(const ffi::String& name) {
    if (name == "+") return Operator::kAdd;
    if (name == "*") return Operator::kMultiply;
    if (name == "%") return Operator::kRemainder;
    if (name == "min") return Operator::kMin;
    if (name == "ceil_div") return Operator::kCeilDiv;
    if (name == "round_up") return Operator::kRoundUp;
    JITNORM_THROW(ValueError) << "recipe: operator " << name
                              << " is unknown; allowed are +, *, %, min, ceil_div, round_up";
    TVM_FFI_UNREACHABLE();
  }

  static int64_t Sum(int64_t a, int64_t b) {
    int64_t sum;
    JITNORM_CHECK(!__builtin_add_overflow(a, b, &sum), ValueError) << kTooLarge;
    return sum;
  }

  bool Divides() const {
    return operator_ == Operator::kRemainder || operator_ == Operator::kCeilDiv || operator_ == Operator::kRoundUp;
  }

  Operator operator_ = Operator::kNumber;
  int64_t number_ = 0;
  std::vector<Extent> operands_;
};
