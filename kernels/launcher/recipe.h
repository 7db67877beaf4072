// The launch recipe of launch_recipe.py, parsed from JSON. An accepted recipe can crash no check of a call.
constexpr int kMaxRowDims = 8;
constexpr int kMaxArguments = 16;
// Tensors with the same leading shape form a row set; a kernel may have two.
constexpr int kMaxRowSets = 2;
constexpr int kMaxTableDims = 4;

inline int ReadRowSet(const JsonObject& json) {
  return static_cast<int>(NumberField(json, "row_set", 0, kMaxRowSets - 1));
}

struct Argument {
  enum class Kind { kTensor, kFloat32 };
  std::string name;
  Kind kind;
  std::vector<DLDataType> dtypes;
  int row_set = 0;                // the row set of its leading dimensions, if it has any
  bool has_leading_dims = false;  // its shape starts with the leading dimensions shared by its row set
  int table_dims = 0;             // or with so many of its own, of any extent and stride
  std::vector<Extent> extents;    // after the leading dimensions
  bool is_single = false;         // one element, in a tensor of any rank
  int64_t alignment = 1;
  bool is_flat = false;  // any shape with as many elements is accepted
  bool is_output = false;
  float if_empty = 0;  // the value of a one-element output if there are no rows
  bool is_strided = false;
  std::string may_be;

  bool is_tensor() const { return kind == Kind::kTensor; }
};

inline DLDataType ReadDtype(const ffi::String& name) {
  DLDataType dtype;
  const TVMFFIByteArray text{name.data(), name.size()};
  const bool is_known = TVMFFIDataTypeFromString(&text, &dtype) == 0;
  if (!is_known) ffi::details::MoveFromSafeCallRaised();
  const int bits = is_known ? dtype.bits * dtype.lanes : 0;
  JITNORM_CHECK(bits > 0 && bits % 8 == 0 && bits <= 128, ValueError) << "recipe: dtype " << name << " is unknown";
  return dtype;
}

// Checks an argument's fields against each other.
inline void CheckArgument(const Argument& argument) {
  const auto require = [&](bool is_so, const char* what) {
    JITNORM_CHECK(is_so, ValueError) << "recipe: argument " << argument.name << " " << what;
  };
  require((argument.alignment & (argument.alignment - 1)) == 0, "has an alignment that is not a power of two");
  require(!argument.dtypes.empty(), "has no dtypes");
  bool is_word = true;
  for (DLDataType dtype : argument.dtypes) {
    const int bytes = dtype.bits * dtype.lanes / 8;
    is_word = is_word && bytes == sizeof(float);
    require(argument.alignment >= bytes, "has an alignment of less than an element");
  }
  require(!(argument.is_output && argument.is_single) || is_word, "is an output of one element, but not of 32 bits");
  require(!argument.is_strided || (!argument.is_single && !argument.is_flat), "is strided, but of any shape");
  require(!argument.is_strided || !argument.extents.empty(), "is strided, but has no extent of its own");
  const bool is_other = argument.is_strided || argument.is_single || argument.is_flat || argument.has_leading_dims;
  require(argument.table_dims == 0 || (!is_other && argument.extents.size() <= 1), "is a table, but of no such shape");
}

inline Argument ReadArgument(const JsonObject& json) {
  Argument argument;
  argument.name = Field<ffi::String>(json, "name");
  JITNORM_CHECK(!argument.name.empty(), ValueError) << "recipe: has an argument without a name";
  const std::string kind = Field<ffi::String>(json, "kind");
  JITNORM_CHECK(kind == "tensor" || kind == "float32", ValueError)
      << "recipe: argument " << argument.name << " is of kind " << kind << "; allowed are tensor, float32";
  argument.kind = kind == "tensor" ? Argument::Kind::kTensor : Argument::Kind::kFloat32;
  if (!argument.is_tensor()) return argument;
  for (const ffi::Any& dtype : Field<JsonArray>(json, "dtypes")) {
    argument.dtypes.push_back(ReadDtype(ValueOf<ffi::String>(dtype, "dtypes")));
  }
  for (const ffi::Any& extent : Field<JsonArray>(json, "shape")) {
    if (std::optional<ffi::String> text = extent.try_cast<ffi::String>(); text && *text == "...") {
      argument.has_leading_dims = true;
    } else {
      argument.extents.emplace_back(extent, "shape");
    }
  }
  argument.row_set = ReadRowSet(json);
  argument.table_dims = static_cast<int>(NumberField(json, "table_dims", 0, kMaxTableDims));
  argument.is_single = Field<bool>(json, "single");
  argument.is_flat = Field<bool>(json, "flat");
  const double if_empty = Field<double>(json, "if_empty");
  JITNORM_CHECK(std::abs(if_empty) <= std::numeric_limits<float>::max(), ValueError)
      << "recipe: if_empty is " << if_empty << "; expected a float32";
  argument.if_empty = static_cast<float>(if_empty);
  argument.alignment = NumberField(json, "alignment", 1, 16);
  argument.is_output = Field<bool>(json, "output");
  argument.is_strided = Field<bool>(json, "strided");
  argument.may_be = Field<ffi::String>(json, "may_be");
  CheckArgument(argument);
  return argument;
}

