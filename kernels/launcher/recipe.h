// The launch recipe of launch_recipe.py, read from its JSON text.
using JsonObject = ffi::json::Object;

// An exception may not come out of TVM-FFI's library: it may be built with another C++ library than the launcher.
inline ffi::Any ParseJson(const ffi::String& text) {
  ffi::String problem;
  ffi::Any value = ffi::json::Parse(text, &problem);
  JITNORM_CHECK(problem.size() == 0, ValueError) << "recipe: is not JSON: " << problem;
  return value;
}

inline ffi::Any Field(const JsonObject& object, const char* name) {
  auto it = object.find(ffi::String(name));
  JITNORM_CHECK(it != object.end(), ValueError) << "recipe: has no field " << name;
  return (*it).second;
}

template <typename T>
T Field(const JsonObject& object, const char* name) {
  return Field(object, name).cast<T>();
}

// Tensors of one leading shape are a row set; a kernel may have two, each with a leading shape of its own.
constexpr int kMaxRowSets = 2;

inline int ReadRowSet(const JsonObject& json) {
  const int64_t row_set = Field<int64_t>(json, "row_set");
  JITNORM_CHECK(row_set >= 0 && row_set < kMaxRowSets, ValueError) << "recipe: row_set is " << row_set;
  return static_cast<int>(row_set);
}

struct Argument {
  enum class Kind { kTensor, kFloat32 };
  std::string name;
  Kind kind;
  std::vector<DLDataType> dtypes;
  int row_set = 0;                // whose leading dimensions it has, if it has any
  bool has_leading_dims = false;  // its shape begins with the leading dimensions that all such tensors share
  std::vector<Extent> extents;    // after the leading dimensions
  bool is_single = false;         // one element, in a tensor of any rank
  int64_t alignment = 1;
  bool is_flat = false;  // any shape of as many elements will do
  bool is_output = false;
  bool is_zeroed = false;  // filled with zeros before the kernel runs
  float if_empty = 0;      // what one element becomes if there are no rows
  bool is_strided = false;
  std::string may_be;
};

inline Argument ReadArgument(const JsonObject& json) {
  Argument argument;
  argument.name = Field<ffi::String>(json, "name");
  const std::string kind = Field<ffi::String>(json, "kind");
  argument.kind = kind == "tensor" ? Argument::Kind::kTensor : Argument::Kind::kFloat32;
  if (argument.kind != Argument::Kind::kTensor) return argument;
  for (const ffi::Any& dtype : Field<ffi::json::Array>(json, "dtypes")) {
    argument.dtypes.push_back(ffi::StringToDLDataType(dtype.cast<ffi::String>()));
  }
  for (const ffi::Any& extent : Field<ffi::json::Array>(json, "shape")) {
    if (std::optional<ffi::String> text = extent.try_cast<ffi::String>(); text && *text == "...") {
      argument.has_leading_dims = true;
    } else {
      argument.extents.emplace_back(extent);
    }
  }
  argument.row_set = ReadRowSet(json);
  argument.is_single = Field<bool>(json, "single");
  argument.is_flat = Field<bool>(json, "flat");
  argument.is_zeroed = Field<bool>(json, "zeroed");
  argument.if_empty = static_cast<float>(Field<double>(json, "if_empty"));
  argument.alignment = Field<int64_t>(json, "alignment");
  argument.is_output = Field<bool>(json, "output");
  argument.is_strided = Field<bool>(json, "strided");
  argument.may_be = Field<ffi::String>(json, "may_be");
  return argument;
}

// The hidden sizes that a kernel for any of them takes.
struct HiddenSizes {
  int64_t most, multiple_of;
};

struct Recipe {
  std::string entry;
  bool is_cuda;
  int row_dims;
  bool is_batched;  // the first dimension counts matrices
  std::vector<Argument> arguments;
  Extent grid;
  std::optional<Extent> items;              // a kernel on items is told their number
  std::optional<HiddenSizes> hidden_sizes;  // a kernel for any hidden size is told it
  // CPU only: how much of the grid is worth a thread
  int64_t grain = 1;
  // CUDA only
  int capability_major = 0, capability_minor = 0;
  bool is_family = false;  // runs on later minor versions, too
  unsigned block = 1, cluster = 1, shared_bytes = 0;
  bool pdl = false;

  bool RunsOn(int major, int minor) const {
    return major == capability_major && (is_family ? minor >= capability_minor : minor == capability_minor);
  }
};

inline Recipe ReadRecipe(const ffi::String& text) {
  const JsonObject json = ParseJson(text).cast<JsonObject>();
  const int64_t abi = Field<int64_t>(json, "abi");
  JITNORM_CHECK(abi == kLauncherAbi, ValueError)
      << "recipe: is for launcher ABI " << abi << ", this launcher has " << kLauncherAbi << "; rebuild the kernel";
  Recipe recipe{Field<ffi::String>(json, "entry"),
                Field<ffi::String>(json, "device") == "cuda",
                static_cast<int>(Field<int64_t>(json, "row_dims")),
                Field<bool>(json, "batched"),
                {},
                Extent(Field(json, "grid"))};
  if (const ffi::Any items = Field(json, "items"); items != nullptr) recipe.items.emplace(items);
  if (const ffi::Any sizes = Field(json, "hidden_sizes"); sizes != nullptr) {
    const auto object = sizes.cast<JsonObject>();
    recipe.hidden_sizes = {Field<int64_t>(object, "most"), Field<int64_t>(object, "multiple_of")};
  }
  for (const ffi::Any& argument : Field<ffi::json::Array>(json, "arguments")) {
    recipe.arguments.push_back(ReadArgument(argument.cast<JsonObject>()));
  }
  if (!recipe.is_cuda) {
    recipe.grain = Field<int64_t>(json, "grain");
    JITNORM_CHECK(recipe.grain >= 1, ValueError) << "recipe: grain is " << recipe.grain;
  } else {
    const auto capability = Field<ffi::json::Array>(json, "capability");
    recipe.capability_major = static_cast<int>(capability[0].cast<int64_t>());
    recipe.capability_minor = static_cast<int>(capability[1].cast<int64_t>());
    recipe.is_family = Field<bool>(json, "family");
    recipe.block = static_cast<unsigned>(Field<int64_t>(json, "block"));
    recipe.cluster = static_cast<unsigned>(Field<int64_t>(json, "cluster"));
    recipe.shared_bytes = static_cast<unsigned>(Field<int64_t>(json, "shared_bytes"));
    recipe.pdl = Field<bool>(json, "pdl");
  }
  return recipe;
}
