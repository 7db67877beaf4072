// Makes the usual calls of torch's tensors, about 1 us faster than Python could: checks the state of torch and of each
// tensor, allocates missing outputs and launches, once or twice. Uses Python's and DLPack's C interfaces, nothing of
// torch's.
class TorchCall {
 public:
  // The dispatcher's arguments are tensors, then numbers; a call has the parameters in an order of its own.
  struct Form {
    int tensors, parameters;
    // For each argument, then the stream, the position of its parameter or, after those, of its number; -1 for none.
    std::vector<int64_t> given;
    // Positions among the arguments; what is returned may also be `kShape`, `kRecord`, or `kParameter` less the
    // position of a parameter that is no argument.
    std::vector<int64_t> outputs, allocated, leaders, returned;
    enum Kind { kTuple, kSingle, kNone } kind;  // of what is returned
    std::vector<int64_t> attributes;            // of the record, each a position or `kShape`
    int shaped, values;  // `kShape` is the shape of this tensor, as a tuple, in values, of which each element has some
    std::vector<View> views;
    // Of two launches, the arguments that each takes, and what finds the kernel of the second; else none.
    std::vector<int64_t> first, second;
    ffi::Function find_second;
  };

  static constexpr int kMaxViews = 6;
  static constexpr int64_t kShape = -1, kRecord = -2, kParameter = -3;

  // `objects`: see `_objects` in jitnorm/interop/torch_calls.py.
  TorchCall(std::shared_ptr<const Dispatcher> dispatcher, Form form, PyObject* objects)
      : dispatcher_(std::move(dispatcher)), form_(std::move(form)) {
    Py_IncRef(objects);
    PyObject** const fields[] = {
        &none_,         &exception_,     &failure_,       &float_,         &int_,
        &tensor_,       &types_,         &is_neg_,        &requires_grad_, &count_modes_,
        &is_tracing_,   &forward_ad_,    &current_level_, &grad_enabled_,  &increment_versions_,
        &note_written_, &find_patterns_, &empty_like_,    &stream_handle_, &otherwise_,
        &storage_of_,   &address_of_,    &bytes_of_,      &type_,          &constants_,
        &names_,        &numbers_,       &as_strided_};
    int place = 0;
    for (PyObject** field : fields) *field = PyTuple_GetItem(objects, place++);
    exchange_ = ExchangeOf(PyTuple_GetItem(objects, place));
    JITNORM_CHECK(exchange_ != nullptr, RuntimeError) << "torch exchanges tensors with another version of DLPack";
    std::fill_n(view_of_, kMaxArguments, -1);
    for (size_t i = 0; i < form_.views.size(); ++i) view_of_[form_.views[i].place] = static_cast<int>(i);
  }

  // Makes the call; one that is not usual is left as it was and made by `otherwise_`, or returns None without it.
  PyObject* Run(PyObject* const* parameters, intptr_t count, const Exchanged* exchanged = nullptr) const {
    Call call;  // mostly uninitialized: clearing it would take 0.1 us
    call.exchanged = exchanged;
    if (count == form_.parameters && Place(parameters, call) && Read(call) && Allocate(call) && CountWrites(call) &&
        Launch(call)) {
      return Returned(call);
    }
    if (HasOverwritten(call)) {  // made again, it might read that
      PyErr_SetString(failure_, call.error.c_str());
      return nullptr;
    }
    if (PyErr_Occurred() != nullptr) {
      if (!PyErr_ExceptionMatches(exception_)) return nullptr;  // such as an interrupt
      PyErr_Clear();
    }
    if (otherwise_ == none_) return Reference::To(none_).Release();
    return CallOf(otherwise_, parameters, count).Release();
  }

 private:
  struct Call {
    const Exchanged* exchanged;
    PyObject* const* parameters;
    PyObject* given[kMaxArguments + 1];
    DLTensor tensors[kMaxArguments];
    ffi::AnyView arguments[kMaxArguments + 1];
    Reference made[kMaxArguments];  // outputs that were allocated
    Reference patterns;             // like which they were
    Reference stream;
    bool has_begun = false;  // the first of two launches
    std::string error;       // of the second
    int64_t shapes[kMaxViews][View::kMaxDims], strides[kMaxViews][View::kMaxDims];

    PyObject* Object(int64_t place) const { return made[place] ? made[place].get() : given[place]; }
  };

  int arguments() const { return static_cast<int>(form_.given.size()) - 1; }

  bool Place(PyObject* const* parameters, Call& call) const {
    call.parameters = parameters;
    for (size_t i = 0; i < form_.given.size(); ++i) {
      const int64_t place = form_.given[i], number = place - form_.parameters;
      call.given[i] = place < 0 ? none_ : number < 0 ? parameters[place] : PyTuple_GetItem(numbers_, number);
    }
    PyObject* stream = call.given[arguments()];
    if (stream == none_ || IsOf(stream, int_)) return true;
    call.stream = CallOf(stream_handle_, stream);
    call.given[arguments()] = call.stream.get();
    return static_cast<bool>(call.stream);
  }

