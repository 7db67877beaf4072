// The part of Python's stable C interface that the launcher uses. Declared here, so that no headers of Python are
// needed to build the launcher, and weak, so that it also loads in programs without Python.
struct PyObject;
struct PyThreadState;

using PyFastFunction = PyObject* (*)(PyObject* self, PyObject* const* given, intptr_t count);

struct PyMethodDef {
  const char* name;
  PyFastFunction function;
  int flags;
  const char* doc;
};

constexpr int kFastCall = 0x80;  // METH_FASTCALL

#define JITNORM_PYTHON __attribute__((weak))
extern "C" {
JITNORM_PYTHON void Py_IncRef(PyObject*);
JITNORM_PYTHON void Py_DecRef(PyObject*);
JITNORM_PYTHON int PyGILState_Ensure();
JITNORM_PYTHON void PyGILState_Release(int);
JITNORM_PYTHON PyThreadState* PyEval_SaveThread();
JITNORM_PYTHON void PyEval_RestoreThread(PyThreadState*);
JITNORM_PYTHON PyObject* PyErr_Occurred();
JITNORM_PYTHON int PyErr_ExceptionMatches(PyObject*);
JITNORM_PYTHON void PyErr_Clear();
JITNORM_PYTHON void PyErr_SetString(PyObject*, const char*);
JITNORM_PYTHON PyObject* PyObject_Type(PyObject*);
JITNORM_PYTHON int PyObject_IsTrue(PyObject*);
JITNORM_PYTHON PyObject* PyObject_GetAttr(PyObject*, PyObject*);
JITNORM_PYTHON PyObject* PyObject_CallNoArgs(PyObject*);
JITNORM_PYTHON PyObject* PyObject_CallObject(PyObject*, PyObject*);
JITNORM_PYTHON PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*);  // from 3.11
JITNORM_PYTHON PyObject* PyObject_GetItem(PyObject*, PyObject*);
JITNORM_PYTHON PyObject* PyObject_GenericGetDict(PyObject*, void*);
JITNORM_PYTHON PyObject* PyType_GenericNew(PyObject*, PyObject*, PyObject*);
JITNORM_PYTHON PyObject* PyTuple_New(intptr_t);
JITNORM_PYTHON PyObject* PyTuple_GetItem(PyObject*, intptr_t);
JITNORM_PYTHON intptr_t PyTuple_Size(PyObject*);
JITNORM_PYTHON int PyTuple_SetItem(PyObject*, intptr_t, PyObject*);
JITNORM_PYTHON int PyDict_Update(PyObject*, PyObject*);
JITNORM_PYTHON PyObject* PyDict_GetItemWithError(PyObject*, PyObject*);
JITNORM_PYTHON int PyDict_SetItem(PyObject*, PyObject*, PyObject*);
JITNORM_PYTHON int PySet_Contains(PyObject*, PyObject*);
JITNORM_PYTHON long PyLong_AsLong(PyObject*);
JITNORM_PYTHON long long PyLong_AsLongLong(PyObject*);
JITNORM_PYTHON PyObject* PyLong_FromLongLong(long long);
JITNORM_PYTHON double PyFloat_AsDouble(PyObject*);
JITNORM_PYTHON PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
JITNORM_PYTHON void* PyCapsule_GetPointer(PyObject*, const char*);
JITNORM_PYTHON PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
JITNORM_PYTHON PyFastFunction PyCFunction_GetFunction(PyObject*);
JITNORM_PYTHON PyObject* PyCFunction_GetSelf(PyObject*);
}
#undef JITNORM_PYTHON

// A reference to an object of Python that is given up at the end of a scope; empty after a call that raised an error.
class Reference {
 public:
  Reference() = default;
  explicit Reference(PyObject* owned) : object_(owned) {}
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference() {
    if (object_ != nullptr) Py_DecRef(object_);
  }

  static Reference To(PyObject* borrowed) {
    Py_IncRef(borrowed);
    return Reference(borrowed);
  }

  PyObject* get() const { return object_; }
  PyObject* Release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline bool IsFalse(const Reference& value) { return value && PyObject_IsTrue(value.get()) == 0; }

inline bool IsOf(PyObject* object, PyObject* type) { return Reference(PyObject_Type(object)).get() == type; }

// A tuple of borrowed objects.
inline Reference TupleOf(PyObject* const* objects, int count) {
  Reference tuple(PyTuple_New(count));
  for (int i = 0; tuple && i < count; ++i) {
    Py_IncRef(objects[i]);
    PyTuple_SetItem(tuple.get(), i, objects[i]);
  }
  return tuple;
}

// A function's result for borrowed arguments.
inline Reference CallOf(PyObject* function, PyObject* const* given, intptr_t count) {
  if (PyObject_Vectorcall != nullptr) return Reference(PyObject_Vectorcall(function, given, count, nullptr));
  const Reference arguments = TupleOf(given, static_cast<int>(count));
  return Reference(arguments ? PyObject_CallObject(function, arguments.get()) : nullptr);
}

inline Reference CallOf(PyObject* function, PyObject* argument) { return CallOf(function, &argument, 1); }

// Holds Python's lock for a scope.
class WithPython {
 public:
  WithPython() : state_(PyGILState_Ensure()) {}
  ~WithPython() { PyGILState_Release(state_); }
  WithPython(const WithPython&) = delete;
  WithPython& operator=(const WithPython&) = delete;

 private:
  int state_;
};

// Lets other threads of Python run for a scope.
class WithoutPython {
 public:
  WithoutPython() : thread_(PyEval_SaveThread()) {}
  ~WithoutPython() { PyEval_RestoreThread(thread_); }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  PyThreadState* thread_;
};

template <typename Object>
PyObject* RunObject(PyObject* self, PyObject* const* given, intptr_t count) {
  return static_cast<const Object*>(PyCapsule_GetPointer(self, nullptr))->Run(given, count);
}

// The object of a builtin function, if that was made of one by `FunctionOf`.
template <typename Object>
const Object* ObjectOf(PyObject* function) {
  if (PyCFunction_GetFunction(function) != RunObject<Object>) return nullptr;
  return static_cast<const Object*>(PyCapsule_GetPointer(PyCFunction_GetSelf(function), nullptr));
}

// The address of a new function of Python that calls `Run` of an object; both live as long as the process.
template <typename Object>
int64_t FunctionOf(Object* object) {
  static PyMethodDef definition{"call", RunObject<Object>, kFastCall, nullptr};
  return reinterpret_cast<int64_t>(PyCFunction_NewEx(&definition, PyCapsule_New(object, nullptr, nullptr), nullptr));
}
