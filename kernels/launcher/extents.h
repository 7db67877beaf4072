// What the symbols of extents stand for.
struct Sizes {
  int64_t rows = 0;         // "M": rows; with several matrices, of each
  int64_t second_rows = 0;  // "M2": rows of the second row set
  int64_t matrices = 1;     // "B"
  int64_t hidden_size = 0;  // "H": of a kernel that takes any
};

// Extents of a launch recipe: a number, a symbol, or [operator, operand, operand].
class Extent {
 public:
  explicit Extent(const ffi::Any& json) {
    if (std::optional<int64_t> number = json.try_cast<int64_t>()) {
      number_ = *number;
    } else if (std::optional<ffi::json::Array> list = json.try_cast<ffi::json::Array>()) {
      operator_ = OperatorOf((*list)[0].cast<ffi::String>());
      for (size_t i = 1; i < list->size(); ++i) operands_.emplace_back((*list)[i]);
    } else {
      operator_ = SymbolOf(json.cast<ffi::String>());
    }
  }

  int64_t Evaluate(const Sizes& sizes) const {
    if (operator_ == Operator::kNumber) return number_;
    if (operator_ == Operator::kRows) return sizes.rows;
    if (operator_ == Operator::kSecondRows) return sizes.second_rows;
    if (operator_ == Operator::kMatrices) return sizes.matrices;
    if (operator_ == Operator::kHiddenSize) return sizes.hidden_size;
    const int64_t a = operands_[0].Evaluate(sizes), b = operands_[1].Evaluate(sizes);
    if (operator_ == Operator::kAdd) return a + b;
    if (operator_ == Operator::kMultiply) return a * b;
    if (operator_ == Operator::kMin) return std::min(a, b);
    return operator_ == Operator::kCeilDiv ? (a + b - 1) / b : (a + b - 1) / b * b;
  }

 private:
  enum class Operator {
    kNumber,
    kRows,
    kSecondRows,
    kMatrices,
    kHiddenSize,
    kAdd,
    kMultiply,
    kMin,
    kCeilDiv,
    kRoundUp
  };

  static Operator SymbolOf(const ffi::String& name) {
    if (name == "M") return Operator::kRows;
    if (name == "M2") return Operator::kSecondRows;
    if (name == "B") return Operator::kMatrices;
    if (name == "H") return Operator::kHiddenSize;
    JITNORM_THROW(ValueError) << "recipe: symbol " << name << " is unknown; allowed are M, M2, B, H";
    TVM_FFI_UNREACHABLE();
  }

  static Operator OperatorOf(const ffi::String& name) {
    if (name == "+") return Operator::kAdd;
    if (name == "*") return Operator::kMultiply;
    if (name == "min") return Operator::kMin;
    if (name == "ceil_div") return Operator::kCeilDiv;
    if (name == "round_up") return Operator::kRoundUp;
    JITNORM_THROW(ValueError) << "recipe: operator " << name
                              << " is unknown; allowed are +, *, min, ceil_div, round_up";
    TVM_FFI_UNREACHABLE();
  }

  Operator operator_ = Operator::kNumber;
  int64_t number_ = 0;
  std::vector<Extent> operands_;
};