  // Whether the first of two launches wrote a given tensor, but the second failed.
  bool HasOverwritten(const Call& call) const {
    return call.has_begun && std::any_of(form_.outputs.begin(), form_.outputs.end(), [&](int64_t place) {
             return call.given[place] != none_ &&
                    std::find(form_.first.begin(), form_.first.end(), place) != form_.first.end();
           });
  }

  PyObject* Returned(const Call& call) const {
    if (form_.kind == Form::kNone) return Reference::To(none_).Release();
    if (form_.kind == Form::kSingle) return Result(call, form_.returned[0]).Release();
    Reference results(PyTuple_New(static_cast<intptr_t>(form_.returned.size())));
    for (size_t i = 0; results && i < form_.returned.size(); ++i) {
      Reference result = Result(call, form_.returned[i]);
      if (!result) return nullptr;
      PyTuple_SetItem(results.get(), static_cast<intptr_t>(i), result.Release());
    }
    return results.Release();
  }

  Reference Result(const Call& call, int64_t place) const {
    if (place <= kParameter) return Reference::To(call.parameters[kParameter - place]);
    if (place == kShape) return ShapeOf(call.tensors[form_.shaped]);
    return place == kRecord ? RecordOf(call) : Reference::To(call.Object(place));
  }

  // An object whose attributes are constants and results: 0.3 us faster than a function that sets them. Its own dict is
  // filled, because Python 3.13 finds no attributes in one that is given to it.
  Reference RecordOf(const Call& call) const {
    Reference record(PyType_GenericNew(type_, nullptr, nullptr));
    const Reference attributes(record ? PyObject_GenericGetDict(record.get(), nullptr) : nullptr);
    if (!attributes || PyDict_Update(attributes.get(), constants_) != 0) return {};
    for (size_t i = 0; i < form_.attributes.size(); ++i) {
      const Reference result = Result(call, form_.attributes[i]);
      PyObject* name = PyTuple_GetItem(names_, static_cast<intptr_t>(i));
      if (!result || PyDict_SetItem(attributes.get(), name, result.get()) != 0) return {};
    }
    return record;
  }

  Reference ShapeOf(const DLTensor& tensor) const {
    Reference shape(PyTuple_New(tensor.ndim));
    for (int d = 0; shape && d < tensor.ndim; ++d) {
      const int64_t factor = d == tensor.ndim - 1 ? form_.values : 1;
      PyTuple_SetItem(shape.get(), d, PyLong_FromLongLong(tensor.shape[d] * factor));
    }
    return shape;
  }

