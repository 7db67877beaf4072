// Reads typed values from JSON texts; anything unexpected is a ValueError.
using JsonObject = ffi::json::Object;
using JsonArray = ffi::json::Array;

// Bounds the nesting of values, because TVM-FFI's parser recurses without a limit; recipes have about 50 brackets.
constexpr int kMostBrackets = 1024;

// No exception may leave TVM-FFI's library: it may be built with another C++ library than the launcher.
inline ffi::Any ParseJson(const ffi::String& text) {
  const auto brackets =
      std::count_if(text.data(), text.data() + text.size(), [](char c) { return c == '[' || c == '{'; });
  JITNORM_CHECK(brackets <= kMostBrackets, ValueError)
      << "recipe: has " << brackets << " lists and objects; at most " << kMostBrackets << " are allowed";
  ffi::String problem;
  ffi::Any value = ffi::json::Parse(text, &problem);
  JITNORM_CHECK(problem.size() == 0, ValueError) << "recipe: is not JSON: " << problem;
  return value;
}

template <typename T>
constexpr const char* kJsonName = "a number";
template <>
inline constexpr const char* kJsonName<int64_t> = "a whole number";
template <>
inline constexpr const char* kJsonName<bool> = "a boolean";
template <>
inline constexpr const char* kJsonName<ffi::String> = "a string";
template <>
inline constexpr const char* kJsonName<JsonArray> = "a list";
template <>
inline constexpr const char* kJsonName<JsonObject> = "an object";

// `name` is the value's field, for errors.
template <typename T>
T ValueOf(const ffi::Any& json, const char* name) {
  std::optional<T> value = json.try_cast<T>();
  JITNORM_CHECK(value, ValueError) << "recipe: " << name << " is of type " << json.GetTypeKey() << "; expected "
                                   << kJsonName<T>;
  return *std::move(value);
}

inline ffi::Any Field(const JsonObject& object, const char* name) {
  auto it = object.find(ffi::String(name));
  JITNORM_CHECK(it != object.end(), ValueError) << "recipe: has no field " << name;
  return (*it).second;
}

template <typename T>
T Field(const JsonObject& object, const char* name) {
  return ValueOf<T>(Field(object, name), name);
}

// A whole number in a range.
inline int64_t NumberIn(const ffi::Any& json, const char* name, int64_t least, int64_t most) {
  const int64_t number = ValueOf<int64_t>(json, name);
  JITNORM_CHECK(number >= least && number <= most, ValueError)
      << "recipe: " << name << " is " << number << "; allowed are " << least << " to " << most;
  return number;
}

inline int64_t NumberField(const JsonObject& object, const char* name, int64_t least, int64_t most) {
  return NumberIn(Field(object, name), name, least, most);
}