struct Recipe {
  std::string entry;
  bool is_cuda;
  int row_dims;
  bool is_batched;  // the first dimension is the number of matrices
  bool has_heads;   // the last dimension before the rows counts those of a token
  std::vector<Argument> arguments;
  Extent grid;
  std::optional<Extent> items;  // kernels on items receive their number
  // CPU only: the part of the grid worth a thread
  int64_t grain = 1;
  // CUDA only
  int capability_major = 0, capability_minor = 0;
  bool is_family = false;  // also runs on later minor versions
  unsigned block = 1, cluster = 1, shared_bytes = 0;
  bool pdl = false;

  bool RunsOn(int major, int minor) const {
    return major == capability_major && (is_family ? minor >= capability_minor : minor == capability_minor);
  }
};

// All strided arguments of a row set must have the rank of its first, because their rows are walked together.
inline void CheckRowSets(const std::vector<Argument>& arguments) {
  const Argument* first[kMaxRowSets] = {};
  for (const Argument& argument : arguments) {
    if (!argument.is_tensor() || !argument.is_strided) continue;
    const Argument*& leader = first[argument.row_set];
    if (leader == nullptr) leader = &argument;
    JITNORM_CHECK(
        argument.has_leading_dims == leader->has_leading_dims && argument.extents.size() == leader->extents.size(),
        ValueError)
        << "recipe: arguments " << leader->name << " and " << argument.name
        << " are of one row set, but not of one rank";
  }
  for (const Argument& argument : arguments) {
    const Argument* leader = first[argument.row_set];
    const bool is_led = leader != nullptr && (argument.row_set == 0 || leader->has_leading_dims);
    JITNORM_CHECK(!argument.is_tensor() || is_led, ValueError)
        << "recipe: argument " << argument.name << " is of row set " << argument.row_set << ", which has no rows";
  }
}

inline std::vector<Argument> ReadArguments(const JsonObject& json) {
  std::vector<Argument> arguments;
  for (const ffi::Any& argument : Field<JsonArray>(json, "arguments")) {
    arguments.push_back(ReadArgument(ValueOf<JsonObject>(argument, "arguments")));
    const std::string& name = arguments.back().name;
    JITNORM_CHECK(std::none_of(arguments.begin(), arguments.end() - 1, [&](auto& a) { return a.name == name; }),
                  ValueError)
        << "recipe: has two arguments " << name;
  }
  JITNORM_CHECK(!arguments.empty() && arguments.size() <= kMaxArguments, ValueError)
      << "recipe: has " << arguments.size() << " arguments; allowed are 1 to " << kMaxArguments;
  const Argument& first = arguments[0];
  JITNORM_CHECK(first.is_tensor() && first.is_strided && first.row_set == 0, ValueError)
      << "recipe: argument " << first.name << " is the first, but is not a strided tensor of rows";
  CheckRowSets(arguments);
  return arguments;
}

inline void ReadCudaFields(const JsonObject& json, Recipe& recipe) {
  const auto capability = Field<JsonArray>(json, "capability");
  JITNORM_CHECK(capability.size() == 2, ValueError)
      << "recipe: capability has " << capability.size() << " numbers; expected major and minor";
  recipe.capability_major = static_cast<int>(NumberIn(capability[0], "capability", 0, 999));
  recipe.capability_minor = static_cast<int>(NumberIn(capability[1], "capability", 0, 999));
  recipe.is_family = Field<bool>(json, "family");
  recipe.block = static_cast<unsigned>(NumberField(json, "block", 1, 1024));
  recipe.cluster = static_cast<unsigned>(NumberField(json, "cluster", 1, 16));
  recipe.shared_bytes = static_cast<unsigned>(NumberField(json, "shared_bytes", 0, 1 << 20));
  recipe.pdl = Field<bool>(json, "pdl");
}

inline Recipe ReadRecipe(const ffi::String& text) {
  const auto json = ValueOf<JsonObject>(ParseJson(text), "recipe");
  const int64_t abi = Field<int64_t>(json, "abi");
  JITNORM_CHECK(abi == kLauncherAbi, ValueError)
      << "recipe: is for launcher ABI " << abi << ", but this launcher has " << kLauncherAbi << "; rebuild the kernel";
  const std::string device = Field<ffi::String>(json, "device");
  JITNORM_CHECK(device == "cpu" || device == "cuda", ValueError)
      << "recipe: device is " << device << "; allowed are cpu, cuda";
  Recipe recipe{Field<ffi::String>(json, "entry"),
                device == "cuda",
                static_cast<int>(NumberField(json, "row_dims", 1, kMaxRowDims)),
                Field<bool>(json, "batched"),
                Field<bool>(json, "heads"),
                ReadArguments(json),
                Extent(Field(json, "grid"), "grid")};
  if (const ffi::Any items = Field(json, "items"); items != nullptr) recipe.items.emplace(items, "items");
  if (recipe.is_cuda) {
    ReadCudaFields(json, recipe);
  } else {
    recipe.grain = NumberField(json, "grain", 1, std::numeric_limits<int64_t>::max());
  }
  return recipe;
}