  bool Read(Call& call) const {
    if (!IsStateUsual()) return false;
    const Reference records(PyObject_CallNoArgs(grad_enabled_));
    if (!records) return false;
    const bool is_recording = !IsFalse(records);
    for (int i = 0; i < form_.tensors; ++i) {
      if (call.given[i] == none_ ? !IsAllocated(i) : !ReadTensor(call, i, is_recording)) return false;
    }
    for (int i = form_.tensors; i < arguments(); ++i) {
      PyObject* number = call.given[i];
      if (IsOf(number, float_)) {
        call.arguments[i] = PyFloat_AsDouble(number);
      } else if (IsOf(number, int_)) {
        call.arguments[i] = static_cast<int64_t>(PyLong_AsLongLong(number));
        if (PyErr_Occurred() != nullptr) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  bool IsAllocated(int64_t place) const {
    return std::find(form_.allocated.begin(), form_.allocated.end(), place) != form_.allocated.end();
  }

  // Whether torch runs operations at once and records none of them, except for gradients.
  bool IsStateUsual() const {
    PyObject* level = PyDict_GetItemWithError(forward_ad_, current_level_);
    return level != nullptr && PyLong_AsLong(level) < 0 && PyErr_Occurred() == nullptr &&
           IsFalse(Reference(PyObject_CallNoArgs(count_modes_))) &&
           IsFalse(Reference(PyObject_CallNoArgs(is_tracing_)));
  }

  // Tensors that are wrapped by torch.func have no address: the exchange or the launcher rejects them.
  bool ReadTensor(Call& call, int place, bool is_recording) const {
    PyObject* tensor = call.given[place];
    for (int i = 0; i < place; ++i) {  // written in place, or packed with others
      if (call.given[i] != tensor) continue;
      if (view_of_[i] >= 0 || view_of_[place] >= 0) return Exchange(call, place, tensor) && TakeView(call, place);
      call.tensors[place] = call.tensors[i];
      call.arguments[place] = &call.tensors[place];
      return true;
    }
    if (!IsOf(tensor, tensor_) && PySet_Contains(types_, Reference(PyObject_Type(tensor)).get()) != 1) return false;
    if (!IsFalse(CallOf(is_neg_, tensor)) || !Exchange(call, place, tensor)) return false;
    const uint8_t code = call.tensors[place].dtype.code;  // before a view as bytes
    if (view_of_[place] >= 0 && !TakeView(call, place)) return false;
    if (!is_recording || code == kDLInt || code == kDLUInt) return true;  // torch differentiates no integers
    return IsFalse(Reference(PyObject_GetAttr(tensor, requires_grad_)));
  }

  bool Exchange(Call& call, int64_t place, PyObject* tensor) const {
    const DLTensor* known = call.exchanged == nullptr ? nullptr : call.exchanged->Find(tensor);
    if (known != nullptr) {
      call.tensors[place] = *known;
    } else if (exchange_->dltensor_from_py_object_no_sync(tensor, &call.tensors[place]) != 0) {
      return false;
    }
    call.arguments[place] = &call.tensors[place];
    return true;
  }

  bool TakeView(Call& call, int place) const {
    const int index = view_of_[place];
    DLTensor& t = call.tensors[place];
    const bool is_padded = t.ndim > 0 && t.shape[0] % 4 != 0;
    if (index < 0) return true;
    const View& view = form_.views[index];
    if (!view.Take(t, call.tensors[0], call.shapes[index], call.strides[index])) return false;
    return view.kind != View::kColumns || !is_padded || HasMemory(call.given[place], t);
  }

  // Whether the storage of a tensor holds all of another one.
  bool HasMemory(PyObject* of, const DLTensor& t) const {
    const Reference storage = CallOf(storage_of_, of);
    if (!storage) return false;
    const Reference address = CallOf(address_of_, storage.get()), bytes = CallOf(bytes_of_, storage.get());
    if (!address || !bytes) return false;
    const char* end = DataOf(t) + ElementCount(t) * ElementBytes(t.dtype);
    return reinterpret_cast<int64_t>(end) <= PyLong_AsLongLong(address.get()) + PyLong_AsLongLong(bytes.get()) &&
           PyErr_Occurred() == nullptr;
  }

  // Allocates the outputs that are None like remembered tensors without memory. One that is a view of what the kernel
  // writes comes from a pattern of its own, 0.8 us faster than a view of the output would be made; or, if it is a part
  // of that, becomes the view itself.
  bool Allocate(Call& call) const {
    const auto count = static_cast<intptr_t>(form_.allocated.size());
    for (intptr_t i = 0; i < count; ++i) {
      const int64_t place = form_.allocated[i];
      if (call.given[place] != none_) continue;
      if (!call.patterns) call.patterns = PatternsOf(call);
      if (!call.patterns) return false;
      PyObject* const patterns = call.patterns.get();
      call.made[place] = CallOf(empty_like_, PyTuple_GetItem(patterns, i));
      if (!call.made[place]) return false;
      PyObject *tensor = call.made[place].get(), *whole = PyTuple_GetItem(patterns, count + i);
      PyObject* part = PyTuple_GetItem(patterns, 2 * count + i);
      if (part != none_ && !MakePart(tensor, part)) return false;
      if (!Exchange(call, place, tensor) || (whole != none_ && !ViewAs(call.tensors[place], whole))) return false;
    }
    return true;
  }

  // Gives a tensor another shape and strides.
  bool MakePart(PyObject* tensor, PyObject* part) const {
    PyObject* const given[] = {tensor, PyTuple_GetItem(part, 0), PyTuple_GetItem(part, 1)};
    return static_cast<bool>(CallOf(as_strided_, given, 3));
  }

  // The same memory with the dtype and shape of another tensor, row-major.
  bool ViewAs(DLTensor& tensor, PyObject* whole) const {
    DLTensor other;
    if (exchange_->dltensor_from_py_object_no_sync(whole, &other) != 0) return false;
    tensor.dtype = other.dtype;
    tensor.ndim = other.ndim;
    tensor.shape = other.shape;
    tensor.strides = nullptr;
    return true;
  }

  Reference PatternsOf(const Call& call) const {
    Patterns::Likeness likeness;
    PyObject* leaders[kMaxArguments];
    int count = 0;
    for (const int64_t place : form_.leaders) {
      leaders[count++] = call.given[place];
      if (call.given[place] == none_ || !Patterns::Describe(call.tensors[place], likeness)) return {};
    }
    if (Reference known = patterns_.Find(likeness)) return known;
    Reference found = CallOf(find_patterns_, leaders, count);
    if (!found || found.get() == none_) return {};
    patterns_.Remember(likeness, found.get());
    return found;
  }

  bool CountWrites(const Call& call) const {
    PyObject* written[kMaxArguments];
    int count = 0;
    for (const int64_t place : form_.outputs) {
      PyObject* given = call.given[place];
      if (given != none_ && std::find(written, written + count, given) == written + count) written[count++] = given;
    }
    if (count == 0) return true;
    const Reference tensors = TupleOf(written, count);
    if (!tensors) return false;
    if (CallOf(increment_versions_, tensors.get())) return true;
    PyErr_Clear();  // an inference tensor outside inference mode has no version
    return static_cast<bool>(CallOf(note_written_, tensors.get()));
  }

  bool Launch(Call& call) const {
    int count = arguments();
    PyObject* stream = call.given[count];
    const DLDevice device = call.tensors[0].device;
    if (stream != none_) {
      const long long handle = PyLong_AsLongLong(stream);
      if (PyErr_Occurred() != nullptr) return false;
      call.arguments[count++] = static_cast<int64_t>(handle);
    } else if (IsCuda(device)) {
      void* current = nullptr;
      if (exchange_->current_work_stream(device.device_type, device.device_id, &current) != 0) return false;
      call.arguments[count++] = reinterpret_cast<int64_t>(current);
    }
    const WithoutPython released;
    try {
      if (form_.find_second != nullptr) return LaunchBoth(call, count > arguments());
      return dispatcher_->Call(ffi::PackedArgs(call.arguments, count)) == nullptr;
    } catch (const std::exception& error) {  // the slow path reports it in the caller's terms
      if (call.has_begun) call.error = error.what();
      return false;
    }
  }

  // Nothing runs unless both kernels are known.
  bool LaunchBoth(Call& call, bool has_stream) const {
    ffi::AnyView first[kMaxArguments + 1], second[kMaxArguments + 1];
    const int first_count = Take(call, form_.first, has_stream, first);
    const int second_count = Take(call, form_.second, has_stream, second);
    ffi::Any found;
    form_.find_second.CallPacked(second, second_count, &found);
    const auto kernel = found.cast<ffi::Function>();
    if (kernel == nullptr || dispatcher_->Call(ffi::PackedArgs(first, first_count)) != nullptr) return false;
    call.has_begun = true;
    kernel.CallPacked(second, second_count, &found);
    return true;
  }

  int Take(const Call& call, const std::vector<int64_t>& places, bool has_stream, ffi::AnyView* taken) const {
    int count = 0;
    for (const int64_t place : places) taken[count++] = call.arguments[place];
    if (has_stream) taken[count++] = call.arguments[arguments()];
    return count;
  }

  std::shared_ptr<const Dispatcher> dispatcher_;
  Form form_;
  int view_of_[kMaxArguments];  // the views of arguments; -1 for none
  const DLPackExchangeAPI* exchange_;
  PyObject *none_, *exception_, *failure_, *float_, *int_, *tensor_, *types_, *is_neg_, *requires_grad_, *count_modes_;
  PyObject *is_tracing_, *forward_ad_, *current_level_, *grad_enabled_, *increment_versions_, *note_written_;
  PyObject *find_patterns_, *empty_like_, *stream_handle_, *otherwise_, *storage_of_, *address_of_;
  PyObject *bytes_of_, *type_, *constants_, *names_, *numbers_, *as_strided_;
  Patterns patterns_;
};

// The address of a new function of Python that makes the dispatcher's calls, given the fields of `Form` and the address
// of `objects`; it lives as long as the process.
inline int64_t MakeTorchCall(std::shared_ptr<const Dispatcher> dispatcher, ffi::PackedArgs args) {
  const auto places = [&args](int i) {
    const auto array = args[i].cast<ffi::Array<int64_t>>();
    return std::vector<int64_t>(array.begin(), array.end());
  };
  std::vector<View> views;
  const std::vector<int64_t> fields = places(11);
  for (size_t i = 0; i + 5 <= fields.size(); i += 5) {
    views.push_back({fields[i], fields[i + 1], fields[i + 2], fields[i + 3], fields[i + 4]});
  }
  JITNORM_CHECK(views.size() <= TorchCall::kMaxViews, ValueError) << "form: has too many views";
  TorchCall::Form form{args[0].cast<int>(),
                       args[1].cast<int>(),
                       places(2),
                       places(3),
                       places(4),
                       places(5),
                       places(6),
                       static_cast<TorchCall::Form::Kind>(args[7].cast<int>()),
                       places(8),
                       args[9].cast<int>(),
                       args[10].cast<int>(),
                       std::move(views),
                       places(12),
                       places(13),
                       args[14].cast<ffi::Function>()};
  JITNORM_CHECK(form.given.size() <= kMaxArguments + 1, ValueError) << "form: has too many arguments";
  const WithPython held;
  return FunctionOf(
      new TorchCall(std::move(dispatcher), std::move(form), reinterpret_cast<PyObject*>(args[15].cast<int64_t>())));
}
