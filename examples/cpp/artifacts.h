// Artifacts of jitnorm's cache, read and verified without Python. docs/cache.md has the layout.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "sha256.h"

struct Artifact {
  std::string payload;
  tvm::ffi::json::Object manifest;  // description by its builder

  std::string Field(const char* name) const {
    const auto found = manifest.find(tvm::ffi::String(name));
    if (found == manifest.end()) return "";
    return (*found).second.try_cast<tvm::ffi::String>().value_or("");
  }
};

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) TVM_FFI_THROW(RuntimeError) << path << ": cannot be read";
  return content.str();
}

// Reads an entry; throws unless every byte is as published under its key.
inline Artifact ReadEntry(const std::filesystem::path& folder) {
  namespace ffi = tvm::ffi;
  const std::string text = ReadFile(folder / "manifest.json");
  // Manifests are canonical JSON: the first field is the digest of the rest.
  const std::string before = "{\"digest\":\"";
  const size_t digest_end = before.size() + 64;
  if (text.compare(0, before.size(), before) != 0 || text.compare(digest_end, 2, "\",") != 0 ||
      text.substr(before.size(), 64) != Sha256("{" + text.substr(digest_end + 2))) {
    TVM_FFI_THROW(RuntimeError) << folder << ": manifest.json does not match its digest";
  }
  const auto file = ffi::json::Parse(text).cast<ffi::json::Object>();
  if (file.at("key").cast<ffi::String>() != folder.filename().string()) {
    TVM_FFI_THROW(RuntimeError) << folder << ": manifest.json belongs to another key";
  }
  const auto payload = file.at("payload").cast<ffi::json::Object>();
  Artifact artifact{ReadFile(folder / "payload"), file.at("manifest").cast<ffi::json::Object>()};
  if (payload.at("sha256").cast<ffi::String>() != Sha256(artifact.payload)) {
    TVM_FFI_THROW(RuntimeError) << folder << ": payload does not match its digest";
  }
  return artifact;
}

// Finds the first matching artifact in a cache folder, which is a user's cache or .../cache of an unpacked wheel.
inline Artifact FindArtifact(const std::filesystem::path& cache, const std::string& what,
                             const std::function<bool(const Artifact&)>& is_wanted) {
  namespace fs = std::filesystem;
  for (const auto& group : fs::directory_iterator(cache / "v1")) {
    if (!group.is_directory() || group.path().filename().string().size() != 2) continue;
    for (const auto& entry : fs::directory_iterator(group)) {
      Artifact artifact = ReadEntry(entry.path());
      if (is_wanted(artifact)) return artifact;
    }
  }
  TVM_FFI_THROW(RuntimeError) << what << " is not in " << cache;
  throw;  // never reached
}
